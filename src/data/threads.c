#include "data/threads_internal.h"

#include "core/processors.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = 16, MESSAGE_BYTES = 512 };

cod_status cod_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? COD_OK : cod_fail(COD_ERR_MEMORY, "cannot start a thread: %s", strerror(error));
}

typedef struct parallel {
    pthread_mutex_t mutex;
    size_t next, count;
    cod_item_function run;
    void *context;
    cod_status status;
    char message[MESSAGE_BYTES];
} parallel;

static void *work(void *context)
{
    parallel *p = context;
    pthread_mutex_lock(&p->mutex);
    while (p->status == COD_OK && p->next < p->count) {
        const size_t index = p->next++;
        pthread_mutex_unlock(&p->mutex);
        const cod_status status = p->run(p->context, index);
        pthread_mutex_lock(&p->mutex);
        if (status != COD_OK && p->status == COD_OK) {
            p->status = status;
            snprintf(p->message, sizeof p->message, "%s", cod_error_message());
        }
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

cod_status cod_run_parallel(size_t count, cod_item_function run, void *context)
{
    int wanted = cod_usable_threads();
    wanted = wanted < MAX_THREADS ? wanted : MAX_THREADS;
    wanted = (size_t)wanted < count ? wanted : (int)count;
    parallel p = {.mutex = PTHREAD_MUTEX_INITIALIZER, .count = count, .run = run, .context = context};
    pthread_t threads[MAX_THREADS];
    int started = 0;
    /* This thread works too, so that a system which gives no more threads is only slower. */
    while (started < wanted - 1 && cod_thread_start(&threads[started], work, &p) == COD_OK)
        started++;
    work(&p);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&p.mutex);
    return p.status == COD_OK ? COD_OK : cod_fail(p.status, "%s", p.message);
}
