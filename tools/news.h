/**
 * @file
 * News of ranks to the process that started them, on the stream that also has their words, since launchers bring only
 * that from other hosts. News begin with a mark and a token, which the starting process draws anew each time and hands
 * to its ranks in their environment: no name of a file, and no words of another program, can have it.
 */
#ifndef COD_TOOLS_NEWS_H
#define COD_TOOLS_NEWS_H

#include <stdbool.h>
#include <stddef.h>

#define COD_NEWS_MARK     '\x1e'
#define COD_NEWS_VARIABLE "COD_NEWS"
enum {
    COD_NEWS_TOKEN = 32, /**< digits, in base 16 */
    COD_NEWS_MOST_LINE = 8192,
};

typedef enum cod_news_kind {
    COD_NEWS_LINE = 'S',  /**< number: a group; text: its new line on the terminal */
    COD_NEWS_CODE = 'X',  /**< number: the first rank's exit code */
    COD_NEWS_OVER = 'O',  /**< number: the job's exit code, which ends without ranks that hang: nothing is lost */
    COD_NEWS_BEGUN = 'P', /**< number: a rank, whose process has the id `pid` */
    COD_NEWS_ASKED = 'A', /**< number: a rank that has heard the request to end */
} cod_news_kind;

typedef struct cod_news {
    cod_news_kind kind;
    int number, pid;
    const char *text; /**< within the line, of `bytes` bytes; no NUL behind them */
    size_t bytes;
} cod_news;

/** For one that starts ranks: draws a token and hands it to children of this process by the environment. */
void cod_news_listen(void);
/** The token that was drawn. */
const char *cod_news_token(void);
/**
 * Looks for news in a line without its newline. @return the bytes of the line before the news, which are text; all of
 * them where there are none. Sets news->kind to 0 then.
 */
size_t cod_news_find(const char *token, const char *line, size_t bytes, cod_news *news);

/** For a rank: reads the token of the process that started it. @return whether there is one */
bool cod_news_open(void);
/** Whether cod_news_open() found a reader. */
bool cod_news_are_read(void);
/** Sends news, where they are read. */
void cod_news_send(cod_news_kind kind, int number, const char *text);
/** For a signal handler: sends COD_NEWS_ASKED. */
void cod_news_send_asked(int rank);

/** Bytes that come in pieces, cut into lines. Zeroed = none yet. */
typedef struct cod_lines {
    char *data;
    size_t used, capacity;
} cod_lines;
typedef void (*cod_lines_reader)(void *context, const char *line, size_t bytes);
/** Hands on each line that is whole, without its newline. One of more than COD_NEWS_MOST_LINE bytes comes in parts. */
void cod_lines_add(cod_lines *lines, const char *data, size_t bytes, cod_lines_reader reader, void *context);
/** Hands on what has no newline, and frees. */
void cod_lines_end(cod_lines *lines, cod_lines_reader reader, void *context);

#endif
