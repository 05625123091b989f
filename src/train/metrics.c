#include "train/metrics.h"

#include "core/log.h"
#include "core/whole.h"
#include "io/file.h"
#include "io/tensorboard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cod_metrics {
    int group;
    int64_t last_step;
    cod_file_log *log, *events;
    char events_path[4096];
    cod_tensorboard *board;
    const atomic_int *stop_signal; /**< may be NULL */
};

enum { METRICS_BYTES_MAX = 1 << 30 };

/** Refuses, before it is read, what could not be appended to: a link, a FIFO, another user's file. */
static cod_status check_log(const char *path)
{
    cod_file_log *log = NULL;
    const cod_status status = cod_file_log_open(path, &log);
    cod_file_log_close(log);
    return status;
}

/**
 * Rewrites a file of lines without those behind `from_step` or without a step.
 * @param[out] last_step  of the lines kept; -1 = none
 */
static cod_status drop_later_lines(const char *path, int64_t from_step, int64_t *last_step)
{
    void *data = NULL;
    size_t bytes = 0;
    *last_step = -1;
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(check_log(path));
    COD_TRY(cod_file_read(path, METRICS_BYTES_MAX, &data, &bytes));
    char *const text = data;
    size_t kept = 0;
    cod_status status = COD_OK;
    for (size_t at = 0; at < bytes && status == COD_OK;) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        const size_t length = newline ? (size_t)(newline - (text + at)) + 1 : bytes - at;
        cod_json_value *line = NULL;
        if (newline != NULL)
            status = cod_json_parse_line(text + at, length, &line);
        const double step = cod_json_get_number(cod_json_get(line, "step"), NAN);
        if (cod_is_whole(step, 0, (double)from_step)) {
            *last_step = (int64_t)step;
            memmove(text + kept, text + at, length);
            kept += length;
        }
        cod_json_free(line);
        at += length;
    }
    if (kept < bytes)
        COD_THEN(status, cod_file_write(path, text, kept));
    free(data);
    return status;
}

cod_status cod_metrics_open(const char *folder, int group, int64_t from_step, bool tensorboard, cod_metrics **out)
{
    char path[4096];
    int64_t last_event;
    cod_metrics *metrics = calloc(1, sizeof *metrics);
    COD_REQUIRE_MEMORY(metrics);
    metrics->group = group;
    snprintf(path, sizeof path, "%s/metrics.%d.jsonl", folder, group);
    cod_status status = drop_later_lines(path, from_step, &metrics->last_step);
    COD_THEN(status, cod_file_log_open(path, &metrics->log));
    snprintf(metrics->events_path, sizeof metrics->events_path, "%s/exchange.%d.jsonl", folder, group);
    COD_THEN(status, drop_later_lines(metrics->events_path, from_step, &last_event));
    snprintf(path, sizeof path, "%s/tensorboard/group%d", folder, group);
    if (tensorboard)
        COD_THEN(status, cod_tensorboard_open(path, &metrics->board));
    if (status != COD_OK) {
        cod_metrics_close(metrics);
        return status;
    }
    *out = metrics;
    return COD_OK;
}

void cod_metrics_close(cod_metrics *metrics)
{
    if (metrics == NULL)
        return;
    cod_file_log_close(metrics->log);
    cod_file_log_close(metrics->events);
    cod_tensorboard_close(metrics->board);
    free(metrics);
}

int64_t cod_metrics_last_step(const cod_metrics *metrics)
{
    return metrics->last_step;
}

/** Numbers written for a peer, in addition to its group. */
enum { PEER_NUMBERS = 12 };
static const char *const peer_keys[PEER_NUMBERS] = {"version",     "step",   "staleness_steps", "pulled",
                                                    "rejected",    "lost",   "pulled_bytes",    "age_s",
                                                    "bytes_per_s", "weight", "teacher_loss",    "student_loss"};

