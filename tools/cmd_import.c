/* `codistill import`: PyTorch's files as safetensors. */
#include "tools/cmd.h"

#include "infer/model_file.h"
#include "io/torch_file.h"
#include "tools/arguments.h"
#include "tools/import_names.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill import FILE.pth -o OUT.safetensors [--key KEY]\n"
    "       codistill import FILE.pth --list\n\n"
    "Converts a file of torch.save() to safetensors, without Python. Files of any version of PyTorch are read. The\n"
    "file must hold a dictionary of tensors, or dictionaries inside one. Only numbers, texts and tensors are read; a\n"
    "file with any other Python object is refused, the object is named, and no code of the file is ever executed.\n\n"
    "If there are several dictionaries, the first of these is taken: params_ema, params, state_dict,\n"
    "model_state_dict, model, the outermost. A prefix 'module.' that all names share is dropped. Generators of\n"
    "ESRGAN get BasicSR's names, whichever of their three naming schemes the file uses. If the tensors belong to an\n"
    "architecture that `codistill models` lists and that can be recognised by its tensors, `upscale`, `eval` and\n"
    "`export` take the result as it is.\n\n"
    "  -o, --output FILE  file to write; an existing file is replaced once the new one is complete\n"
    "  --key KEY          dictionary to take; join keys inside keys by dots; '' is the outermost\n"
    "  --list             print each tensor's dictionary, name, type and shape, and write nothing\n"
    "  --help\n";

/** Dictionaries that are taken where --key names none: the first of these that holds tensors. */
static const char *const preferred[] = {"params_ema", "params", "state_dict", "model_state_dict", "model", ""};

static size_t count_in(const cod_torch_file *file, const char *section)
{
    size_t count = 0;
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++)
        count += strcmp(cod_torch_tensor_at(file, i)->section, section) == 0;
    return count;
}

/** The sections of a file by name and size, for a message. */
static void list_sections(const cod_torch_file *file, char *text, size_t room)
{
    const char *last = NULL;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < cod_torch_tensor_count(file) && used < room; i++) {
        const char *section = cod_torch_tensor_at(file, i)->section;
        if (last == NULL || strcmp(last, section) != 0)
            used += (size_t)snprintf(text + used, room - used, "%s'%.64s' (%zu tensors)", used > 0 ? ", " : "", section,
                                     count_in(file, section));
        last = section;
    }
}

static cod_status choose_section(const cod_torch_file *file, const char *key, const char **out)
{
    char sections[512];
    const char *only = cod_torch_tensor_at(file, 0)->section;
    if (key == NULL && count_in(file, only) == cod_torch_tensor_count(file))
        key = only;
    for (size_t i = 0; i < sizeof preferred / sizeof preferred[0] && key == NULL; i++)
        if (count_in(file, preferred[i]) > 0)
            key = preferred[i];
    *out = key;
    if (key != NULL && count_in(file, key) > 0)
        return COD_OK;
    list_sections(file, sections, sizeof sections);
    return key == NULL ? cod_fail(COD_ERR_ARGUMENT, "say with --key which of its dictionaries to take: %s", sections)
                       : cod_fail(COD_ERR_ARGUMENT, "it has no tensors below --key '%s'; it has %s", key, sections);
}

/** The tensors to write. */
typedef struct selection {
    cod_st_tensor *tensors; /**< [count] */
    size_t count;
    cod_arena names;
} selection;

static cod_status name_all(selection *chosen)
{
    static const char wrapper[] = "module.";
    size_t wrapped = 0;
    cod_naming naming = COD_NAMING_PLAIN;
    for (size_t i = 0; i < chosen->count; i++)
        wrapped += strncmp(chosen->tensors[i].name, wrapper, strlen(wrapper)) == 0;
    for (size_t i = 0; i < chosen->count && wrapped == chosen->count; i++)
        chosen->tensors[i].name += strlen(wrapper);
    for (size_t i = 0; i < chosen->count && naming == COD_NAMING_PLAIN; i++)
        naming = cod_naming_of(chosen->tensors[i].name);
    for (size_t i = 0; i < chosen->count; i++) {
        chosen->tensors[i].name = cod_name_translate(naming, chosen->tensors[i].name, &chosen->names);
        COD_REQUIRE_MEMORY(chosen->tensors[i].name);
    }
    return COD_OK;
}

