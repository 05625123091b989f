/* `codistill import`: PyTorch's files as safetensors. */
#include "tools/cmd.h"

#include "core/file_kind.h"
#include "infer/foreign.h"
#include "infer/model_file.h"
#include "io/torch_file.h"
#include "tools/arguments.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill import FILE.pth -o OUT.safetensors [--key KEY] [--prefix PREFIX]\n"
    "       codistill import FILE.pth --list\n\n"
    "Converts a file of torch.save() to safetensors, without Python. Files of any version of PyTorch are read, and "
    "safetensors of others, whose tensors have other names. The file must hold a dictionary of tensors, or "
    "dictionaries inside one. Only numbers, texts and tensors are read. Objects of NumPy, dates, paths and "
    "settings of training frameworks are passed over; a file with any other Python object is refused, the object "
    "is named, and no code of the file is ever executed. The CRC-32 of each part of the file is checked.\n\n"
    "If exactly one network in the file is of an architecture that `codistill models` lists and that can be "
    "recognised by its tensors, it is taken, whatever prefix its names have: those of torch.compile() "
    "('_orig_mod.'), DataParallel ('module.'), AveragedModel, Lightning ('model.', 'net_g.'), mmagic "
    "('generator.') and others are dropped. If there are several, the first of these dictionaries decides: "
    "params_ema, params, state_dict, model_state_dict, model, the outermost; if that leaves several, they are "
    "listed, and --prefix chooses. Counters and states of optimisers are left out, which is said. Generators of "
    "ESRGAN get BasicSR's names, whichever of their three naming schemes the file uses. `upscale`, `eval`, "
    "`export` and others take the result as it is, and where nothing is to be chosen, FILE.pth itself. If no network "
    "is recognised, the tensors are written all the same, and the "
    "exit code is 1, unless another use of them is known.\n\n"
    "  -o, --output FILE\tfile to write; an existing file is replaced once the new one is complete\n"
    "  --key KEY\tdictionary to take; join keys inside keys by dots; '' is the outermost\n"
    "  --prefix PREFIX\ttake the tensors whose names begin so, such as generator or net_g\n"
    "  --list\tprint each tensor's dictionary, name, type and shape, and write nothing\n"
    "  --help\n";

/** What a file holds. */
typedef struct source {
    cod_arena arena;
    cod_torch_file *torch;
    cod_st_file *plain;       /**< where it is safetensors already */
    cod_torch_tensor *all;    /**< [count] tensors under their own names */
    const char **whole_names; /**< [count] with the keys of their dictionaries */
    size_t count;
} source;

static void source_close(source *s)
{
    cod_torch_close(s->torch);
    cod_st_close(s->plain);
    cod_arena_clear(&s->arena);
}

static cod_status list_all(source *s)
{
    s->count = s->torch != NULL ? cod_torch_tensor_count(s->torch) : cod_st_tensor_count(s->plain);
    s->all = cod_arena_alloc(&s->arena, (s->count + 1) * sizeof *s->all);
    s->whole_names = cod_arena_alloc(&s->arena, (s->count + 1) * sizeof *s->whole_names);
    COD_REQUIRE_MEMORY(s->all);
    COD_REQUIRE_MEMORY(s->whole_names);
    for (size_t i = 0; i < s->count; i++) {
        s->all[i] = s->torch != NULL ? *cod_torch_tensor_at(s->torch, i)
                                     : (cod_torch_tensor){.section = "", .tensor = *cod_st_tensor_at(s->plain, i)};
        const char *section = s->all[i].section, *name = s->all[i].tensor.name;
        const size_t room = strlen(section) + strlen(name) + 2;
        char *whole = cod_arena_alloc(&s->arena, room);
        COD_REQUIRE_MEMORY(whole);
        snprintf(whole, room, "%s%s%s", section, *section != '\0' ? "." : "", name);
        s->whole_names[i] = whole;
    }
    return COD_OK;
}

