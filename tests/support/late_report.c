#include "support/late.h"
#include "support/late_internal.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_DELAY_US = 50 };

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t violation_count;
static char first_violation[512];
static bool abort_at_once;
static uint64_t delay_seed = 1;
static atomic_uint longest_delay_us = DEFAULT_DELAY_US;
static atomic_size_t crossing_count;
static atomic_size_t copied_bytes;
static uint64_t (*place_of)(cod_plan *inner);

void late_settings_read(void)
{
    const char *seed = getenv("COD_LATE_SEED"), *delay = getenv("COD_LATE_DELAY_US"), *stop = getenv("COD_LATE_ABORT");
    delay_seed = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    if (delay != NULL)
        atomic_store(&longest_delay_us, (unsigned)strtoul(delay, NULL, 10));
    abort_at_once = stop != NULL && strcmp(stop, "1") == 0;
}

void late_violation(const char *fmt, ...)
{
    char text[sizeof first_violation];
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof text)
        snprintf(text + length, sizeof text - (size_t)length, " (COD_LATE_SEED=%llu)", (unsigned long long)delay_seed);
    pthread_mutex_lock(&report_lock);
    if (violation_count++ == 0)
        memcpy(first_violation, text, sizeof text);
    pthread_mutex_unlock(&report_lock);
    if (abort_at_once) {
        fprintf(stderr, "late: %s\n", text);
        abort();
    }
}

size_t cod_late_violations(char *first, size_t bytes)
{
    pthread_mutex_lock(&report_lock);
    const size_t count = violation_count;
    if (bytes > 0)
        snprintf(first, bytes, "%s", first_violation);
    violation_count = 0;
    first_violation[0] = 0;
    pthread_mutex_unlock(&report_lock);
    return count;
}

void late_crossing(void)
{
    atomic_fetch_add(&crossing_count, 1);
}

size_t cod_late_crossings(void)
{
    return atomic_load(&crossing_count);
}

void late_copied(size_t bytes)
{
    atomic_fetch_add(&copied_bytes, bytes);
}

size_t cod_late_copied_bytes(void)
{
    return atomic_load(&copied_bytes);
}

void cod_late_set_delay(unsigned longest_us)
{
    atomic_store(&longest_delay_us, longest_us);
}

uint64_t late_seed(void)
{
    return delay_seed;
}

unsigned late_delay(void)
{
    return atomic_load(&longest_delay_us);
}

void cod_late_watch(uint64_t (*place)(cod_plan *inner))
{
    place_of = place;
}

uint64_t late_place(cod_plan *inner)
{
    return place_of != NULL ? place_of(inner) : 0;
}

void *late_new(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    if (memory == NULL)
        abort();
    return memory;
}
