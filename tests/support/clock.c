#include "support/clock.h"

#include "core/trace.h"

#include <limits.h>
#include <stdatomic.h>

/** The clock: the machine's, but not past `end_ns`, and `passed_ns` ahead. */
static atomic_llong end_ns = LLONG_MAX, passed_ns;

double __real_cod_clock_s(void);
double __wrap_cod_clock_s(void);

static long long machine_ns(void)
{
    return (long long)(1e9 * __real_cod_clock_s());
}

double __wrap_cod_clock_s(void)
{
    const long long now = machine_ns(), end = atomic_load(&end_ns);
    return 1e-9 * (double)((now < end ? now : end) + atomic_load(&passed_ns));
}

void cod_test_clock_stop_after(double seconds)
{
    atomic_store(&end_ns, machine_ns() + (long long)(1e9 * seconds));
}

void cod_test_clock_pass(double seconds)
{
    atomic_fetch_add(&passed_ns, (long long)(1e9 * seconds));
}

void cod_test_clock_go(void)
{
    atomic_store(&end_ns, LLONG_MAX);
}
