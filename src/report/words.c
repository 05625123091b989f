/* The verdict as plain text, for a terminal: the section of the page without its markup. */
#include "report/report.h"
#include "report/report_internal.h"

#include "core/shown.h"

#include <stdlib.h>
#include <string.h>

/** What stands for a piece of markup that begins at `at`; NULL = it is text. @param[out] length  of the markup */
static const char *plain(const char *at, size_t *length)
{
    static const char *const pairs[][2] = {
        {"&nbsp;", " "},  {"&lt;", "<"},    {"&gt;", ">"},     {"&amp;", "&"},    {"&quot;", "\""},
        {"</span>", " "}, {"</p>\n", "\n"}, {"</li>\n", "\n"}, {"</h3>\n", "\n"}, {"</summary>\n", "\n"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        *length = strlen(pairs[i][0]);
        if (strncmp(at, pairs[i][0], *length) == 0)
            return pairs[i][1];
    }
    const char *end = at[0] == '<' ? strchr(at, '>') : NULL;
    *length = 1;
    if (end == NULL)
        return NULL;
    *length = (size_t)(end - at) + 1;
    *length += at[*length] == '\n';
    return "";
}

/** Makes a text from outside one that a terminal may show. */
static cod_status show(cod_arena *arena, const char **text)
{
    const char *shown = cod_arena_strdup(arena, cod_shown(*text).text);
    COD_REQUIRE_MEMORY(shown);
    *text = shown;
    return COD_OK;
}

/** All texts that the verdict takes from compare.json. */
static cod_status show_texts(cod_report_data *data)
{
    for (size_t i = 0; i < data->arm_count; i++)
        COD_TRY(show(&data->arena, &data->arms[i].name));
    for (size_t i = 0; i < data->rate_count; i++)
        COD_TRY(show(&data->arena, &data->rates[i].name));
    COD_TRY(show(&data->arena, &data->metric.label));
    COD_TRY(show(&data->arena, &data->metric.unit));
    return show(&data->arena, &data->budget);
}

static void write_plain(const char *markup, FILE *out)
{
    const char *heading = strstr(markup, "</h2>");
    for (const char *at = heading != NULL ? heading : markup; *at != '\0';) {
        size_t length = 1;
        const char *text = plain(at, &length);
        if (text != NULL)
            fputs(text, out);
        else
            fputc(*at, out);
        at += length;
    }
}

cod_status cod_report_print_verdict(const char *folder, FILE *out)
{
    cod_report_data data;
    char *markup = NULL;
    size_t bytes = 0;
    cod_status status = cod_report_data_read(folder, &data);
    COD_THEN(status, show_texts(&data));
    if (status == COD_OK) {
        cod_report report = {
            .data = &data, .folder = folder, .arena = &data.arena, .target = cod_report_find_target(&data)};
        report.out = open_memstream(&markup, &bytes);
        if (report.out == NULL)
            status = cod_fail(COD_ERR_MEMORY, "no memory for the verdict");
        COD_THEN(status, cod_report_verdict(&report));
        if (report.out != NULL && fclose(report.out) != 0)
            COD_THEN(status, cod_fail(COD_ERR_MEMORY, "no memory for the verdict"));
        if (status == COD_OK)
            write_plain(markup, out);
        free(markup);
    }
    cod_report_data_clear(&data);
    return status;
}
