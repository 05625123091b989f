/* What a GPU and its driver are, in words: for people, and for the keys of timed choices. */
#include "cuda/cuda_internal.h"

#include <cstdio>
#include <cstring>

/**
 * Reads a line such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023", of
 * which the version is the first word that is digits and points. "" where the file or such a word is missing.
 */
static void read_driver(const char *path, char *version, size_t bytes)
{
    char line[256] = "";
    FILE *file = fopen(path, "r");
    version[0] = '\0';
    if (file == nullptr)
        return;
    if (fgets(line, sizeof line, file) == nullptr)
        line[0] = '\0';
    fclose(file);
    for (const char *word = strtok(line, " \t\n"); word != nullptr; word = strtok(nullptr, " \t\n")) {
        if (strspn(word, "0123456789.") != strlen(word) || strchr(word, '.') == nullptr)
            continue;
        snprintf(version, bytes, " %s", word);
        return;
    }
}

void cuda_describe_gpu(cod_device *device, const cudaDeviceProp *properties, const char *driver_file)
{
    int driver = 0, runtime = 0;
    char version[32];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    read_driver(driver_file, version, sizeof version);
    memcpy(device->id, properties->uuid.bytes, sizeof device->id);
    snprintf(device->gpu, sizeof device->gpu,
             "%s, compute capability %d.%d, %d multiprocessors, %.1f GB; CUDA %d.%d, driver%s for %d.%d",
             properties->name, properties->major, properties->minor, properties->multiProcessorCount,
             1e-9 * static_cast<double>(properties->totalGlobalMem), runtime / 1000, runtime % 1000 / 10, version,
             driver / 1000, driver % 1000 / 10);
}
