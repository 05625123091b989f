/* The page of one training run: its state, quality, losses, teachers, speed and pictures, also while it goes on. */
#include "report/report.h"

#include "report/report_internal.h"
#include "report/run_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 400, MOST_LINES = 12, MOST_LOSSES = 24 };

/** A number of a row, NaN = it has none. @param peer  a peer's entry, or NULL */
typedef double (*reader)(const cod_json_value *row, const cod_json_value *peer, const char *key);

/** A plot of a line for each group, or for each peer of each group. */
typedef struct plot {
    const char *key, *title, *y_label;
    reader read;
    bool of_peers;
    const char *baseline, *baseline_name; /**< key of a line for all groups, and its name; NULL = none */
} plot;

static double number_of(const cod_json_value *row, const cod_json_value *peer, const char *key)
{
    return cod_json_get_number(cod_json_get(peer != NULL ? peer : row, key), NAN);
}

/** How much less a teacher's loss was than the student's, on the same batches. */
static double gain_of(const cod_json_value *row, const cod_json_value *peer, const char *key)
{
    (void)key;
    return number_of(row, peer, "student_loss") - number_of(row, peer, "teacher_loss");
}

static const cod_json_value *peer_of(const cod_json_value *row, int group)
{
    const cod_json_value *peers = cod_json_get(row, "peers");
    for (const cod_json_value *peer = cod_json_first(peers); peer != NULL; peer = cod_json_next(peer))
        if (cod_json_get_number(cod_json_get(peer, "group"), -1) == group)
            return peer;
    return NULL;
}

/**
 * Adds a group's line, or that of one of its peers, where it has points. At most MOST_POINTS of many stay, the last
 * among them.
 */
static cod_status add_line(cod_report *report, const plot *p, const cod_run_group *group, int peer, cod_line *lines,
                           size_t *count)
{
    double *x = cod_arena_alloc(report->arena, (2 * group->count + 2) * sizeof *x), *y = x + group->count + 1;
    size_t points = 0, kept = 0;
    if (*count == MOST_LINES)
        return COD_OK;
    COD_REQUIRE_MEMORY(x);
    for (size_t i = 0; i < group->count; i++) {
        const cod_json_value *entry = p->of_peers ? peer_of(group->rows[i], peer) : NULL;
        const double value = p->of_peers && entry == NULL ? NAN : p->read(group->rows[i], entry, p->key);
        if (!(fabs(value) < 1e18))
            continue;
        x[points] = number_of(group->rows[i], NULL, "step");
        y[points++] = value;
    }
    if (points == 0)
        return COD_OK;
    const size_t stride = points / MOST_POINTS + 1;
    for (size_t i = (points - 1) % stride; i < points; i += stride, kept++)
        x[kept] = x[i], y[kept] = y[i];
    lines[*count] = (cod_line){.name = p->of_peers ? cod_report_text(report, "group %d from %d", group->group, peer)
                                                   : cod_report_text(report, "group %d", group->group),
                               .style = *count,
                               .count = kept,
                               .x = x,
                               .y = y};
    (*count)++;
    return COD_OK;
}

/**
 * Adds what the trivial baseline reaches on the same held-out data, from the first step on: the rows of one group have
 * it; those of older runs do not, but their summary does.
 */
