#include "tools/news.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { PREFIX = 1 + COD_NEWS_TOKEN + 1, DIGITS = 10 };

static char drawn[COD_NEWS_TOKEN + 1], read_by[COD_NEWS_TOKEN + 1];

void cod_news_listen(void)
{
    unsigned char bytes[COD_NEWS_TOKEN / 2] = {0};
    /* Without the system's random numbers two jobs still differ. */
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        struct timespec now;
        const pid_t pid = getpid();
        clock_gettime(CLOCK_REALTIME, &now);
        memcpy(bytes, &now.tv_nsec, sizeof now.tv_nsec);
        memcpy(bytes + sizeof bytes - sizeof pid, &pid, sizeof pid);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(drawn + 2 * i, 3, "%02x", bytes[i]);
    setenv(COD_NEWS_VARIABLE, drawn, 1);
}

const char *cod_news_token(void)
{
    return drawn;
}

/** Reads digits. @return false unless there are one to nine */
static bool read_number(const char **at, const char *end, int *number)
{
    const char *from = *at;
    for (*number = 0; *at < end && **at >= '0' && **at <= '9' && *at - from < DIGITS - 1; ++*at)
        *number = 10 * *number + (**at - '0');
    return *at > from && (*at == end || **at < '0' || **at > '9');
}

static bool read_news(const char *at, const char *end, cod_news *news)
{
    if (at == end || strchr("SXOPA", *at) == NULL || *at == '\0')
        return false;
    news->kind = (cod_news_kind)*at++;
    if (!read_number(&at, end, &news->number))
        return false;
    if (news->kind == COD_NEWS_LINE || news->kind == COD_NEWS_BEGUN) {
        if (at == end || *at++ != ' ')
            return false;
        news->text = at;
        news->bytes = (size_t)(end - at);
    }
    if (news->kind == COD_NEWS_LINE)
        return true;
    return (news->kind != COD_NEWS_BEGUN || read_number(&at, end, &news->pid)) && at == end;
}

size_t cod_news_find(const char *token, const char *line, size_t bytes, cod_news *news)
{
    char prefix[PREFIX + 1];
    snprintf(prefix, sizeof prefix, "%c%s ", COD_NEWS_MARK, token);
    *news = (cod_news){0};
    const char *found = token[0] != '\0' ? memmem(line, bytes, prefix, strlen(prefix)) : NULL;
    if (found != NULL && read_news(found + strlen(prefix), line + bytes, news))
        return (size_t)(found - line);
    *news = (cod_news){0};
    return bytes;
}

bool cod_news_open(void)
{
    const char *token = getenv(COD_NEWS_VARIABLE);
    if (token != NULL && strlen(token) == COD_NEWS_TOKEN && strspn(token, "0123456789abcdef") == COD_NEWS_TOKEN)
        memcpy(read_by, token, sizeof read_by);
    return cod_news_are_read();
}

bool cod_news_are_read(void)
{
    return read_by[0] != '\0';
}

/** In one piece, as several threads and processes write there. */
static void write_whole(const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t written = write(STDERR_FILENO, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        text += written;
        bytes -= (size_t)written;
    }
}

void cod_news_send(cod_news_kind kind, int number, const char *text)
{
    char line[1024];
    if (!cod_news_are_read() || number < 0)
        return;
    int length = snprintf(line, sizeof line, "%c%s %c%d%s%s", COD_NEWS_MARK, read_by, (char)kind, number,
                          text != NULL ? " " : "", text != NULL ? text : "");
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    write_whole(line, (size_t)length + 1);
}

void cod_news_send_asked(int rank)
{
    char line[PREFIX + 1 + DIGITS + 1], digits[DIGITS];
    size_t length = 0, count = 0;
    if (!cod_news_are_read() || rank < 0)
        return;
    line[length++] = COD_NEWS_MARK;
    memcpy(line + length, read_by, COD_NEWS_TOKEN);
    length += COD_NEWS_TOKEN;
    line[length++] = ' ';
    line[length++] = COD_NEWS_ASKED;
    do
        digits[count++] = (char)('0' + rank % 10);
    while ((rank /= 10) > 0 && count < DIGITS);
    while (count > 0)
        line[length++] = digits[--count];
    line[length++] = '\n';
    write_whole(line, length);
}

void cod_lines_add(cod_lines *lines, const char *data, size_t bytes, cod_lines_reader reader, void *context)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != '\n' && lines->used == lines->capacity && lines->capacity < COD_NEWS_MOST_LINE) {
            const size_t capacity = lines->capacity > 0 ? 2 * lines->capacity : 1024;
            char *moved = realloc(lines->data, capacity);
            if (moved != NULL) {
                lines->data = moved;
                lines->capacity = capacity;
            }
        }
        if (data[i] == '\n' || lines->used == lines->capacity) {
            reader(context, lines->data != NULL ? lines->data : "", lines->used);
            lines->used = 0;
        }
        if (data[i] != '\n' && lines->capacity > 0)
            lines->data[lines->used++] = data[i];
    }
}

void cod_lines_end(cod_lines *lines, cod_lines_reader reader, void *context)
{
    if (lines->used > 0)
        reader(context, lines->data, lines->used);
    free(lines->data);
    *lines = (cod_lines){0};
}
