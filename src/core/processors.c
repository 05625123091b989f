#include "core/processors.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BITS = 64, WORDS = COD_PROCESSORS_MAX / WORD_BITS };

/** A processor and where it sits. */
typedef struct place {
    int package, core; /**< core: the lowest processor of the core */
    int processor;
} place;

void cod_processors_add(cod_processors *set, int processor)
{
    if (processor >= 0 && processor < COD_PROCESSORS_MAX)
        set->bits[processor / WORD_BITS] |= UINT64_C(1) << processor % WORD_BITS;
}

bool cod_processors_have(const cod_processors *set, int processor)
{
    return processor >= 0 && processor < COD_PROCESSORS_MAX &&
           (set->bits[processor / WORD_BITS] >> processor % WORD_BITS & 1) != 0;
}

int cod_processors_count(const cod_processors *set)
{
    int count = 0;
    for (int i = 0; i < WORDS; i++)
        count += __builtin_popcountll(set->bits[i]);
    return count;
}

bool cod_processors_equal(const cod_processors *a, const cod_processors *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool cod_processors_overlap(const cod_processors *a, const cod_processors *b)
{
    for (int i = 0; i < WORDS; i++)
        if ((a->bits[i] & b->bits[i]) != 0)
            return true;
    return false;
}

void cod_processors_format(const cod_processors *set, char *text, size_t bytes)
{
    size_t used = 0;
    if (bytes > 0)
        text[0] = '\0';
    for (int i = 0; i < COD_PROCESSORS_MAX; i++) {
        if (!cod_processors_have(set, i))
            continue;
        const int first = i;
        while (cod_processors_have(set, i + 1))
            i++;
        char run[32];
        const int length = snprintf(run, sizeof run, i > first ? "%s%d-%d" : "%s%d", used ? "," : "", first, i);
        if (used + (size_t)length + sizeof "..." > bytes) {
            snprintf(text + used, bytes - used, "...");
            return;
        }
        memcpy(text + used, run, (size_t)length + 1);
        used += (size_t)length;
    }
}

bool cod_processors_parse(const char *text, cod_processors *set)
{
    *set = (cod_processors){0};
    bool any = false;
    for (const char *at = text;; at++) {
        char *end;
        const long first = strtol(at, &end, 10);
        if (end == at || first < 0)
            return any;
        long last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long i = first; i <= last && i < COD_PROCESSORS_MAX; i++)
            cod_processors_add(set, (int)i);
        any = any || last >= first;
        at = end;
        if (*at != ',')
            return any;
    }
}

cod_processors cod_processors_allowed(void)
{
    cod_processors set = {0};
    if (sched_getaffinity(0, sizeof set, (cpu_set_t *)(void *)&set) != 0)
        set = (cod_processors){0};
    return set;
}

cod_status cod_processors_bind(const cod_processors *set)
{
    if (sched_setaffinity(0, sizeof *set, (const cpu_set_t *)(const void *)set) == 0)
        return COD_OK;
    char text[128];
    cod_processors_format(set, text, sizeof text);
    return cod_fail(COD_ERR_IO, "cannot stay on processors %s: %s", text, strerror(errno));
}

/** First line of FOLDER/cpuN/topology/NAME; false when there is none. */
static bool read_topology(const char *folder, int processor, const char *name, char *line, int bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/cpu%d/topology/%s", folder, processor, name);
    FILE *file = fopen(path, "re");
    const bool read = file != NULL && fgets(line, bytes, file) != NULL;
    if (file != NULL)
        fclose(file);
    return read;
}

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->processor > y->processor) - (x->processor < y->processor);
}

/** The set's processors, those of a core and those of a package together. @return their number; *out new, free() */
static int list_places(const cod_processors *set, const char *folder, place **out)
{
    place *places = malloc((size_t)(cod_processors_count(set) + 1) * sizeof *places);
    int count = 0;
    *out = places;
    for (int i = 0; places != NULL && i < COD_PROCESSORS_MAX; i++) {
        if (!cod_processors_have(set, i))
            continue;
        place *p = &places[count++];
        char line[4096];
        *p = (place){.core = i, .processor = i};
        if (read_topology(folder, i, "physical_package_id", line, sizeof line))
            p->package = atoi(line);
        if (read_topology(folder, i, "thread_siblings_list", line, sizeof line))
            p->core = atoi(line); /* the list begins with the lowest */
    }
    if (count > 0)
        qsort(places, (size_t)count, sizeof *places, by_place);
    return count;
}

static bool begins_core(const place *places, int i)
{
    return i == 0 || places[i].package != places[i - 1].package || places[i].core != places[i - 1].core;
}

static int count_cores(const place *places, int count)
{
    int cores = 0;
    for (int i = 0; i < count; i++)
        cores += begins_core(places, i);
    return cores;
}

int cod_processors_cores(const cod_processors *set, const char *folder)
{
    place *places;
    const int cores = count_cores(places, list_places(set, folder, &places));
    free(places);
    return cores;
}

bool cod_processors_part(const cod_processors *set, int part, int parts, const char *folder, cod_processors *out)
{
    place *places;
    const int count = list_places(set, folder, &places), cores = count_cores(places, count);
    const int units = cores >= parts ? cores : count;
    const bool enough = parts > 0 && units >= parts;
    *out = enough ? (cod_processors){0} : *set;
    for (int i = 0, unit = -1; enough && i < count; i++) {
        unit += units == count || begins_core(places, i);
        if (unit >= (int)((int64_t)units * part / parts) && unit < (int)((int64_t)units * (part + 1) / parts))
            cod_processors_add(out, places[i].processor);
    }
    free(places);
    return enough;
}

/** Quota of "MICROSECONDS PERIOD" or "max PERIOD" in a file. */
static int read_quota(const char *folder, const char *path, size_t length)
{
    char name[4352];
    double quota, period;
    snprintf(name, sizeof name, "%s%.*s/cpu.max", folder, (int)length, path);
    FILE *file = fopen(name, "re");
    const bool limited = file != NULL && fscanf(file, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0;
    if (file != NULL)
        fclose(file);
    const double whole = limited ? quota / period : INT_MAX;
    return whole >= INT_MAX ? INT_MAX : (int)whole + ((double)(int)whole < whole);
}

int cod_processors_quota(void)
{
    char line[4096], *path = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && path == NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "0::/", 4) == 0)
            path = line + 3;
    if (file != NULL)
        fclose(file);
    if (path == NULL)
        return INT_MAX;
    path[strcspn(path, "\n")] = '\0';
    int least = INT_MAX;
    /* Each group above limits too, up to the root, whose path is empty. */
    for (size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);;) {
        const int quota = read_quota("/sys/fs/cgroup", path, length);
        least = quota < least ? quota : least;
        if (length == 0)
            return least;
        while (path[--length] != '/')
            ;
    }
}

int cod_usable_threads(void)
{
    const cod_processors set = cod_processors_allowed();
    const int cores = cod_processors_cores(&set, COD_TOPOLOGY_FOLDER), quota = cod_processors_quota();
    const int threads = cores < quota ? cores : quota;
    return threads > 1 ? threads : 1;
}

void cod_processors_describe(int count, char *text, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL, name[160] = "unknown processor";
    size_t capacity = 0;
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(colon + 1, "\n") - 1, colon + 2);
            break;
        }
    }
    free(line);
    if (file != NULL)
        fclose(file);
    snprintf(text, bytes, "%s, %d processor%s", name, count, count == 1 ? "" : "s");
}