static void peer_numbers(const cod_peer_stats *peer, double out[PEER_NUMBERS])
{
    const bool held = peer->version > 0;
    const double numbers[PEER_NUMBERS] = {(double)peer->version,
                                          held ? (double)peer->step : NAN,
                                          held ? (double)peer->staleness_steps : NAN,
                                          (double)peer->pulled,
                                          (double)peer->rejected,
                                          (double)peer->lost,
                                          (double)peer->pulled_bytes,
                                          peer->age_s,
                                          peer->bytes_per_s,
                                          peer->weight,
                                          peer->teacher_loss,
                                          peer->student_loss};
    memcpy(out, numbers, sizeof numbers);
}

static void write_peers(cod_json *json, const cod_metrics_line *line)
{
    cod_json_open(json, "peers", '[');
    for (size_t i = 0; i < line->peer_count; i++) {
        double numbers[PEER_NUMBERS];
        peer_numbers(&line->peers[i], numbers);
        cod_json_open(json, NULL, '{');
        cod_json_integer(json, "group", line->peers[i].group);
        for (int k = 0; k < PEER_NUMBERS; k++)
            cod_json_number(json, peer_keys[k], numbers[k]);
        cod_json_close(json);
    }
    cod_json_close(json);
}

static cod_status show_peers(cod_tensorboard *board, const cod_metrics_line *line)
{
    for (size_t i = 0; i < line->peer_count; i++) {
        double numbers[PEER_NUMBERS];
        peer_numbers(&line->peers[i], numbers);
        for (int k = 0; k < PEER_NUMBERS; k++) {
            char tag[64];
            snprintf(tag, sizeof tag, "peer%d/%s", line->peers[i].group, peer_keys[k]);
            if (!isnan(numbers[k]))
                COD_TRY(cod_tensorboard_scalar(board, line->step, tag, (float)numbers[k]));
        }
    }
    return COD_OK;
}

/** Numbers of a line, as they are collected. */
typedef struct number_list {
    cod_metrics_number *items;
    size_t count;
} number_list;

static void add(number_list *list, const char *key, double value)
{
    snprintf(list->items[list->count].key, sizeof list->items[list->count].key, "%s", key);
    list->items[list->count++].value = value;
}

enum { FIXED_NUMBERS = 32 /**< at most, beside the task's figures and the recipe's */ };

static void collect(const cod_metrics_line *line, number_list *list)
{
    const cod_strategy_stats *s = &line->strategy;
    const bool has_teacher = s->teacher_step >= 0;
    add(list, "loss", line->loss);
    add(list, "task_loss", line->task_loss);
    add(list, "distill_loss", s->distill_loss);
    add(list, "distill_weight", s->distill_weight);
    add(list, "lr", line->rate);
    for (size_t i = 0; i < line->more_count; i++)
        add(list, line->more[i].key, line->more[i].value);
    add(list, "step_ms", line->step_ms);
    add(list, "images_per_s", line->images_per_s);
    for (int i = 0; i < line->task->figure_count; i++)
        add(list, line->task->figures[i].key, line->quality.values[i]);
    add(list, "teacher_step", has_teacher ? (double)s->teacher_step : NAN);
    add(list, "staleness_steps", has_teacher ? (double)s->staleness_steps : NAN);
    add(list, "pulled_bytes", (double)s->pulled_bytes);
    add(list, "published_bytes", (double)s->published_bytes);
    add(list, "rejected", (double)s->rejected);
    add(list, "merges", (double)s->merges);
    add(list, "exchange_share", line->exchange_share);
    add(list, "trained_s", line->trained_s);
    add(list, "processor_s", line->processor_s);
    add(list, "exchange_processor_s", s->exchange_processor_s);
    add(list, "intergroup_bytes", line->between_bytes);
    add(list, "intragroup_bytes", line->inside_bytes);
    if (s->pushes == 0)
        return;
    add(list, "pushes", (double)s->pushes);
    add(list, "push_staleness_mean", (double)s->push_staleness / (double)s->pushes);
    add(list, "push_staleness_max", (double)s->push_staleness_max);
}

