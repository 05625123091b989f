#include "tools/deaths.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define VARIABLE "COD_DEATHS"

/** The address of that name, which is no file; of the launching process's id, so that no two have the same. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "codistill-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

void cod_deaths_open(cod_deaths *deaths)
{
    char name[32];
    struct sockaddr_un address;
    *deaths = (cod_deaths){.order = epoll_create1(EPOLL_CLOEXEC),
                           .listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    snprintf(name, sizeof name, "%d", (int)getpid());
    const socklen_t length = address_of(name, &address);
    if (deaths->order >= 0 && deaths->listening >= 0 &&
        bind(deaths->listening, (struct sockaddr *)&address, length) == 0 &&
        listen(deaths->listening, COD_DEATHS_MOST) == 0)
        setenv(VARIABLE, name, 1);
    else
        unsetenv(VARIABLE);
}

void cod_deaths_join(void)
{
    enum { HIGH = 512 };
    struct sockaddr_un address;
    const char *name = getenv(VARIABLE);
    const int connection = name != NULL ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (connection < 0)
        return;
    const socklen_t length = address_of(name, &address);
    if (connect(connection, (struct sockaddr *)&address, length) == 0)
        /*
         * Of a dying process's files Linux ends the last ones first: this one before the launcher's own. It stays open.
         */
        fcntl(connection, F_DUPFD_CLOEXEC, HIGH);
    close(connection);
}

/** Takes who has connected since. */
static void take_connections(cod_deaths *deaths)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    int connection;
    while (deaths->count < COD_DEATHS_MOST &&
           (connection = accept4(deaths->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct epoll_event closed = {.events = EPOLLRDHUP, .data.fd = deaths->count};
        if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != getuid() ||
            epoll_ctl(deaths->order, EPOLL_CTL_ADD, connection, &closed) != 0) {
            close(connection);
            continue;
        }
        deaths->connections[deaths->count] = connection;
        deaths->pids[deaths->count] = who.pid;
        deaths->ranks[deaths->count++] = -1;
    }
}

void cod_deaths_note(cod_deaths *deaths, int rank, int pid)
{
    take_connections(deaths);
    for (int i = 0; i < deaths->count; i++)
        if (deaths->pids[i] == pid)
            deaths->ranks[i] = rank;
}

int cod_deaths_first(const cod_deaths *deaths, int told)
{
    struct epoll_event closed;
    int known = 0;
    for (int i = 0; i < deaths->count; i++)
        known += deaths->ranks[i] >= 0;
    /* An epoll hands out what became ready in the order in which it did, however late it is asked. */
    if (known < told || epoll_wait(deaths->order, &closed, 1, 0) != 1)
        return -1;
    return deaths->ranks[closed.data.fd];
}

/** Whether the connection is open: its process is the one that connected, and lives. */
static bool is_open(int connection)
{
    struct pollfd closed = {.fd = connection, .events = POLLRDHUP};
    return poll(&closed, 1, 0) == 0;
}

bool cod_deaths_are_complete(cod_deaths *deaths)
{
    take_connections(deaths);
    for (int i = 0; i < deaths->count; i++)
        if (is_open(deaths->connections[i]))
            return false;
    return true;
}

void cod_deaths_kill(cod_deaths *deaths)
{
    take_connections(deaths);
    for (int i = 0; i < deaths->count; i++)
        if (is_open(deaths->connections[i]))
            kill(deaths->pids[i], SIGKILL);
}

void cod_deaths_close(cod_deaths *deaths)
{
    for (int i = 0; i < deaths->count; i++)
        close(deaths->connections[i]);
    if (deaths->listening >= 0)
        close(deaths->listening);
    if (deaths->order >= 0)
        close(deaths->order);
}