static cod_status source_open(const char *path, source *s)
{
    *s = (source){0};
    cod_status status = COD_OK;
    const cod_file_kind kind = cod_file_kind_at(path);
    if (kind == COD_FILE_SAFETENSORS || (kind != COD_FILE_TORCH && cod_is_model_name(path)))
        status = cod_st_open(path, &s->plain);
    else
        status = cod_torch_open(path, &s->torch);
    if (status == COD_OK && s->plain != NULL && cod_st_metadata(s->plain, COD_KIND_METADATA) != NULL)
        status = cod_fail(COD_ERR_ARGUMENT, "'%s' is a model of codistill already, which all commands take", path);
    COD_THEN(status, list_all(s));
    if (status != COD_OK)
        source_close(s);
    return status;
}

/** Whether `text` is below a key: "a.b" is below "a", and below "a.b", but not below "a.". */
static bool is_below(const char *text, const char *key)
{
    const size_t length = strlen(key);
    return length == 0 || (strncmp(text, key, length) == 0 && (text[length] == '\0' || text[length] == '.'));
}

/** What to take of a file; NULL = all. */
typedef struct choice {
    const char *key, *prefix;
} choice;

/** Whether a choice has a tensor. @param section  its own dictionary alone is meant, not those within it */
static bool has(const source *s, const choice *which, const char *section, size_t i)
{
    const cod_torch_tensor *at = &s->all[i];
    const char *key = which->key;
    return (section == NULL || strcmp(at->section, section) == 0) &&
           (key == NULL || (*key == '\0' ? *at->section == '\0' : is_below(at->section, key))) &&
           (which->prefix == NULL || is_below(at->tensor.name, which->prefix) ||
            is_below(s->whole_names[i], which->prefix));
}

static size_t count_in(const source *s, const choice *which, const char *section)
{
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++)
        count += has(s, which, section, i);
    return count;
}

/** The sections of a file by name and size, for a message. */
static void list_sections(const source *s, char *text, size_t room)
{
    const char *last = NULL;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->count && used < room; i++) {
        const char *section = s->all[i].section;
        if (last == NULL || strcmp(last, section) != 0)
            used += (size_t)snprintf(text + used, room - used, "%s'%.64s' (%zu tensors)", used > 0 ? ", " : "", section,
                                     count_in(s, &(choice){0}, section));
        last = section;
    }
}

/** The dictionary to take where no network is known: the only one, or the first by cod_foreign_rank(). */
static cod_status choose_section(const source *s, const choice *which, const char **out)
{
    char sections[512];
    const char *best = NULL;
    bool only = true;
    for (size_t i = 0; i < s->count; i++) {
        const char *section = s->all[i].section;
        const cod_st_tensor whole = {.name = s->whole_names[i], .dtype = COD_ST_F32};
        if (!has(s, which, NULL, i) || cod_foreign_is_bookkeeping(&whole) ||
            (best != NULL && strcmp(best, section) == 0))
            continue;
        only = best == NULL;
        if (best == NULL || cod_foreign_rank(section) < cod_foreign_rank(best))
            best = section;
    }
    *out = best;
    if (best == NULL)
        return cod_fail(COD_ERR_FORMAT, "its tensors are states of training, not weights; --list shows them");
    if (only || cod_foreign_rank(best) <= cod_foreign_rank(""))
        return COD_OK;
    list_sections(s, sections, sizeof sections);
    return cod_fail(COD_ERR_ARGUMENT, "say with --key which of its dictionaries to take: %s", sections);
}

/** The tensors of a choice, under whole names or their own. @param[out] tensors  [*count], in the source's arena */
static cod_status select_tensors(source *s, const choice *which, const char *section, bool whole,
                                 cod_st_tensor **tensors, size_t *count)
{
    *count = 0;
    *tensors = cod_arena_alloc(&s->arena, (s->count + 1) * sizeof **tensors);
    COD_REQUIRE_MEMORY(*tensors);
    for (size_t i = 0; i < s->count; i++) {
        if (!has(s, which, section, i))
            continue;
        (*tensors)[*count] = s->all[i].tensor;
        if (whole)
            (*tensors)[*count].name = s->whole_names[i];
        ++*count;
    }
    return COD_OK;
}

