#include "tools/stop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
enum { SIGNALS = sizeof signals / sizeof signals[0], SAME_REQUEST_MS = 1000 };

static bool is_caught;
static bool were_ignored[SIGNALS]; /**< when the program started */
static atomic_int first, counts[SIGNALS];
static atomic_llong first_ms; /**< when it came; 0 = not yet */
static atomic_bool is_pressing;
static void (*_Atomic listener)(int signal, bool by_terminal);

/** Any thread may run it, and several at once. */
static void note(int signal, siginfo_t *info, void *context)
{
    const int error = errno;
    int none = 0;
    long long never = 0;
    struct timespec now = {0};
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long long now_ms = 1000LL * now.tv_sec + now.tv_nsec / 1000000 + 1;
    if (!atomic_compare_exchange_strong(&first_ms, &never, now_ms) && (signal == SIGINT || signal == SIGTERM) &&
        now_ms - never >= SAME_REQUEST_MS)
        atomic_store(&is_pressing, true);
    atomic_compare_exchange_strong(&first, &none, signal);
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i] == signal)
            atomic_fetch_add(&counts[i], 1);
    void (*const heard)(int, bool) = atomic_load(&listener);
    if (heard != NULL)
        heard(signal, (signal == SIGINT || signal == SIGHUP) && info->si_code > 0);
    errno = error;
}

/**
 * Before any library is set up: UCX, which comes with some MPIs, takes SIGHUP for itself as soon as it is loaded, and
 * main() would not see that nohup has it ignored. Sanitizers are not set up yet, either.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void note_ignored(void)
{
    struct sigaction before;
    for (size_t i = 0; i < SIGNALS; i++)
        were_ignored[i] = sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) static void (*const first_of_all)(void) = note_ignored;

void cod_stop_catch(void)
{
    is_caught = true;
    for (size_t i = 0; i < SIGNALS; i++)
        if (were_ignored[i])
            signal(signals[i], SIG_IGN);
        else
            sigaction(signals[i], &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_RESTART | SA_SIGINFO}, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool cod_stop_is_caught(void)
{
    return is_caught;
}

void cod_stop_release(void)
{
    struct sigaction before;
    for (size_t i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            signal(signals[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

const atomic_int *cod_stop_signal(void)
{
    return &first;
}

int cod_stop_count(int signal)
{
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i] == signal)
            return atomic_load(&counts[i]);
    return 0;
}

bool cod_stop_is_pressing(void)
{
    return atomic_load(&is_pressing);
}

void cod_stop_on_request(void (*heard)(int signal, bool by_terminal))
{
    atomic_store(&listener, heard);
    const int signal = atomic_load(&first);
    if (signal != 0)
        heard(signal, false);
}
