/* compare.csv: the runs of compare.json as a table, a line each. */
#include "compare/compare_internal.h"

#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A field that is text, in quotes where it needs them (RFC 4180). */
static void write_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++)
        fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
    fputc('"', out);
}

/** A field that is a number, behind a comma; empty where it is not known. */
static void write_number(FILE *out, const cod_json_value *value)
{
    const double number = cod_json_get_number(value, NAN);
    fputc(',', out);
    if (!isnan(number))
        fprintf(out, "%.10g", number);
}

static void write_run(FILE *out, const cod_json_value *arm, const cod_json_value *run)
{
    static const char *const numbers[] = {"steps", "samples", "wall_s", "core_s", "trained_s", "quality"};
    const cod_json_value *bytes = cod_json_get(run, "bytes");
    write_text(out, cod_json_get_string(cod_json_get(arm, "name"), ""));
    fputc(',', out);
    write_text(out, cod_json_get_string(cod_json_get(arm, "strategy"), ""));
    write_number(out, cod_json_get(run, "seed"));
    fputc(',', out);
    write_text(out, cod_json_get_string(cod_json_get(run, "rate"), ""));
    fputc(',', out);
    write_text(out, cod_json_get_string(cod_json_get(run, "state"), ""));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        write_number(out, cod_json_get(run, numbers[i]));
    write_number(out, cod_json_get(bytes, "between"));
    write_number(out, cod_json_get(bytes, "inside"));
    write_number(out, cod_json_get(run, "final_quality"));
    fputc('\n', out);
}

static void write_all(FILE *out, const cod_json_value *comparison)
{
    const char *metric = cod_json_get_string(cod_json_get(cod_json_get(comparison, "metric"), "name"), "quality");
    fputs("arm,strategy,seed,rate,state,steps,samples,wall_s,core_s,trained_s,groups_mean_", out);
    write_text(out, metric);
    fputs(",bytes_between,bytes_inside,final_", out);
    write_text(out, metric);
    fputc('\n', out);
    for (const cod_json_value *arm = cod_json_first(cod_json_get(comparison, "arms")); arm != NULL;
         arm = cod_json_next(arm))
        for (const cod_json_value *run = cod_json_first(cod_json_get(arm, "runs")); run != NULL;
             run = cod_json_next(run))
            write_run(out, arm, run);
}

cod_status cod_compare_write_csv(const char *folder, const char *comparison)
{
    cod_json_value *document = NULL;
    char path[COD_COMPARE_PATH + 16], *text = NULL;
    size_t bytes = 0;
    COD_TRY(cod_json_parse(comparison, strlen(comparison), &document));
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL)
        write_all(out, document);
    cod_json_free(document);
    if (out == NULL || fclose(out) != 0) {
        free(text);
        return cod_fail(COD_ERR_MEMORY, "no memory for compare.csv");
    }
    snprintf(path, sizeof path, "%s/compare.csv", folder);
    const cod_status status = cod_file_write(path, text, bytes);
    free(text);
    return status;
}
