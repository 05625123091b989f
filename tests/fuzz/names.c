/*
 * Names of files that others may have made, in folders of data, of runs and of exchanges: shown, taken for a number,
 * for a picture, or for what a killed writer left.
 *
 * An input is a byte and a name: the byte is how much room there is to show it.
 */
/* What it takes for its own in the shared folder. */
#include "../../src/exchange/file_folder.c"

#include "fuzz.h"

#include "core/shown.h"
#include "data/files.h"

#include <unistd.h>

enum { MOST_NAME = 255, STEP_DIGITS = 9 };

fuzz_kind fuzz_kinds[] = {{"versions", 0},        {"steps", 0},
                          {"metrics", 0},         {"pictures", 0},
                          {"temporary files", 0}, {"temporary files of an exchange", 0},
                          {"escaped names", 0},   {NULL, 0}};

static bool removed;

cod_status __wrap_cod_untrusted_file_remove(const cod_untrusted_folder *folder, const char *name);
/** Nothing is removed: that it would be is noted. */
cod_status __wrap_cod_untrusted_file_remove(const cod_untrusted_folder *folder, const char *name)
{
    (void)folder;
    (void)name;
    removed = true;
    return COD_OK;
}

/** Whether a terminal may have it: UTF-8 without control characters. */
static bool is_harmless(const char *text, size_t bytes, bool lines)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        const unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
        length = cod_utf8_length(text + i, bytes - i);
        if (length == 0 || length > bytes - i || (c < 0x20 && !(lines && c == '\n')) || c == 0x7f ||
            (c == 0xc2 && next < 0xa0))
            return false;
    }
    return true;
}

/** @param room  1 … 256, in which it may not fit */
static void show(const char *text, size_t bytes, bool lines, size_t room)
{
    char whole[4 * (MOST_NAME + 1)], again[sizeof whole], *cut = malloc(room);
    FUZZ_DEMAND(cut != NULL);
    const size_t length = cod_show(text, bytes, lines, whole, sizeof whole);
    FUZZ_DEMAND(length >= bytes && length <= 4 * bytes && whole[length] == '\0' && strlen(whole) == length);
    FUZZ_DEMAND(is_harmless(whole, length, lines) && (length == bytes) == is_harmless(text, bytes, lines));
    FUZZ_DEMAND(cod_show(whole, length, lines, again, sizeof again) == length && strcmp(whole, again) == 0);
    const size_t fits = cod_show(text, bytes, lines, cut, room);
    FUZZ_DEMAND(fits < room && cut[fits] == '\0' && memcmp(cut, whole, fits) == 0 && is_harmless(cut, fits, lines));
    FUZZ_DEMAND((fits == length) == (length < room));
    fuzz_kinds[6].taken += length > bytes;
    free(cut);
}

/** Whether printing a number gives the name again: then no other name has that number. */
static bool is_number(const char *name, const char *prefix, int digits, const char *suffix, uint64_t most, size_t kind)
{
    char again[64];
    uint64_t number = most + 1;
    if (!cod_file_number(name, prefix, (size_t)digits, suffix, most, &number))
        return false;
    snprintf(again, sizeof again, "%s%0*llu%s", prefix, digits, (unsigned long long)number, suffix);
    FUZZ_DEMAND(number <= most && strcmp(name, again) == 0);
    fuzz_kinds[kind].taken++;
    return true;
}

static void find_numbers(const char *name)
{
    is_number(name, "step-", STEP_DIGITS, "", INT64_MAX, 1);
    is_number(name, "metrics.", 1, ".jsonl", INT32_MAX, 2);
    is_number(name, "", 20, "", UINT64_MAX - 1, 1);
    const bool number = is_number(name, "", 1, ".bin", COD_SLOT_VERSION_MAX, 0);
    const uint64_t version = version_of(name);
    FUZZ_DEMAND((version != 0) == (number && strcmp(name, "0.bin") != 0) && version <= COD_SLOT_VERSION_MAX);
}

/** Whether a name is ".OF.DIGITS.tmp", as writers call what they have not renamed yet. */
static bool is_left_of(const char *name, const char *of, size_t length)
{
    const char *rest = name + 1 + length;
    return name[0] == '.' && strncmp(name + 1, of, length) == 0 && rest[0] == '.' &&
           strcmp(rest + 1 + strspn(rest + 1, "0123456789-"), ".tmp") == 0;
}