static cod_status add_baseline(cod_report *report, const plot *p, cod_line *lines, size_t *count)
{
    const cod_run_data *run = report->run;
    const cod_run_group *group = NULL;
    size_t rows = 0, points = 0;
    for (size_t i = 0; i < run->group_count; i++)
        rows = run->groups[i].count > rows ? run->groups[i].count : rows;
    double *x = cod_arena_alloc(report->arena, 2 * (rows + 2) * sizeof *x), *y = x + rows + 2;
    COD_REQUIRE_MEMORY(x);
    for (size_t i = 0; i < run->group_count && points == 0; i++) {
        group = &run->groups[i];
        for (size_t k = 0; k < group->count; k++) {
            const double value = number_of(group->rows[k], NULL, p->baseline);
            if (!(fabs(value) < 1e18))
                continue;
            if (points == 0)
                x[points] = 0, y[points++] = value;
            x[points] = number_of(group->rows[k], NULL, "step");
            y[points++] = value;
        }
    }
    const double end = cod_run_number(run, "steps"), value = cod_run_number(run, p->baseline);
    if (points == 0 && !isnan(value) && end > 0) {
        x[0] = 0, x[1] = end;
        y[0] = y[1] = value;
        points = 2;
    }
    if (points > 0)
        lines[(*count)++] = (cod_line){.name = p->baseline_name, .style = *count, .count = points, .x = x, .y = y};
    return COD_OK;
}

/**
 * A plot, or nothing where no row has its number.
 *
 * @param[in,out] any  whether the section has one; the first opens it
 */
static cod_status add_plot(cod_report *report, const plot *p, const char *section, const char *note, bool *any)
{
    const cod_run_data *run = report->run;
    cod_line lines[MOST_LINES + 1];
    size_t count = 0;
    for (size_t i = 0; i < run->group_count; i++) {
        for (size_t k = 0; p->of_peers && k < run->group_count; k++)
            if (k != i)
                COD_TRY(add_line(report, p, &run->groups[i], run->groups[k].group, lines, &count));
        if (!p->of_peers)
            COD_TRY(add_line(report, p, &run->groups[i], -1, lines, &count));
    }
    if (count == 0)
        return COD_OK;
    if (p->baseline != NULL)
        COD_TRY(add_baseline(report, p, lines, &count));
    if (!*any) {
        fprintf(report->out, "<section>\n<h2>%s</h2>\n", section);
        if (note != NULL)
            fprintf(report->out, "<p class=\"note\">%s</p>\n", note);
        fputs("<div class=\"figures\">\n", report->out);
    }
    *any = true;
    const cod_line_plot line_plot = {.title = p->title,
                                     .x_label = "steps",
                                     .y_label = p->y_label,
                                     .lines = lines,
                                     .count = count,
                                     .few_marks = true,
                                     .x_low = 0,
                                     .y_low = NAN,
                                     .y_high = NAN};
    return cod_report_add_line_plot(report, &line_plot, "", "");
}

static cod_status add_plots(cod_report *report, const plot *plots, size_t count, const char *section, const char *note)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        COD_TRY(add_plot(report, &plots[i], section, note, &any));
    if (any)
        fputs("</div>\n</section>\n", report->out);
    return COD_OK;
}

enum { MOST_QUALITIES = 96 };

/** A figure's plot, and one for each of data.val_sets, whose numbers rows have as "psnr_y.set5". */
static void add_sets(cod_report *report, const plot *figure, plot *plots, size_t *count)
{
    const cod_run_group *first = &report->run->groups[0];
    const cod_json_value *row = first->count > 0 ? first->rows[first->count - 1] : NULL;
    const size_t length = strlen(figure->key);
    plots[(*count)++] = *figure;
    for (const cod_json_value *v = cod_json_first(row); v != NULL && *count < MOST_QUALITIES; v = cod_json_next(v)) {
        const char *key = cod_json_key(v);
        if (key == NULL || strncmp(key, figure->key, length) != 0 || key[length] != '.')
            continue;
        plots[*count] = *figure;
        plots[*count].key = key;
        plots[*count].baseline = NULL; /* which is of the held-out data */
        plots[(*count)++].title = cod_report_text(report, "%s: %s", figure->title, key + length + 1);
    }
}

