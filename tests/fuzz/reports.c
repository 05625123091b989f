/*
 * Pages of comparisons and of training runs, from files that others may have written.
 *
 * An input is a byte and text. Byte 0: bit 0 the text is compare.json (0), or the metrics of two groups, summary.json
 * and config.yaml of a run, each ended by a form feed (1).
 */
#include "fuzz.h"

#include "io/file.h"
#include "report/report.h"

#include <ctype.h>

enum { RUN = 1, PARTS = 4 };

fuzz_kind fuzz_kinds[] = {{"comparisons", 0}, {"runs", 0}, {"plots", 0}, {NULL, 0}};

/** Files of the folder; those of no length are absent. */
static struct part {
    const char *name, *text;
    size_t bytes;
} parts[] = {{"metrics.0.jsonl", NULL, 0},
             {"metrics.1.jsonl", NULL, 0},
             {"summary.json", NULL, 0},
             {"config.yaml", NULL, 0},
             {"compare.json", NULL, 0}};

static const struct part *part_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].name, name) == 0 && parts[i].bytes > 0)
            return &parts[i];
    return NULL;
}

cod_status __wrap_cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes);
cod_status __wrap_cod_file_write(const char *path, const void *data, size_t bytes);
cod_status __wrap_cod_folder_list(const char *path, const char *prefix, const char *suffix, cod_arena *arena,
                                  cod_string_list *names);
bool __wrap_cod_file_exists(const char *path);
bool __wrap_cod_report_png_available(void);

/* In place of the folder, and of the library that draws plots. */
cod_status __wrap_cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes)
{
    const struct part *part = part_of(path);
    if (part == NULL)
        return cod_fail(COD_ERR_FORMAT, "there is no such file");
    char *copy = malloc(part->bytes + 1);
    FUZZ_DEMAND(copy != NULL && part->bytes <= limit_bytes);
    memcpy(copy, part->text, part->bytes);
    copy[part->bytes] = '\0';
    *data = copy;
    *bytes = part->bytes;
    return COD_OK;
}

cod_status __wrap_cod_folder_list(const char *path, const char *prefix, const char *suffix, cod_arena *arena,
                                  cod_string_list *names)
{
    *names = (cod_string_list){.items = cod_arena_alloc(arena, 2 * sizeof(char *))};
    FUZZ_DEMAND(path[0] != '\0' && suffix[0] != '\0' && names->items != NULL);
    for (size_t i = 0; i < 2 && strcmp(prefix, "metrics.") == 0; i++)
        if (parts[i].bytes > 0)
            names->items[names->count++] = parts[i].name;
    return COD_OK;
}

bool __wrap_cod_file_exists(const char *path)
{
    return part_of(path) != NULL;
}

bool __wrap_cod_report_png_available(void)
{
    return false;
}

/** Whether a browser takes what begins here for an element of ours. @return behind it */
static const char *check_element(const char *at)
{
    static const char *const names[] = {"b",     "body",    "br",  "circle",     "code",    "dd",    "defs", "details",
                                        "div",   "dl",      "dt",  "figcaption", "figure",  "h1",    "h2",   "h3",
                                        "head",  "html",    "img", "li",         "line",    "main",  "meta", "p",
                                        "path",  "pattern", "pre", "rect",       "section", "small", "span", "strong",
                                        "style", "summary", "svg", "table",      "tbody",   "td",    "text", "th",
                                        "thead", "title",   "tr",  "ul",         "g",       "tspan", "a"};
    if (strncmp(at, "<!DOCTYPE html>", 15) == 0 || strncmp(at, "<!doctype html>", 15) == 0)
        return at + 15;
    const char *name = at + 1 + (at[1] == '/');
    size_t length = 0, known = 0;
    while (isalnum((unsigned char)name[length]))
        length++;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        known += strlen(names[i]) == length && strncmp(names[i], name, length) == 0;
    if (known != 1)
        fprintf(stderr, "%.80s\n", at);
    FUZZ_DEMAND(known == 1);
    for (at = name + length; *at != '>';) {
        at += strspn(at, " \n/");
        const size_t word = strcspn(at, " \n=>\"'<");
        FUZZ_DEMAND(word > 0 || *at == '>');
        FUZZ_DEMAND(word < 2 || strncmp(at, "on", 2) != 0); /* no script */
        at += word;
        if (*at == '=') {
            FUZZ_DEMAND(at[1] == '"');
            at = strchr(at + 2, '"');
            FUZZ_DEMAND(at != NULL);
            at++;
        }
    }
    return at + 1;
}

