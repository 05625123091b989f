#include "tools/display.h"

#include "core/shown.h"
#include "tools/news.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_GROUPS = 64, MAX_LINE = 256, LONGEST = 4 * COD_NEWS_MOST_LINE + 512 };
#define UP              "\033[A"
#define CLEAR_TO_BOTTOM "\033[J"

static struct display {
    enum { PLAIN, READ_PLAIN, READ_GROUPS, TERMINAL } kind;
    pthread_mutex_t mutex;
    int groups; /**< that there are, as far as they have said something */
    int drawn;  /**< lines that stand on the terminal, the cursor at the end of the last */
    char lines[MAX_GROUPS][MAX_LINE];
} display = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void cod_display_open(void)
{
    const char *reader = getenv(COD_DISPLAY_VARIABLE);
    if (reader != NULL && cod_news_open())
        display.kind = strcmp(reader, "terminal") == 0 ? READ_GROUPS : READ_PLAIN;
    else
        display.kind = isatty(STDERR_FILENO) ? TERMINAL : PLAIN;
}

bool cod_display_shows_groups(void)
{
    return display.kind == READ_GROUPS || display.kind == TERMINAL;
}

static void erase(FILE *out)
{
    if (display.drawn == 0)
        return;
    fputc('\r', out);
    for (int i = 1; i < display.drawn; i++)
        fputs(UP, out);
    fputs(CLEAR_TO_BOTTOM, out);
    display.drawn = 0;
}

/** How much of a line fits, in whole fields: these have two spaces between them, the less important ones behind. */
static int fitting(const char *line, int columns)
{
    const int length = (int)strlen(line);
    int cut = length <= columns ? length : columns;
    while (cut > 0 && cut < length && strncmp(line + cut, "  ", 2) != 0)
        cut--;
    return cut > 0 || length == 0 ? cut : columns;
}

/** What does not fit is cut: a line that wraps could not be found again. Groups that do not fit are counted. */
static void draw(FILE *out)
{
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    const int columns = size.ws_col > 1 ? size.ws_col - 1 : 79, rows = size.ws_row > 1 ? size.ws_row - 1 : 23;
    const int room = rows < MAX_GROUPS ? rows : MAX_GROUPS;
    const int count = display.groups <= room ? display.groups : room - 1;
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%.*s", i ? "\n" : "", fitting(display.lines[i], columns), display.lines[i]);
    display.drawn = count;
    if (count < display.groups) {
        char more[80];
        snprintf(more, sizeof more, "... and %d groups more, each with its log.GROUP.txt", display.groups - count);
        fprintf(out, "%s%.*s", count > 0 ? "\n" : "", columns, more);
        display.drawn++;
    }
}

/** Writes `line`, if there is one, above the groups' lines, in one piece. */
static void redraw(const char *line)
{
    char *text = NULL;
    size_t bytes = 0;
    const int drawn = display.drawn;
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL) {
        erase(out);
        if (line != NULL)
            fprintf(out, "%s\n", line);
        draw(out);
    }
    if (out == NULL || fclose(out) != 0) { /* for want of memory: in pieces then */
        display.drawn = drawn;
        erase(stderr);
        if (line != NULL)
            fprintf(stderr, "%s\n", line);
        draw(stderr);
        bytes = 0;
    }
    for (size_t at = 0; at < bytes;) {
        const ssize_t written = write(STDERR_FILENO, text + at, bytes - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        at += (size_t)written;
    }
    free(text);
}

void cod_display_line(const char *text)
{
    char line[LONGEST];
    cod_show(text, strlen(text), true, line, sizeof line);
    pthread_mutex_lock(&display.mutex);
    if (display.kind == TERMINAL)
        redraw(line);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&display.mutex);
}

void cod_display_group(int group, const char *line)
{
    if (group < 0)
        return;
    pthread_mutex_lock(&display.mutex);
    if (display.kind == READ_GROUPS) {
        cod_news_send(COD_NEWS_LINE, group, line);
    } else if (display.kind == TERMINAL) {
        if (group < MAX_GROUPS)
            snprintf(display.lines[group], MAX_LINE, "%s", line);
        display.groups = group < display.groups ? display.groups : group + 1;
        redraw(NULL);
    }
    pthread_mutex_unlock(&display.mutex);
}

void cod_display_close(void)
{
    pthread_mutex_lock(&display.mutex);
    if (display.drawn > 0)
        fputc('\n', stderr);
    display.drawn = display.groups = 0;
    pthread_mutex_unlock(&display.mutex);
}
