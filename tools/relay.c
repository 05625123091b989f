#include "tools/relay.h"

#include "core/shown.h"
#include "tools/display.h"
#include "tools/news.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 * COD_NEWS_MOST_LINE + 1 };

static bool starts_with(const char *line, const char *start)
{
    return strncmp(line, start, strlen(start)) == 0;
}

static bool is_rule(const char *line)
{
    enum { SHORTEST = 60 };
    const size_t length = strspn(line, line[0] == '=' ? "=" : "-");
    return length >= SHORTEST && line[length] == '\0';
}

/**
 * Whether it is one of the lines that launchers write outside of their banners: Open MPI's "[host:pid] 1 more process
 * has sent help message …"; Hydra's "[mpiexec@host] …", and what follows its banner; MPICH's word on an abort.
 */
static bool is_about_banners(const char *line)
{
    static const char *const hydra[] = {"[mpiexec@",
                                        "[proxy:",
                                        "Abort(",
                                        "YOUR APPLICATION TERMINATED WITH THE EXIT ",
                                        "This typically refers to a problem with your app",
                                        "Please see the FAQ page for "};
    for (size_t i = 0; i < sizeof hydra / sizeof hydra[0]; i++)
        if (starts_with(line, hydra[i]))
            return true;
    return line[0] == '[' && (strstr(line, "sent help message") || strstr(line, "orte_base_help_aggregate") ||
                              strstr(line, "show_help.c"));
}

bool cod_relay_begin(cod_relay *r, const char *token, cod_deaths *deaths)
{
    *r = (cod_relay){.token = token, .deaths = deaths, .code = -1};
    r->held = open_memstream(&r->held_text, &r->held_bytes);
    return r->held != NULL;
}

static void take_news(cod_relay *r, const cod_news *news)
{
    char text[SHOWN];
    const int rank = news->number < COD_RELAY_MOST ? news->number : -1;
    if (news->kind == COD_NEWS_LINE) {
        cod_show(news->text, news->bytes, false, text, sizeof text);
        cod_display_group(news->number, text);
    } else if (news->kind == COD_NEWS_CODE || news->kind == COD_NEWS_OVER) {
        r->code = news->number;
        r->over = r->over || news->kind == COD_NEWS_OVER;
    } else if (news->kind == COD_NEWS_BEGUN && rank >= 0 && news->pid > 0) {
        r->told += r->pids[rank] == 0;
        r->pids[rank] = news->pid;
        cod_deaths_note(r->deaths, rank, news->pid);
    } else if (news->kind == COD_NEWS_ASKED && rank >= 0 && r->pids[rank] > 0) {
        r->heard += !r->has_heard[rank];
        r->has_heard[rank] = true;
    }
}

/** Open MPI's word on each signal that it hands on, of which there may be several. */
static bool is_about_signals(const char *line)
{
    return starts_with(line, "mpi") && strstr(line, ": Forwarding signal ") != NULL;
}

static void take_text(cod_relay *r, const char *line)
{
    if (is_about_signals(line))
        return;
    if (is_rule(line) || is_about_banners(line)) {
        r->in_banner = r->in_banner != is_rule(line);
        fprintf(r->held, "%s\n", line);
    } else if (r->in_banner && !starts_with(line, "codistill: ") && !starts_with(line, "group ")) {
        fprintf(r->held, "%s\n", line);
    } else if (r->spoken && starts_with(line, "codistill: ")) {
        fprintf(r->held, "%s\n", line); /* the same from another rank: it had not heard of the end yet */
    } else {
        r->spoken = r->spoken || starts_with(line, "codistill: ");
        cod_display_line(line);
    }
}

void cod_relay_line(void *relay, const char *line, size_t bytes)
{
    cod_relay *r = relay;
    cod_news news;
    char text[SHOWN];
    const size_t before = cod_news_find(r->token, line, bytes, &news);
    if (news.kind != 0)
        take_news(r, &news);
    if (news.kind == 0 || before > 0) {
        cod_show(line, before, false, text, sizeof text);
        take_text(r, text);
    }
}

int cod_relay_deaf(const cod_relay *r)
{
    for (int i = 0; i < COD_RELAY_MOST; i++)
        if (r->pids[i] > 0 && !r->has_heard[i])
            return i;
    return -1;
}

/**
 * The launcher's word on a rank that a signal ended; Open MPI 5 breaks its lines. Hydra knows the process only, and may
 * name one that it killed itself when another had died.
 */
static void read_death(const cod_relay *r, const char *text, cod_relay_death *death)
{
    static const char open_mpi[] = "noticed that process rank ", hydra[] = "=   PID ", hydra_signal[] = "(signal ";
    const char *at = strstr(text, open_mpi);
    int rank = -1, pid = 0, signal = 0;
    char node[64];
    if (at != NULL && sscanf(at + sizeof open_mpi - 1, "%d with PID %d on node %63s exited on signal %d", &rank, &pid,
                             node, &signal) != 4)
        rank = -1;
    at = at == NULL ? strstr(text, hydra) : NULL;
    if (at != NULL && sscanf(at + sizeof hydra - 1, "%d RUNNING AT %63s", &pid, node) == 2 &&
        (at = strstr(at, hydra_signal)) != NULL && sscanf(at + sizeof hydra_signal - 1, "%d", &signal) == 1) {
        rank = cod_deaths_first(r->deaths, r->told);
        for (int i = 0; rank < 0 && i < COD_RELAY_MOST; i++)
            rank = pid > 0 && r->pids[i] == pid ? i : rank;
    }
    if (rank < 0)
        return;
    death->rank = rank;
    snprintf(death->text, sizeof death->text, "rank %d on %s was killed by signal %d (%s)", rank, node, signal,
             strsignal(signal));
}

void cod_relay_end(cod_relay *r, cod_relay_death *death)
{
    *death = (cod_relay_death){.rank = -1};
    fclose(r->held);
    r->held = NULL;
    read_death(r, r->held_text, death);
}

void cod_relay_clear(cod_relay *r)
{
    if (r->held != NULL)
        fclose(r->held);
    free(r->held_text);
    *r = (cod_relay){0};
}
