#include "infer/foreign.h"

#include "foreign_names_internal.h"
#include "infer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NETWORKS_MOST = 64, TENSORS_LEAST = 4, DEPTH_MOST = 12 };

/** A tensor and its place in the file. */
typedef struct placed {
    cod_st_tensor tensor;
    size_t place;
} placed;

typedef struct search {
    cod_arena *arena;
    cod_foreign_network *networks; /**< [NETWORKS_MOST] */
    size_t count;
} search;

static bool is_one_of(const char *text, size_t length, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strlen(*names) == length && strncmp(text, *names, length) == 0)
            return true;
    return false;
}

/** Length of a name's first part, up to its first dot. */
static size_t first_part(const char *name)
{
    return strcspn(name, ".");
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), suffix = strlen(end);
    return length >= suffix && strcmp(text + length - suffix, end) == 0;
}

/** Whether one of a name's parts, which have dots between them, begins so. */
static bool has_part(const char *name, const char *beginning)
{
    while (strncmp(name, beginning, strlen(beginning)) != 0) {
        name = strchr(name, '.');
        if (name == NULL)
            return false;
        name++;
    }
    return true;
}

/** Whether it is one integer, such as AveragedModel's n_averaged and mmagic's step_counter. */
static bool is_counter(const cod_st_tensor *tensor)
{
    const cod_st_dtype dtype = tensor->dtype;
    const bool real = dtype == COD_ST_F64 || dtype == COD_ST_F32 || dtype == COD_ST_F16 || dtype == COD_ST_BF16;
    return !real && cod_st_count(tensor) == 1 && !ends_with(tensor->name, "num_batches_tracked");
}

bool cod_foreign_is_bookkeeping(const cod_st_tensor *tensor)
{
    static const char *const kept[] = {"callbacks", "loops", "lr_schedulers", "schedulers", "scheduler", "grad_scaler",
                                       "scaler",    "amp",   "message_hub",   "meta",       "rng",       NULL};
    const char *name = tensor->name;
    return has_part(name, "optim") || is_one_of(name, first_part(name), kept) || is_counter(tensor);
}

/** Parts that wrappers put anywhere into a name, and which mean nothing. */
static const char *const inserted[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", NULL};

/** The name without such parts: the name itself where it has none, otherwise a copy. NULL = memory is short. */
static const char *without_inserted(const char *name, cod_arena *arena)
{
    if (strstr(name, "_orig_mod.") == NULL && strstr(name, "wrapped_module.") == NULL)
        return name;
    char *copy = cod_arena_alloc(arena, strlen(name) + 1), *to = copy;
    if (copy == NULL)
        return NULL;
    for (const char *part = name; *part != '\0';) {
        const size_t length = first_part(part), whole = length + (part[length] == '.' ? 1 : 0);
        if (whole == length || !is_one_of(part, length, inserted)) {
            memcpy(to, part, whole);
            to += whole;
        }
        part += whole;
    }
    *to = '\0';
    return copy;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const placed *)a)->tensor.name, ((const placed *)b)->tensor.name);
}

static int by_place(const void *a, const void *b)
{
    const size_t first = ((const placed *)a)->place, second = ((const placed *)b)->place;
    return first < second ? -1 : first > second;
}

/** Copies tensors in the file's order, by BasicSR's names. @param to [count] */
static cod_status translate(const placed *items, size_t count, cod_arena *arena, cod_st_tensor *to)
{
    cod_naming naming = COD_NAMING_PLAIN;
    placed *ordered = malloc((count + 1) * sizeof *ordered);
    COD_REQUIRE_MEMORY(ordered);
    memcpy(ordered, items, count * sizeof *ordered);
    qsort(ordered, count, sizeof *ordered, by_place);
    for (size_t i = 0; i < count && naming == COD_NAMING_PLAIN; i++)
        naming = cod_naming_of(ordered[i].tensor.name);
    bool whole = true;
    for (size_t i = 0; i < count; i++) {
        to[i] = ordered[i].tensor;
        to[i].name = cod_name_translate(naming, ordered[i].tensor.name, arena);
        whole = whole && to[i].name != NULL;
    }
    free(ordered);
    return whole ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
}