static cod_status write_section(const cod_torch_file *file, const char *section, const char *output)
{
    selection chosen = {.tensors = calloc(cod_torch_tensor_count(file), sizeof *chosen.tensors)};
    COD_REQUIRE_MEMORY(chosen.tensors);
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++)
        if (strcmp(cod_torch_tensor_at(file, i)->section, section) == 0)
            chosen.tensors[chosen.count++] = cod_torch_tensor_at(file, i)->tensor;
    cod_status status = name_all(&chosen);
    const cod_st_text format = {"format", "pt"};
    COD_THEN(status, cod_st_write(output, chosen.tensors, chosen.count, &format, 1));
    cod_arena_clear(&chosen.names);
    free(chosen.tensors);
    return status;
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

/** Says what the tensors are, or that no architecture has them. */
static void describe(const char *output, size_t count, const char *section)
{
    cod_saved_model saved;
    const bool known = cod_model_load(output, &saved) == COD_OK;
    const char *use = known ? NULL : use_of(output);
    printf("%s: %zu tensors", output, count);
    if (*section != '\0')
        printf(" of '%s'", section);
    if (known)
        printf(", model %s", saved.model.kind->name);
    else if (use != NULL)
        printf(", %s", use);
    printf("\n");
    if (known)
        cod_saved_model_clear(&saved);
    else if (use == NULL)
        fprintf(stderr, "codistill: the tensors are written, but they are no model that can be run as it is: %s\n",
                cod_error_message());
}

static void list_tensors(const cod_torch_file *file)
{
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++) {
        const cod_torch_tensor *at = cod_torch_tensor_at(file, i);
        printf("%s\t%s\t%s\t[", at->section, at->tensor.name, cod_st_dtype_name(at->tensor.dtype));
        for (int d = 0; d < at->tensor.rank; d++)
            printf(d > 0 ? ", %lld" : "%lld", (long long)at->tensor.shape[d]);
        printf("]\n");
    }
}

static cod_status import(const char *path, const char *output, const char *key)
{
    cod_torch_file *file;
    const char *section = NULL;
    if (output != NULL)
        COD_TRY(cod_check_output(path, output));
    COD_TRY(cod_torch_open(path, &file));
    cod_status status = COD_OK;
    if (output == NULL) {
        list_tensors(file);
    } else {
        status = choose_section(file, key, &section);
        COD_THEN(status, write_section(file, section, output));
        if (status == COD_OK)
            describe(output, count_in(file, section), section);
        else
            status = cod_fail_prefix(status, "%s", path);
    }
    cod_torch_close(file);
    return status;
}

int cod_cmd_import(int argc, char **argv)
{
    const char *output = NULL, *key = NULL;
    bool list = false;
    const cod_argument own[] = {{.name = "output", .letter = 'o', .text = &output},
                                {.name = "key", .text = &key},
                                {.name = "list", .flag = &list}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (code >= 0)
        return code;
    if (argc - optind != 1)
        return cod_cmd_usage(argv[0], "one file of torch.save() is wanted, not %d", argc - optind);
    if (list == (output != NULL))
        return cod_cmd_usage(argv[0], "either -o with the .safetensors file to write, or --list");
    if (list && key != NULL)
        return cod_cmd_usage(argv[0], "--list prints all dictionaries, so that --key has no use");
    code = output != NULL ? cod_argument_model_name(argv[0], output) : -1;
    if (code >= 0)
        return code;
    return cod_cmd_end(import(argv[optind], output, key));
}
