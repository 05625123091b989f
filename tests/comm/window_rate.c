/*
 * Measures what a long get takes of a link, and what that costs a short one: rank 1 reads a window of rank 0's again
 * and again, and a header every 20 ms meanwhile. By hand: tools/netlab.sh --rate 10mbit -- mpirun -n 2
 * build/release/tests/comm/window_rate MEGABYTES TIMES
 */
#include "comm/window.h"
#include "core/statistics.h"
#include "core/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADER_BYTES = 896, MOST_HEADERS = 4096 };
#define HEADER_EVERY_S 0.02

/** @param[out] headers_s  [MOST_HEADERS] what each header took */
static cod_status get(cod_window *window, char *target, size_t bytes, double *headers_s, size_t *headers)
{
    static char header[HEADER_BYTES];
    cod_request *all = NULL, *one = NULL;
    double asked_s = 0;
    bool done = false;
    *headers = 0;
    COD_TRY(cod_window_get_start(window, 0, 0, target, bytes, &all));
    while (!done || one != NULL) {
        bool here;
        if (one == NULL && !done && *headers < MOST_HEADERS && cod_clock_s() - asked_s >= HEADER_EVERY_S) {
            asked_s = cod_clock_s();
            COD_TRY(cod_window_get_start(window, 0, 0, header, sizeof header, &one));
        } else if (one != NULL) {
            COD_TRY(cod_request_test(&one, &here));
            if (here)
                headers_s[(*headers)++] = cod_clock_s() - asked_s;
        }
        if (!done)
            COD_TRY(cod_request_test(&all, &done));
        unsigned spins = 1u << 20; /* sleeps: the other rank may be on this processor */
        cod_comm_pause(&spins);
    }
    return COD_OK;
}

static cod_status measure(cod_comm *comm, size_t bytes, int times)
{
    static double headers_s[MOST_HEADERS];
    const int zero = 0;
    size_t headers;
    cod_window *window = NULL;
    char *target = malloc(bytes);
    COD_REQUIRE_MEMORY(target);
    cod_status status = cod_window_create(comm, bytes, &zero, 1, &window);
    for (int i = 0; i < times && status == COD_OK && cod_comm_rank(comm) == 1; i++) {
        const double begin_s = cod_clock_s();
        status = get(window, target, bytes, headers_s, &headers);
        const double took_s = cod_clock_s() - begin_s;
        double most_s = 0;
        for (size_t h = 0; h < headers; h++)
            most_s = fmax(most_s, headers_s[h]);
        printf("get %d: %.2f s, %.1f Mbit/s; %zu headers: median %.1f ms, at most %.1f ms\n", i + 1, took_s,
               8e-6 * (double)bytes / took_s, headers, 1e3 * cod_median(headers_s, headers), 1e3 * most_s);
        fflush(stdout);
    }
    COD_THEN(status, cod_window_destroy(window));
    free(target);
    return status;
}

int main(int argc, char **argv)
{
    const double megabytes = argc > 1 ? strtod(argv[1], NULL) : 0;
    const int times = argc > 2 ? atoi(argv[2]) : 1;
    cod_comm *comm = NULL;
    const cod_comm_options options = {.teardown_timeout_s = 600, .progress_interval_ms = 1};
    cod_status status = cod_comm_init(&options, &comm);
    if (status == COD_OK && (megabytes <= 0 || cod_comm_size(comm) != 2))
        status = cod_fail(COD_ERR_ARGUMENT, "usage: mpirun -n 2 window_rate MEGABYTES TIMES");
    COD_THEN(status, measure(comm, (size_t)(1e6 * megabytes), times));
    COD_THEN(status, cod_comm_finalize(comm));
    if (status != COD_OK) {
        fprintf(stderr, "window_rate: %s\n", cod_error_message());
        return 1;
    }
    return 0;
}