static void clean(const char *name)
{
    static file t = {.layout = {.slots = 2, .groups = 2, .slot_bytes = 64}};
    naming named = {.t = &t, .header = {.layout = t.layout, .entries = {{.version = 7}}}};
    removed = false;
    FUZZ_DEMAND(remove_unnamed(&named, NULL, name) == COD_OK);
    FUZZ_DEMAND(removed == (version_of(name) != 0 && strcmp(name, "7.bin") != 0));
    removed = false;
    FUZZ_DEMAND(remove_temporary(&t, NULL, name) == COD_OK);
    const size_t digits = name[0] == '.' ? strspn(name + 1, "0123456789") : 0, bin = digits + 4;
    char of[MOST_NAME + 1] = "";
    if (digits > 0 && strncmp(name + 1 + digits, ".bin", 4) == 0)
        memcpy(of, name + 1, bin);
    const bool version = (version_of(of) != 0 || strcmp(of, "0.bin") == 0) && is_left_of(name, of, bin);
    /* Numbers past those of versions are cleaned away as well. */
    FUZZ_DEMAND(removed ? version || bin > 19 || is_left_of(name, "header", 6) : !version);
    FUZZ_DEMAND(!is_left_of(name, "header", 6) || removed);
    FUZZ_DEMAND(!removed || cod_file_is_temporary(name, ""));
    fuzz_kinds[4].taken += cod_file_is_temporary(name, "");
    fuzz_kinds[5].taken += removed;
}

/** A folder that has a file of this name. */
static void find_pictures(const char *name, size_t bytes)
{
    char path[64 + MOST_NAME + 1];
    cod_file_list files = {.silent = true};
    cod_arena arena = {0};
    cod_string_list names;
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *made = fopen(path, "wbx");
    FUZZ_DEMAND(made != NULL && fclose(made) == 0);
    FUZZ_DEMAND(cod_files_find(&files, fuzz_folder(), 0) == COD_OK);
    FUZZ_DEMAND(files.count == (name[0] != '.' && cod_file_is_called_image(name)));
    FUZZ_DEMAND(files.count == 0 || (strcmp(files.items[0].path, path) == 0 && strcmp(files.items[0].name, name) == 0));
    FUZZ_DEMAND(cod_folder_list(fuzz_folder(), "", "", &arena, &names) == COD_OK);
    FUZZ_DEMAND(names.count <= 1 && (names.count == 0 || strlen(names.items[0]) == bytes));
    fuzz_kinds[3].taken += files.count;
    cod_arena_clear(&arena);
    cod_files_clear(&files);
    FUZZ_DEMAND(remove(path) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char *name = malloc(bytes + 1);
    FUZZ_DEMAND(name != NULL);
    memcpy(name, input, bytes);
    name[bytes] = '\0';
    if (bytes > 1 && bytes <= MOST_NAME) {
        show(name + 1, bytes - 1, false, 1 + input[0]);
        show(name + 1, bytes - 1, true, 1 + input[0]);
        /* What a folder's entry can be. */
        const bool possible = strlen(name + 1) == bytes - 1 && strchr(name + 1, '/') == NULL &&
                              strcmp(name + 1, ".") != 0 && strcmp(name + 1, "..") != 0;
        if (possible) {
            find_numbers(name + 1);
            clean(name + 1);
            find_pictures(name + 1, bytes - 1);
        }
    }
    free(name);
    return 0;
}

int fuzz_write(const char *folder)
{
    static const char *const names[][2] = {
        {"version", "\x0c"
                    "42.bin"},
        {"version-zeros", "\x0c"
                          "007.bin"},
        {"version-wide", "\x0c"
                         "18446744073709551617.bin"},
        {"version-left", "\x20"
                         ".42.bin.123-4.tmp"},
        {"header-left", "\x20"
                        ".header.77-1.tmp"},
        {"step", "\x10"
                 "step-000000042"},
        {"step-short", "\x10"
                       "step-42"},
        {"step-signed", "\x10"
                        "step-+00000042"},
        {"step-wide", "\x10"
                      "step-9223372036854775807"},
        {"metrics", "\x10"
                    "metrics.3.jsonl"},
        {"metrics-blank", "\x10"
                          "metrics. 3.jsonl"},
        {"picture", "\x10"
                    "\xe5\xb1\xb1 \xc3\xa9t\xc3\xa9.JPEG"},
        {"picture-escapes", "\x10"
                            "a\x1b]0;b\x07\xc2\x9b\xff.png"},
        {"lines", "\x05"
                  "one\ntwo\r\xed\xa0\x80\xf0\x9f\x98\x80.tiff"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        failed |= fuzz_write_file(folder, names[i][0], names[i][1], strlen(names[i][1]));
    return failed;
}
