/*
 * The choices of convolutions that were timed on this machine: in a file of the user's cache, one line for each shape,
 * choice of implementations, processor, instruction set, number of threads and library version.
 */
#include "cpu/tune_internal.h"

#include "core/log.h"
#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_REMEMBERED = 1 << 16 };

/** Behind a name in the file: runs took unlike times, so the choice is made anew when the machine is quiet. */
static const char doubtful[] = "?";

struct cpu_tuned {
    cpu_tuned *next;
    uint64_t key;
    char name[17];
};

void cpu_tune_clear(cod_device *device)
{
    while (device->tuned != NULL) {
        cpu_tuned *next = device->tuned->next;
        free(device->tuned);
        device->tuned = next;
    }
}

static void remember(cod_device *device, uint64_t key, const char *name)
{
    cpu_tuned *tuned = calloc(1, sizeof *tuned);
    if (tuned == NULL)
        return; /* it is timed again, no more */
    tuned->key = key;
    snprintf(tuned->name, sizeof tuned->name, "%s", name);
    tuned->next = device->tuned;
    device->tuned = tuned;
}

/* The file: "KEY NAME and words for people". Lines are only ever appended, so that processes may write at once. */

static bool cache_path(char *path, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[2048];
    const bool given = cache != NULL && cache[0] == '/';
    if (!given && (home == NULL || home[0] != '/'))
        return false;
    snprintf(folder, sizeof folder, "%s%s", given ? cache : home, given ? "" : "/.cache");
    mkdir(folder, 0777);
    snprintf(path, bytes, "%.2000s/codistill", folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return false;
    snprintf(path, bytes, "%.2000s/codistill/convolutions.txt", folder);
    return true;
}

static void read_cache(cod_device *device)
{
    char path[4096], line[512];
    if (!cache_path(path, sizeof path))
        return;
    FILE *file = cod_regular_stream(path);
    if (file == NULL && errno == EINVAL)
        cod_log_warn("'%s' is no regular file: convolutions are timed anew, and what is found is not kept", path);
    if (file == NULL)
        return;
    for (int i = 0; i < MOST_REMEMBERED && fgets(line, sizeof line, file) != NULL; i++) {
        uint64_t key;
        char name[17];
        if (sscanf(line, "%16" SCNx64 " %16s", &key, name) == 2)
            remember(device, key, name);
    }
    fclose(file);
}

static void append_cache(uint64_t key, const char *name, const char *text)
{
    char path[4096], line[1024], when[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const int length = snprintf(line, sizeof line, "%016" PRIx64 " %s  %.800s; %s\n", key, name, text, when);
    const int file = cache_path(path, sizeof path) ? cod_regular_open(path, O_WRONLY | O_APPEND | O_CREAT) : -1;
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        cod_log_debug("cpu: '%s' could not be written", path);
    close(file);
}

/** Whether nothing but this process runs. */
static bool is_quiet(void)
{
    char text[128] = "";
    FILE *file = fopen("/proc/loadavg", "re");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        text[0] = '\0';
    if (file != NULL)
        fclose(file);
    int running = 0;
    return sscanf(text, "%*f %*f %*f %d", &running) == 1 && running <= 1;
}

const char *cpu_tuned_find(cod_device *device, uint64_t key)
{
    if (!device->tune_read) {
        device->tune_read = true;
        device->retimes_doubtful = is_quiet();
        read_cache(device);
    }
    for (cpu_tuned *tuned = device->tuned; tuned != NULL; tuned = tuned->next) {
        char *mark = strstr(tuned->name, doubtful);
        if (tuned->key != key)
            continue;
        if (mark != NULL && device->retimes_doubtful)
            return NULL;
        if (mark != NULL)
            *mark = '\0';
        return tuned->name;
    }
    return NULL;
}

void cpu_tuned_note(cod_device *device, uint64_t key, const char *name, bool is_doubtful, const char *text)
{
    char marked[17];
    remember(device, key, name);
    snprintf(marked, sizeof marked, "%.15s%s", name, is_doubtful ? doubtful : "");
    append_cache(key, marked, text);
}
