/* JSON, as summaries, metrics and safetensors headers have it. */
#include "fuzz.h"

#include "io/json.h"

fuzz_kind fuzz_kinds[] = {{"documents", 0}, {NULL, 0}};

/** Asks of each value what a reader may ask. @return how many there are */
static size_t visit(const cod_json_value *value, const cod_json_value *parent)
{
    size_t count = 1;
    const cod_json_kind kind = cod_json_kind_of(value);
    const char *text = cod_json_get_string(value, NULL);
    FUZZ_DEMAND((text != NULL) == (kind == COD_JSON_STRING));
    FUZZ_DEMAND(cod_json_kind_of(parent) != COD_JSON_OBJECT || cod_json_get(parent, cod_json_key(value)) == value);
    (void)cod_json_get_number(value, 0);
    (void)cod_json_get_bool(value, false);
    for (const cod_json_value *child = cod_json_first(value); child != NULL; child = cod_json_next(child))
        count += visit(child, value);
    return count;
}

static char *written(const cod_json_value *document, int indent)
{
    cod_json json = {.indent = indent};
    char *text = NULL;
    cod_json_copy(&json, NULL, document);
    FUZZ_DEMAND(cod_json_end(&json, &text) == COD_OK);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_json_value *document = NULL, *again = NULL;
    if (!fuzz_taken(cod_json_parse((const char *)input, bytes, &document)))
        return 0;
    fuzz_kinds[0].taken++;
    const size_t count = visit(document, NULL);
    FUZZ_DEMAND(count <= bytes);
    /* What is read can be written, and is read as the same. */
    char *text = written(document, 2);
    FUZZ_DEMAND(cod_json_parse(text, strlen(text), &again) == COD_OK);
    char *text_again = written(again, 2);
    FUZZ_DEMAND(strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    cod_json_free(document);
    cod_json_free(again);
    return 0;
}

int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