/** @param[out] kind  NULL = no architecture that is known */
static cod_status recognise(const cod_st_tensor *tensors, size_t count, const cod_model_kind **kind)
{
    cod_arena arena = {0};
    cod_st_file *file = NULL;
    void *options = NULL;
    cod_status status = cod_st_gather(tensors, count, &file);
    COD_THEN(status, cod_model_recognise(file, &arena, kind, &options));
    cod_st_close(file);
    cod_arena_clear(&arena);
    return status;
}

static cod_status add_network(search *s, const cod_st_tensor *tensors, size_t count, const char *prefix,
                              const cod_model_kind *kind)
{
    if (s->count == NETWORKS_MOST)
        return cod_fail(COD_ERR_UNSUPPORTED, "more than %d networks in one file", NETWORKS_MOST);
    cod_st_tensor *kept = cod_arena_alloc(s->arena, count * sizeof *kept);
    COD_REQUIRE_MEMORY(kept);
    memcpy(kept, tensors, count * sizeof *kept);
    s->networks[s->count++] = (cod_foreign_network){.prefix = prefix, .kind = kind, .tensors = kept, .count = count};
    return COD_OK;
}

/** Adds a network if all of these tensors together are one. @param[out] kind  its kind, or NULL */
static cod_status try_whole(search *s, const placed *items, size_t count, const char *prefix,
                            const cod_model_kind **kind)
{
    cod_st_tensor *tensors = malloc(count * sizeof *tensors);
    COD_REQUIRE_MEMORY(tensors);
    *kind = NULL;
    cod_status status = translate(items, count, s->arena, tensors);
    COD_THEN(status, recognise(tensors, count, kind));
    if (status == COD_OK && *kind != NULL)
        status = add_network(s, tensors, count, prefix, *kind);
    free(tensors);
    return status;
}

/** Finds networks among tensors that share a prefix, which their names no longer have. @param items [count] by name */
static cod_status find_below(search *s, placed *items, size_t count, const char *prefix, int depth)
{
    const cod_model_kind *kind = NULL;
    if (count < TENSORS_LEAST || depth > DEPTH_MOST)
        return COD_OK;
    COD_TRY(try_whole(s, items, count, prefix, &kind));
    for (size_t i = 0; kind == NULL && i < count;) {
        const char *name = items[i].tensor.name;
        const size_t length = first_part(name), first = i;
        if (name[length] == '\0') {
            i++;
            continue;
        }
        while (i < count && strncmp(items[i].tensor.name, name, length + 1) == 0)
            i++;
        const size_t room = strlen(prefix) + length + 2;
        char *below = cod_arena_alloc(s->arena, room);
        COD_REQUIRE_MEMORY(below);
        snprintf(below, room, "%s%s%.*s", prefix, *prefix != '\0' ? "." : "", (int)length, name);
        for (size_t k = first; k < i; k++)
            items[k].tensor.name += length + 1;
        COD_TRY(find_below(s, items + first, i - first, below, depth + 1));
    }
    return COD_OK;
}

/** @param[out] items  new, [*kept]: tensors that are no bookkeeping, without parts that wrappers inserted; free() */
static cod_status prepare(const cod_st_tensor *tensors, size_t count, cod_arena *arena, placed **items, size_t *kept)
{
    placed *all = malloc((count + 1) * sizeof *all);
    COD_REQUIRE_MEMORY(all);
    *items = all;
    *kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (cod_foreign_is_bookkeeping(&tensors[i]))
            continue;
        all[*kept] = (placed){tensors[i], i};
        all[*kept].tensor.name = without_inserted(tensors[i].name, arena);
        COD_REQUIRE_MEMORY(all[*kept].tensor.name);
        ++*kept;
    }
    return COD_OK;
}