/** Finds what to write: the network that can run, or all of a dictionary where there is none. */
static cod_status choose(source *s, const choice *which, cod_foreign_network *out)
{
    char sections[512];
    cod_st_tensor *tensors;
    cod_foreign_network *networks;
    const cod_foreign_network *chosen;
    const char *section;
    size_t count, found;
    if (s->count == 0)
        return cod_fail(COD_ERR_FORMAT, "there is no tensor in it");
    COD_TRY(select_tensors(s, which, NULL, true, &tensors, &count));
    if (count == 0) {
        list_sections(s, sections, sizeof sections);
        return which->prefix != NULL
                   ? cod_fail(COD_ERR_ARGUMENT, "no name in it begins with --prefix '%s'; --list shows them",
                              which->prefix)
                   : cod_fail(COD_ERR_ARGUMENT, "it has no tensors below --key '%s'; it has %s", which->key, sections);
    }
    COD_TRY(cod_foreign_find(tensors, count, &s->arena, &networks, &found));
    COD_TRY(cod_foreign_choose(networks, found, &chosen));
    if (chosen != NULL) {
        *out = *chosen;
        return COD_OK;
    }
    COD_TRY(choose_section(s, which, &section));
    COD_TRY(select_tensors(s, which, section, false, &tensors, &count));
    COD_TRY(cod_foreign_unwrap(tensors, count, &s->arena, out));
    out->prefix = section;
    return COD_OK;
}

/** What a file holds that is no model but has its use; NULL = nothing that is known. */
static const char *use_of(const char *path)
{
    static const struct {
        const char *tensors[2], *use;
    } uses[] = {
        {{"conv1.weight_orig", "conv9.weight"},
         "a discriminator: gan.discriminator_init of recipe real_esrgan takes it"},
        {{"conv0_0.weight", "linear2.weight"}, "a discriminator: gan.discriminator_init of recipe esrgan takes it"},
        {{"lin0.model.1.weight", "lin6.model.1.weight"}, "the linear weights of LPIPS: --lpips-weights takes them"},
        {{"features.0.weight", "features.2.weight"}, "features of VGG-19, perhaps: gan.perceptual_file takes them"},
        {{"features.0.weight", "features.3.squeeze.weight"},
         "features of SqueezeNet 1.1: gan.perceptual_file and --lpips-network take them"}};
    cod_st_file *file = NULL;
    const char *use = NULL;
    if (cod_st_open(path, &file) != COD_OK)
        return NULL;
    for (size_t i = 0; i < sizeof uses / sizeof uses[0] && use == NULL; i++)
        if (cod_st_tensor_find(file, uses[i].tensors[0]) != NULL &&
            cod_st_tensor_find(file, uses[i].tensors[1]) != NULL)
            use = uses[i].use;
    cod_st_close(file);
    return use;
}

/** Groups of tensors that were not taken, by name and size. */
typedef struct remainder {
    struct {
        char name[64];
        size_t count;
    } groups[8];
    size_t used, others;
} remainder;

/** What a tensor that was not taken is called in the list: a counter by its name, others by what holds them. */
static void name_group(const cod_torch_tensor *tensor, const char *section, char *name, size_t room)
{
    const char *own = tensor->tensor.name, *last = strrchr(own, '.');
    if (cod_foreign_is_bookkeeping(&tensor->tensor) && cod_st_count(&tensor->tensor) == 1)
        snprintf(name, room, "%s", last != NULL ? last + 1 : own);
    else if (*tensor->section == '\0' || is_below(section, tensor->section))
        snprintf(name, room, "%s%s%.*s", tensor->section, *tensor->section != '\0' ? "." : "", (int)strcspn(own, "."),
                 own);
    else
        snprintf(name, room, "%.*s", (int)strcspn(tensor->section, "."), tensor->section);
}

static void add_group(remainder *rest, const char *name)
{
    for (size_t i = 0; i < rest->used; i++)
        if (strcmp(rest->groups[i].name, name) == 0) {
            rest->groups[i].count++;
            return;
        }
    if (rest->used == sizeof rest->groups / sizeof rest->groups[0]) {
        rest->others++;
        return;
    }
    snprintf(rest->groups[rest->used].name, sizeof rest->groups[0].name, "%s", name);
    rest->groups[rest->used++].count = 1;
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t first = (uintptr_t) * (const void *const *)a, second = (uintptr_t) * (const void *const *)b;
    return first < second ? -1 : first > second;
}

