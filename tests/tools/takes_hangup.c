/*
 * Preloaded into a run: does with SIGHUP what UCX does, which comes with some MPIs. It takes the signal when it is
 * loaded, before main(), whether the process was started to ignore it or not.
 */
#include <signal.h>

static void debug(int signal)
{
    (void)signal;
}

__attribute__((constructor)) static void take(void)
{
    signal(SIGHUP, debug);
}
