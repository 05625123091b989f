#include "exchange/replay.h"

#include "core/whole.h"
#include "io/file.h"
#include "io/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** One line; those of merges follow from the others and are passed over. */
static cod_status read_event(const char *line, size_t bytes, cod_exchange_event *event, bool *wanted)
{
    cod_json_value *document = NULL;
    COD_TRY(cod_json_parse(line, bytes, &document));
    const char *kind = cod_json_get_string(cod_json_get(document, "kind"), "");
    const double step = cod_json_get_number(cod_json_get(document, "step"), NAN);
    const double group = cod_json_get_number(cod_json_get(document, "peer"), NAN);
    const double version = cod_json_get_number(cod_json_get(document, "version"), NAN);
    const bool publication = strcmp(kind, "publish") == 0;
    const bool good = cod_is_whole(step, 0, COD_WHOLE_MOST) && cod_is_whole(group, 0, INT_MAX) &&
                      cod_is_whole(version, 1, COD_WHOLE_MOST);
    *wanted = publication || strcmp(kind, "switch") == 0;
    if (good)
        *event = (cod_exchange_event){
            .step = (int64_t)step, .group = publication ? -1 : (int)group, .version = (uint64_t)version};
    cod_json_free(document);
    return good ? COD_OK : cod_fail(COD_ERR_FORMAT, "step, peer or version is missing, too large or no whole number");
}

static cod_status read_lines(const char *text, cod_exchange_event *events, size_t *count)
{
    int64_t number = 1;
    for (const char *end; *text != '\0'; text = end + (*end == '\n'), number++) {
        bool wanted;
        end = strchr(text, '\n');
        if (end == NULL)
            end = text + strlen(text);
        const cod_status status = read_event(text, (size_t)(end - text), &events[*count], &wanted);
        if (status != COD_OK)
            return cod_fail_prefix(status, "line %lld", (long long)number);
        *count += wanted;
    }
    return COD_OK;
}

cod_status cod_replay_read(const char *folder, int group, cod_exchange_event **events, size_t *count)
{
    char path[4096];
    void *text = NULL;
    size_t bytes, lines = 1;
    snprintf(path, sizeof path, "%s/exchange.%d.jsonl", folder, group);
    COD_TRY(cod_file_read(path, SIZE_MAX / 2, &text, &bytes));
    for (size_t i = 0; i < bytes; i++)
        lines += ((const char *)text)[i] == '\n';
    *count = 0;
    *events = calloc(lines, sizeof **events);
    cod_status status = *events != NULL ? read_lines(text, *events, count)
                                        : cod_fail(COD_ERR_MEMORY, "out of memory for %zu events", lines);
    free(text);
    if (status == COD_OK)
        return COD_OK;
    free(*events);
    *events = NULL;
    return cod_fail_prefix(status, "%s", path);
}