static cod_status write_quality(cod_report *report)
{
    static const char note[] =
        "Evaluations on the way may be of fewer held-out items than that at the end; the line of "
        "bicubic interpolation, or of the most frequent class, is on the same ones.";
    plot *plots = cod_arena_alloc(report->arena, (MOST_QUALITIES + cod_run_figure_count) * sizeof *plots);
    size_t count = 0;
    COD_REQUIRE_MEMORY(plots);
    for (size_t i = 0; i < cod_run_figure_count; i++) {
        const cod_run_figure *f = &cod_run_figures[i];
        const plot figure = {f->key, f->title, f->y_label, number_of, false, f->baseline, f->baseline_name};
        add_sets(report, &figure, plots, &count);
    }
    return add_plots(report, plots, count, "Quality on held-out data", note);
}

/** The losses of a recipe that has several, by the keys "loss.NAME" of a row; or else its only loss. */
static cod_status write_losses(cod_report *report)
{
    plot plots[MOST_LOSSES + 1] = {
        {"task_loss", "Loss of the task", "mean since the row before", number_of, false, NULL, NULL}};
    const cod_run_group *first = &report->run->groups[0];
    size_t count = 0;
    const cod_json_value *row = first->count > 0 ? first->rows[first->count - 1] : NULL;
    for (const cod_json_value *v = cod_json_first(row); v != NULL && count < MOST_LOSSES; v = cod_json_next(v)) {
        const char *key = cod_json_key(v);
        if (key == NULL || strncmp(key, "loss.", 5) != 0)
            continue;
        plots[count++] = (plot){
            key, cod_report_text(report, "Loss: %s", key + 5), "mean since the row before", number_of, false, NULL,
            NULL};
    }
    return add_plots(report, plots, count > 0 ? count : 1, "Losses", NULL);
}

static cod_status write_teachers(cod_report *report)
{
    static const plot plots[] = {
        {"staleness_steps", "Staleness", "steps behind; negative: ahead", number_of, true, NULL, NULL},
        {"gain", "Gain", "student's loss less the teacher's", gain_of, true, NULL, NULL},
        {"distill_loss", "Disagreement", "distance from the teachers' predictions", number_of, false, NULL, NULL},
        {"weight", "Weight of each teacher's loss", "in the student's", number_of, true, NULL, NULL},
        {"merges", "Merges", "of a peer's weights, so far", number_of, false, NULL, NULL},
        {"intergroup_bytes", "Traffic between groups", "bytes so far", number_of, false, NULL, NULL},
    };
    static const char note[] = "\"Group 0 from 1\" is what group 0 learned from the checkpoints that it pulled from "
                               "group 1. Where the gain is above 0, the teacher was better than its student.";
    return add_plots(report, plots, sizeof plots / sizeof plots[0], "Exchange between groups", note);
}

static cod_status write_speed(cod_report *report)
{
    static const plot plots[] = {
        {"step_ms", "Time of a step", "ms", number_of, false, NULL, NULL},
        {"images_per_s", "Throughput", "samples a second", number_of, false, NULL, NULL},
        {"lr", "Learning rate", "", number_of, false, NULL, NULL},
    };
    return add_plots(report, plots, sizeof plots / sizeof plots[0], "Speed and learning rate", NULL);
}

/** The samples of the first and the last step: "step-0000250-group-0-1.png". */
static void write_pictures(cod_report *report)
{
    const cod_string_list *names = &report->run->samples;
    enum { STEP_LENGTH = sizeof "step-0000000" - 1 };
    if (names->count == 0)
        return;
    fputs("<section>\n<h2>Pictures while training</h2>\n<p class=\"note\">Held-out pictures after the first "
          "and the latest evaluation, from left to right: the small one, bicubic, the model's, and the truth.</p>\n",
          report->out);
    for (size_t end = 0; end < 2; end++) {
        const char *step = names->items[end == 0 ? 0 : names->count - 1];
        if (end == 1 && strncmp(step, names->items[0], STEP_LENGTH) == 0)
            break;
        fprintf(report->out, "<h3>Step %d</h3>\n", atoi(step + 5));
        for (size_t i = 0; i < names->count; i++) {
            if (strncmp(names->items[i], step, STEP_LENGTH) != 0)
                continue;
            fputs("<figure class=\"picture\">", report->out);
            cod_report_embed(report, cod_report_text(report, "samples/%s", names->items[i]), names->items[i]);
            fputs("<figcaption>", report->out);
            cod_markup(report->out, names->items[i] + STEP_LENGTH + 1);
            fputs("</figcaption></figure>\n", report->out);
        }
    }
    fputs("</section>\n", report->out);
}

