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

void cpu_tune_clear(cod_device *device)
{
    while (device->tuned != NULL) {
        cpu_tuned *next = device->tuned->next;
        free(device->tuned);
        device->tuned = next;
    }
}

static void remember(cod_device *device, uint64_t key, const char *name, double expected_s)
{
    cpu_tuned *tuned = calloc(1, sizeof *tuned);
    if (tuned == NULL)
        return; /* it is timed again, no more */
    tuned->key = key;
    tuned->expected_s = expected_s;
    snprintf(tuned->name, sizeof tuned->name, "%s", name);
    char *mark = strstr(tuned->name, doubtful);
    tuned->is_doubtful = mark != NULL;
    if (mark != NULL)
        *mark = '\0';
    tuned->next = device->tuned;
    device->tuned = tuned;
}

/*
 * The file: "KEY NAME MICROSECONDS and words for people"; the last line of a key counts. Lines are only ever appended,
 * so that processes may write at once.
 */

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
        double us = 0;
        const int found = sscanf(line, "%16" SCNx64 " %16s %lf us", &key, name, &us);
        if (found >= 2)
            remember(device, key, name, found == 3 && us > 0 && us < 1e12 ? 1e-6 * us : 0);
    }
    fclose(file);
}

static void append_cache(uint64_t key, const char *name, bool is_doubtful, double seconds, const char *text)
{
    char path[4096], line[1024], when[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const int length = snprintf(line, sizeof line, "%016" PRIx64 " %.15s%s %.3f us  %.800s; %s\n", key, name,
                                is_doubtful ? doubtful : "", 1e6 * seconds, text, when);
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

cpu_tuned *cpu_tuned_last(cod_device *device, uint64_t key)
{
    if (!device->tune_read) {
        device->tune_read = true;
        device->retimes_doubtful = is_quiet();
        read_cache(device);
    }
    cpu_tuned *tuned = device->tuned;
    while (tuned != NULL && tuned->key != key)
        tuned = tuned->next;
    return tuned;
}

cpu_tuned *cpu_tuned_find(cod_device *device, uint64_t key)
{
    cpu_tuned *tuned = cpu_tuned_last(device, key);
    return tuned != NULL && tuned->is_doubtful && device->retimes_doubtful ? NULL : tuned;
}

void cpu_tuned_note(cod_device *device, uint64_t key, const char *name, double expected_s, bool is_doubtful,
                    const char *text)
{
    remember(device, key, name, expected_s);
    append_cache(key, name, is_doubtful, expected_s, text);
}

void cpu_tuned_doubt(const cpu_tuned *tuned, double seconds)
{
    char text[128];
    snprintf(text, sizeof text, "in training; %.3f us were expected", 1e6 * tuned->expected_s);
    append_cache(tuned->key, tuned->name, true, seconds, text);
}