static cod_status write_line(cod_metrics *metrics, const cod_metrics_line *line, const number_list *list)
{
    cod_json json = {0};
    char *text = NULL;
    cod_json_open(&json, NULL, '{');
    cod_json_integer(&json, "step", line->step);
    cod_json_integer(&json, "group", metrics->group);
    for (size_t i = 0; i < list->count; i++)
        cod_json_number(&json, list->items[i].key, list->items[i].value);
    if (line->strategy.entropy != NULL)
        cod_json_string(&json, "entropy", line->strategy.entropy);
    if (line->peer_count > 0)
        write_peers(&json, line);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    const cod_status status = cod_file_log_line(metrics->log, text);
    free(text);
    metrics->last_step = line->step;
    return status;
}

static cod_status show(cod_tensorboard *board, const cod_metrics_line *line, const number_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        char tag[80];
        snprintf(tag, sizeof tag, "train/%s", list->items[i].key);
        if (!isnan(list->items[i].value))
            COD_TRY(cod_tensorboard_scalar(board, line->step, tag, (float)list->items[i].value));
    }
    return show_peers(board, line);
}

void cod_metrics_set_stop_signal(cod_metrics *metrics, const atomic_int *stop_signal)
{
    metrics->stop_signal = stop_signal;
}

/** Takes the failure to write a line for a loss of that line alone if the run was asked to end: it comes to its end. */
static cod_status forgive(const cod_metrics *metrics, cod_status status)
{
    if (status != COD_ERR_IO || metrics->stop_signal == NULL || *metrics->stop_signal == 0)
        return status;
    cod_log_warn("the run is asked to end and goes on to its checkpoint without a line: %s", cod_error_message());
    return COD_OK;
}

cod_status cod_metrics_write(cod_metrics *metrics, const cod_metrics_line *line)
{
    number_list list = {calloc(FIXED_NUMBERS + COD_TASK_MAX_FIGURES + line->more_count, sizeof *list.items), 0};
    COD_REQUIRE_MEMORY(list.items);
    collect(line, &list);
    cod_status status = write_line(metrics, line, &list);
    if (metrics->board != NULL)
        COD_THEN(status, show(metrics->board, line, &list));
    free(list.items);
    return forgive(metrics, status);
}

cod_status cod_metrics_read_last(const char *folder, int group, cod_json_value **line)
{
    char path[4096];
    void *data = NULL;
    size_t bytes = 0;
    *line = NULL;
    snprintf(path, sizeof path, "%s/metrics.%d.jsonl", folder, group);
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(cod_file_read(path, METRICS_BYTES_MAX, &data, &bytes));
    const char *text = data;
    while (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    size_t begin = bytes;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    const cod_status status = bytes > begin ? cod_json_parse(text + begin, bytes - begin, line) : COD_OK;
    free(data);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status cod_metrics_event(cod_metrics *metrics, int64_t step, const cod_train_event *event)
{
    cod_json json = {0};
    char *text = NULL;
    if (metrics->events == NULL)
        COD_TRY(cod_file_log_open(metrics->events_path, &metrics->events));
    cod_json_open(&json, NULL, '{');
    cod_json_integer(&json, "step", step);
    cod_json_string(&json, "kind", event->kind);
    cod_json_integer(&json, "peer", event->peer);
    cod_json_integer(&json, "version", (int64_t)event->version);
    cod_json_integer(&json, "peer_step", event->peer_step);
    cod_json_number(&json, "alpha", event->alpha);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    const cod_status status = cod_file_log_line(metrics->events, text);
    free(text);
    return forgive(metrics, status);
}

cod_status cod_train_tell(const cod_train_context *context, const cod_train_event *event)
{
    return context->metrics != NULL ? cod_metrics_event(context->metrics, context->step + 1, event) : COD_OK;
}

cod_status cod_metrics_image(cod_metrics *metrics, int64_t step, const char *tag, int width, int height,
                             const void *png, size_t bytes)
{
    return metrics->board ? cod_tensorboard_image(metrics->board, step, tag, width, height, 3, png, bytes) : COD_OK;
}