/** Lists what was not taken, by the places of data. @param room [network->count] */
static void say_rest(const source *s, const cod_foreign_network *network, const void **room)
{
    remainder rest = {0};
    char name[64];
    for (size_t i = 0; i < network->count; i++)
        room[i] = network->tensors[i].data;
    qsort(room, network->count, sizeof *room, by_address);
    for (size_t i = 0; i < s->count; i++) {
        if (bsearch(&s->all[i].tensor.data, room, network->count, sizeof *room, by_address) != NULL)
            continue;
        name_group(&s->all[i], network->prefix, name, sizeof name);
        add_group(&rest, name);
    }
    for (size_t i = 0; i < rest.used; i++) {
        cod_print(stdout, "%s%s", i == 0 ? "left out: " : ", ", rest.groups[i].name);
        if (rest.groups[i].count > 1)
            printf(" (%zu tensors)", rest.groups[i].count);
    }
    if (rest.others > 0)
        printf(" and %zu others", rest.others);
    if (rest.used > 0)
        printf("\n");
}

/** Says what was written. @return COD_ERR_FORMAT where it is neither a model nor of any other use */
static cod_status describe(const char *output, const cod_foreign_network *network)
{
    cod_saved_model saved;
    const cod_status status = cod_model_load(output, &saved);
    const char *use = status == COD_OK ? NULL : use_of(output);
    cod_print(stdout, "%s: %zu tensors", output, network->count);
    if (*network->prefix != '\0')
        cod_print(stdout, " of '%s'", network->prefix);
    if (status == COD_OK)
        cod_print(stdout, ", model %s", saved.model.kind->name);
    else if (use != NULL)
        cod_print(stdout, ", %s", use);
    printf("\n");
    if (status != COD_OK && use == NULL)
        return cod_fail_prefix(status, "the tensors are written, but they are no model that can be run");
    if (status == COD_OK)
        cod_saved_model_clear(&saved);
    return COD_OK;
}

static void list_tensors(const source *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const cod_torch_tensor *at = &s->all[i];
        const char *const parts[] = {at->section, at->tensor.name, cod_st_dtype_name(at->tensor.dtype)};
        for (size_t k = 0; k < 3; k++) {
            cod_print(stdout, "%s", parts[k]);
            putchar('\t');
        }
        putchar('[');
        for (int d = 0; d < at->tensor.rank; d++)
            printf(d > 0 ? ", %lld" : "%lld", (long long)at->tensor.shape[d]);
        printf("]\n");
    }
}

static cod_status convert(source *s, const char *path, const char *output, const choice *which)
{
    const cod_st_text format = {"format", "pt"};
    cod_foreign_network network = {0};
    cod_status status = choose(s, which, &network);
    COD_THEN(status, cod_st_write(output, network.tensors, network.count, &format, 1));
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s", path);
    const void **room = cod_arena_alloc(&s->arena, network.count * sizeof *room);
    COD_REQUIRE_MEMORY(room);
    status = describe(output, &network);
    say_rest(s, &network, room);
    return status;
}

static cod_status import(const char *path, const char *output, const choice *which)
{
    source s;
    cod_status status = COD_OK;
    if (output != NULL)
        COD_TRY(cod_check_output(path, output));
    COD_TRY(source_open(path, &s));
    if (output == NULL)
        list_tensors(&s);
    else
        status = convert(&s, path, output, which);
    source_close(&s);
    return status;
}

int cod_cmd_import(int argc, char **argv)
{
    const char *output = NULL;
    choice which = {0};
    bool list = false;
    const cod_argument own[] = {{.name = "output", .letter = 'o', .text = &output, .words = COD_WORDS_FILES},
                                {.name = "key", .text = &which.key},
                                {.name = "prefix", .text = &which.prefix},
                                {.name = "list", .flag = &list}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (code >= 0)
        return code;
    if (argc - optind != 1)
        return cod_cmd_usage(argv[0], "one file of torch.save() is wanted, not %d", argc - optind);
    if (list == (output != NULL))
        return cod_cmd_usage(argv[0], "either -o with the .safetensors file to write, or --list");
    if (list && (which.key != NULL || which.prefix != NULL))
        return cod_cmd_usage(argv[0], "--list prints all dictionaries, so that --key and --prefix have no use");
    code = output != NULL ? cod_argument_model_name(argv[0], output) : -1;
    if (code >= 0)
        return code;
    return cod_cmd_end(import(argv[optind], output, &which));
}