/** The page is whole, and nothing of the input is more than text in it. */
cod_status __wrap_cod_file_write(const char *path, const void *data, size_t bytes)
{
    static const char end[] = "</html>\n";
    char *page = malloc(bytes + 1);
    FUZZ_DEMAND(page != NULL && strstr(path, "report.html") != NULL && bytes >= sizeof end);
    memcpy(page, data, bytes);
    page[bytes] = '\0';
    FUZZ_DEMAND(strlen(page) == bytes && strcmp(page + bytes - (sizeof end - 1), end) == 0);
    for (const char *at = strchr(page, '<'); at != NULL; at = strchr(at, '<'))
        at = check_element(at);
    fuzz_kinds[2].taken += strstr(page, "<svg") != NULL;
    free(page);
    return COD_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    bool finished;
    if (bytes < 1)
        return 0;
    const char *text = (const char *)input + 1, *end = (const char *)input + bytes;
    for (size_t i = 0; i <= PARTS; i++)
        parts[i].bytes = 0;
    if ((input[0] & RUN) == 0) {
        parts[PARTS].text = text;
        parts[PARTS].bytes = bytes - 1;
        fuzz_kinds[0].taken += (size_t)fuzz_taken(cod_report_write("folder"));
        return 0;
    }
    for (size_t i = 0; i < PARTS && text < end; i++) {
        const char *feed = memchr(text, '\f', (size_t)(end - text));
        parts[i].text = text;
        parts[i].bytes = (size_t)((feed != NULL ? feed : end) - text);
        text = feed != NULL ? feed + 1 : end;
    }
    if (parts[0].bytes + parts[1].bytes > 0) /* else COD_ERR_IO: the run has not begun */
        fuzz_kinds[1].taken += (size_t)fuzz_taken(cod_report_write_run("folder", 5, &finished));
    return 0;
}

int fuzz_write(const char *folder)
{
    static const char comparison[] =
        "\0{\"format\":\"codistill-compare-1\",\"title\":\"A "
        "<b>title</b>\",\"config\":\"it's.yaml\",\"config_text\":\"a: "
        "1\\n\",\"created\":\"2026-11-28T10:00:00Z\",\"version\":\"1\",\"machine\":\"2 "
        "cores\",\"budget\":{\"text\":\"10 s\"},"
        "\"metric\":{\"name\":\"accuracy\",\"label\":\"Accuracy\",\"unit\":\"%\",\"higher_is_better\":true,\"digits\":"
        "2},"
        "\"rates\":[\"none\",\"10mbit\"],\"baseline\":\"a\",\"arms\":[{\"name\":\"a\",\"strategy\":\"single\","
        "\"groups\":1,"
        "\"ranks\":1,\"set\":[\"x=1\"],\"runs\":[{\"seed\":1,\"rate\":\"none\",\"state\":\"finished\",\"steps\":20,"
        "\"samples\":640,\"wall_s\":2,\"trained_s\":1.5,\"quality\":91.5,\"bytes\":{\"inside\":0,\"between\":0},"
        "\"step_ms\":{\"total\":5,\"compute\":4},\"metrics\":{\"accuracy\":91.5},\"curve\":[{\"step\":10,\"time_s\":1,"
        "\"bytes_between\":0,\"quality\":80},{\"step\":20,\"time_s\":2,\"bytes_between\":0,\"quality\":91.5}],"
        "\"reliability\":[{\"confidence\":0.9,\"accuracy\":0.8,\"count\":50}]},{\"seed\":2,\"state\":\"failed\","
        "\"message\":\"no <memory>\",\"folder\":\"a-2\"}]},{\"name\":\"b & "
        "\\\"c\\\"\",\"strategy\":\"codistill\",\"groups\":2,"
        "\"ranks\":2,\"runs\":[{\"seed\":1,\"rate\":\"10mbit\",\"state\":\"finished\",\"quality\":93,\"bytes\":{"
        "\"between\":"
        "1000},\"curve\":[{\"step\":10,\"quality\":85,\"bytes_between\":500}],\"disagreement\":[{\"step\":10,"
        "\"percent\":3}]},"
        "{\"seed\":2,\"rate\":\"none\",\"state\":\"finished\",\"quality\":92}]}],\"churn\":{\"between "
        "seeds\":[{\"arm\":\"a\","
        "\"percent\":4}]}}",
                      run[] =
                          "\1{\"step\":10,\"time_s\":1,\"loss\":2.5,\"lr\":0.1,\"accuracy\":50,\"peers\":[{\"group\":1,"
                          "\"weight\":1,\"age_steps\":12,\"student_loss\":2,\"teacher_loss\":1.5}]}\n"
                          "{\"step\":20,\"time_s\":2,\"loss\":1.5,\"lr\":0.1,\"accuracy\":70,\"peers\":[{\"group\":1,"
                          "\"weight\":1,\"age_steps\":14}]}\n\f"
                          "{\"step\":10,\"loss\":2.4}\n{\"step\":20,\"loss\":1.6}\n\f"
                          "{\"format\":1,\"steps\":20,\"wall_s\":2.5,\"accuracy\":70,\"group_results\":[{\"group\":0}]}"
                          "\f"
                          "model: <mlp>\n",
                      /* A peer whose number no integer holds. */
        far[] =
            "\1{\"step\":1e17,\"loss\":1e17,\"peers\":[{\"group\":1e300,\"weight\":1}]}\n"
            "{\"step\":2e17,\"loss\":-1e17,\"peers\":[{\"group\":-1e300,\"weight\":0}]}\n\f{\"step\":1,\"loss\":2}\n";
    return fuzz_write_file(folder, "comparison", comparison, sizeof comparison - 1) |
           fuzz_write_file(folder, "run", run, sizeof run - 1) | fuzz_write_file(folder, "far", far, sizeof far - 1);
}