cod_status cod_foreign_find(const cod_st_tensor *tensors, size_t count, cod_arena *arena,
                            cod_foreign_network **networks, size_t *found)
{
    placed *items = NULL;
    size_t kept = 0;
    search s = {.arena = arena, .networks = cod_arena_alloc(arena, NETWORKS_MOST * sizeof *s.networks)};
    COD_REQUIRE_MEMORY(s.networks);
    cod_status status = prepare(tensors, count, arena, &items, &kept);
    if (status == COD_OK) {
        qsort(items, kept, sizeof *items, by_name);
        status = find_below(&s, items, kept, "", 0);
    }
    free(items);
    *networks = s.networks;
    *found = s.count;
    return status;
}

size_t cod_foreign_rank(const char *key)
{
    static const char *const keys[] = {"params_ema", "params", "state_dict", "model_state_dict", "model", ""};
    size_t i = 0;
    while (i < sizeof keys / sizeof keys[0] && strcmp(keys[i], key) != 0)
        i++;
    return i;
}

/** cod_foreign_rank() of a prefix's first key. */
static size_t rank_of(const char *prefix)
{
    char key[32];
    const size_t length = first_part(prefix);
    snprintf(key, sizeof key, "%.*s", (int)(length < sizeof key ? length : sizeof key - 1), prefix);
    return cod_foreign_rank(key);
}

cod_status cod_foreign_choose(const cod_foreign_network *networks, size_t found, const cod_foreign_network **chosen)
{
    size_t best = SIZE_MAX, equal = 0, used = 0;
    char list[1024] = "";
    *chosen = NULL;
    for (size_t i = 0; i < found; i++) {
        const size_t rank = rank_of(networks[i].prefix);
        if (rank < best) {
            best = rank;
            equal = 0;
            *chosen = &networks[i];
        }
        equal += rank == best;
    }
    if (equal <= 1)
        return COD_OK;
    *chosen = NULL;
    for (size_t i = 0; i < found && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s'%.64s' (%s, %zu tensors)", i > 0 ? ", " : "",
                                 networks[i].prefix, networks[i].kind->name, networks[i].count);
    return cod_fail(COD_ERR_ARGUMENT, "it holds several models: say with `codistill import --prefix` which to take: %s",
                    list);
}

/** Whether a name begins with a prefix that means nothing where all tensors share it. @param[out] length  its own */
static bool is_wrapped(const char *name, size_t *length)
{
    static const char *const wrappers[] = {"module", "model", "generator", "discriminator", "net", "network",
                                           "net_g",  "net_d", "netG",      "netD",          NULL};
    *length = first_part(name) + 1;
    /* The first release of ESRGAN has layers "model.0." to "model.10.". */
    return name[*length - 1] == '.' && is_one_of(name, *length - 1, wrappers) &&
           !(name[*length] >= '0' && name[*length] <= '9');
}

cod_status cod_foreign_unwrap(const cod_st_tensor *tensors, size_t count, cod_arena *arena,
                              cod_foreign_network *network)
{
    placed *items = NULL;
    size_t kept = 0, length = 0;
    *network = (cod_foreign_network){.prefix = ""};
    cod_status status = prepare(tensors, count, arena, &items, &kept);
    while (status == COD_OK && kept > 0 && is_wrapped(items[0].tensor.name, &length)) {
        size_t shared = 0;
        while (shared < kept && strncmp(items[shared].tensor.name, items[0].tensor.name, length) == 0)
            shared++;
        if (shared < kept)
            break;
        for (size_t i = 0; i < kept; i++)
            items[i].tensor.name += length;
    }
    network->tensors = cod_arena_alloc(arena, (kept + 1) * sizeof *network->tensors);
    network->count = kept;
    if (status == COD_OK && network->tensors == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, translate(items, kept, arena, network->tensors));
    free(items);
    return status;
}
