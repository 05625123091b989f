/* Results of an evaluation as JSON and as a table. */
#include "core/shown.h"
#include "data/perceptual_index.h"
#include "infer/evaluate.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void evaluated_json(cod_json *json, unsigned metrics, const cod_evaluated *image)
{
    cod_evaluated own = *image;
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++)
        if ((metrics & f->metric) != 0)
            cod_json_number(json, f->key, *cod_evaluated_value(f, &own));
}

cod_status cod_evaluation_json(const cod_evaluation *evaluation, char **text)
{
    cod_json json = {.indent = 2};
    cod_json_open(&json, NULL, '{');
    cod_json_open(&json, "images", '[');
    for (size_t i = 0; i < evaluation->count; i++) {
        cod_json_open(&json, NULL, '{');
        cod_json_string(&json, "file", evaluation->images[i].file);
        evaluated_json(&json, evaluation->metrics, &evaluation->images[i]);
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_open(&json, "mean", '{');
    evaluated_json(&json, evaluation->metrics, &evaluation->mean);
    cod_json_close(&json);
    if ((evaluation->metrics & COD_METRIC_PI) != 0) {
        const int region = cod_pirm_region(evaluation->mean.rmse_y);
        cod_json_string(&json, "pi_is", cod_pi_is(evaluation->pi_with_ma));
        if (region > 0)
            cod_json_integer(&json, "pirm_region", region);
        else
            cod_json_null(&json, "pirm_region");
    }
    if ((evaluation->metrics & COD_METRIC_LPIPS) != 0)
        cod_json_string(&json, "lpips_is", evaluation->lpips_weighted ? "weighted" : "unweighted");
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

static void table_head(FILE *stream, int width, unsigned metrics)
{
    fprintf(stream, "%-*s", width, "file");
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++)
        if ((metrics & f->metric) != 0)
            fprintf(stream, "  %*s", f->width, f->label);
    fputc('\n', stream);
}

static void table_row(FILE *stream, int width, unsigned metrics, const cod_evaluated *image)
{
    cod_evaluated own = *image;
    fprintf(stream, "%-*s", width, cod_shown(image->file).text);
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++) {
        if ((metrics & f->metric) == 0)
            continue;
        const double value = *cod_evaluated_value(f, &own);
        if (isnan(value))
            fprintf(stream, "  %*s", f->width, "-");
        else
            fprintf(stream, "  %*.*f", f->width, f->digits, value);
    }
    fputc('\n', stream);
}

/** A line about the figures and the number of pictures. */
static void table_notes(FILE *stream, const cod_evaluation *evaluation)
{
    const double rmse = evaluation->mean.rmse_y;
    const int region = cod_pirm_region(rmse);
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++) {
        size_t without = 0;
        for (size_t i = 0; i < evaluation->count; i++)
            without += isnan(*cod_evaluated_value(f, &evaluation->images[i])) ? 1 : 0;
        if ((evaluation->metrics & f->metric) != 0 && without > 0 && strcmp(f->key, "niqe_truth") != 0)
            fprintf(stream, "%s: without %zu of %zu pictures, which are too small for it or flat\n", f->label, without,
                    evaluation->count);
    }
    if ((evaluation->metrics & COD_METRIC_PI) != 0) {
        fprintf(stream, "PI: %s\nRMSE of all pictures %.4f: ", cod_pi_is(evaluation->pi_with_ma), rmse);
        if (region > 0)
            fprintf(stream, "region %d of PIRM 2018\n", region);
        else
            fprintf(stream, "in none of PIRM 2018's regions, which end at 16\n");
    }
    if ((evaluation->metrics & COD_METRIC_LPIPS) != 0)
        fprintf(stream, "LPIPS: on SqueezeNet 1.1, %s\n",
                evaluation->lpips_weighted ? "with linear weights"
                                           : "unweighted: every channel has weight 1, as no linear weights were given");
}

cod_status cod_evaluation_table(const cod_evaluation *evaluation, char **text)
{
    size_t bytes = 0, width = 4;
    for (size_t i = 0; i < evaluation->count; i++) {
        const size_t length = strlen(cod_shown(evaluation->images[i].file).text);
        width = length > width ? length : width;
    }
    FILE *stream = open_memstream(text, &bytes);
    COD_REQUIRE_MEMORY(stream);
    table_head(stream, (int)width, evaluation->metrics);
    for (size_t i = 0; i < evaluation->count; i++)
        table_row(stream, (int)width, evaluation->metrics, &evaluation->images[i]);
    table_row(stream, (int)width, evaluation->metrics, &evaluation->mean);
    table_notes(stream, evaluation);
    const bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(*text);
        return cod_fail(COD_ERR_MEMORY, "out of memory for the table");
    }
    return COD_OK;
}