static double last_step(const cod_run_data *run)
{
    double step = 0;
    for (size_t i = 0; i < run->group_count; i++) {
        const cod_run_group *group = &run->groups[i];
        if (group->count > 0)
            step = fmax(step, number_of(group->rows[group->count - 1], NULL, "step"));
    }
    return step;
}

/** How far the run has come, in one line. */
static void write_state(cod_report *report)
{
    const cod_run_data *run = report->run;
    if (run->summary == NULL) {
        fprintf(report->out, "<p class=\"about\">Not finished: step %.0f so far.</p>\n", last_step(run));
        return;
    }
    const char *why = cod_run_text(run, "ended_because");
    fprintf(report->out, "<p class=\"about\">Finished after %.0f steps", cod_run_number(run, "steps"));
    if (why[0] != '\0') {
        fputs(", early: ", report->out);
        cod_markup(report->out, why);
    }
    fputs(".", report->out);
    if (cod_run_text(run, "final_is")[0] != '\0') {
        fputs(" final.safetensors is ", report->out);
        cod_markup(report->out, cod_run_text(run, "final_is"));
        fputs(".", report->out);
    }
    fputs("</p>\n", report->out);
}

static void write_making(cod_report *report)
{
    const cod_run_data *run = report->run;
    fputs("<section>\n<h2>How it was made</h2>\n<dl>\n", report->out);
    cod_report_fact(report, "Recipe", cod_run_text(run, "recipe"));
    cod_report_fact(report, "Precision", cod_run_text(run, "precision"));
    cod_report_fact(report, "Codistill", cod_run_text(run, "version"));
    cod_report_end_making(report, run->config);
}

static cod_status write_sections(cod_report *report)
{
    const char *slash = strrchr(report->folder, '/'), *name = cod_run_text(report->run, "name");
    const char *folder_name = slash != NULL && slash[1] != '\0' ? slash + 1 : report->folder;
    cod_report_head(report, name[0] != '\0' ? name : folder_name);
    write_state(report);
    cod_report_run_facts(report);
    cod_report_write_crops(
        report, cod_json_get(report->run->crops, "crops"), "crops", "Held-out pictures",
        "The liveliest part of some held-out pictures, enlarged by the final model, each pixel shown "
        "as a square; PSNR of that part, higher is closer to the truth.");
    COD_TRY(cod_report_photographs(report));
    if (report->run->group_count * (report->run->group_count - 1) > MOST_LINES)
        fprintf(report->out,
                "<p class=\"note\">Plots show the first %d groups, or pairs of a group and its teacher.</p>\n",
                MOST_LINES);
    COD_TRY(write_quality(report));
    COD_TRY(write_losses(report));
    COD_TRY(write_teachers(report));
    COD_TRY(write_speed(report));
    write_pictures(report);
    write_making(report);
    return COD_OK;
}

cod_status cod_report_write_run(const char *folder, int refresh_s, bool *finished)
{
    cod_run_data run;
    cod_status status = cod_run_data_read(folder, &run);
    *finished = run.summary != NULL;
    if (status == COD_OK) {
        cod_report report = {
            .folder = folder, .arena = &run.arena, .run = &run, .refresh_s = *finished ? 0 : refresh_s};
        status = cod_report_write_page(&report, write_sections);
    }
    cod_run_data_clear(&run);
    return status;
}
