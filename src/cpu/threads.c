#include "core/log.h"
#include "cpu/cpu_internal.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/**
 * The size of the team that OpenMP really gives. OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS and an enclosing parallel
 * region lower it without a word, and "dynamic" teams change from region to region.
 */
int cpu_grant_threads(int wanted)
{
    int granted = 1;
#ifdef _OPENMP
    omp_set_dynamic(0);
#pragma omp parallel num_threads(wanted)
#pragma omp master
    granted = omp_get_num_threads();
#endif
    if (granted < wanted)
        cod_log_warn("cpu: OpenMP gives %d of the %d threads asked for; see OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS",
                     granted, wanted);
    return granted;
}

cod_status cpu_use_threads(int threads)
{
#ifdef _OPENMP
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    COD_REQUIRE(threads == 1 || !omp_in_parallel(),
                "cpu: a device of %d threads was used inside a parallel region, which has none to spare", threads);
    COD_REQUIRE(threads == 1 || (omp_get_thread_limit() >= threads && omp_get_max_active_levels() > 0),
                "cpu: OpenMP no longer gives the device's %d threads (thread limit %d, active levels %d)", threads,
                omp_get_thread_limit(), omp_get_max_active_levels());
#else
    (void)threads;
#endif
    return COD_OK;
}

void cpu_parallel_for(const cod_device *device, int64_t count, void (*function)(void *context, int64_t i, int thread),
                      void *context)
{
    if (device->threads == 1 || count == 1) {
        for (int64_t i = 0; i < count; i++)
            function(context, i, 0);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        function(context, i, omp_get_thread_num());
#endif
}
