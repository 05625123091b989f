#include "distill/peers.h"

#include "core/log.h"
#include "train/checkpoint_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/**
 * Weights can be merged where architectures are equal and the start was common; all ranks see equally many samples a
 * step.
 */
static cod_status make_merger(cod_peers *peers, cod_train_context *context, const cod_exchange_model *models)
{
    const int mine = cod_group_index(context->group), own = cod_group_size(context->group);
    int ranks = own;
    if (peers->options->merge == COD_MERGE_NONE)
        return COD_OK;
    for (int i = 0; i < peers->count; i++) {
        cod_peer *p = &peers->items[i];
        if (models[p->group].hash == models[mine].hash)
            p->share = cod_group_members_of(context->group, p->group).size;
        else if (cod_group_rank(context->group) == 0)
            cod_log_info("group %d: group %d trains another model, so its weights are not merged", mine, p->group);
        ranks += (int)p->share;
    }
    for (int i = 0; i < peers->count; i++)
        peers->items[i].share /= ranks;
    if (ranks == own)
        return COD_OK;
    size_t ends[COD_EXCHANGE_FRAGMENTS_MOST];
    const int fragments = cod_exchange_fragments(peers->options);
    for (int f = 0; f < fragments; f++) {
        const cod_exchange_range range = cod_exchange_fragment_range(peers->options, &models[mine], f);
        ends[f] = (size_t)(range.first + range.count);
    }
    return cod_weights_merger_create(&context->session->weights, cod_recipe_travelling(&context->session->recipe), ends,
                                     (size_t)fragments, &peers->merger);
}

cod_status cod_peers_init(cod_peers *peers, cod_train_context *context, cod_exchange *exchange,
                          const cod_exchange_options *options, const cod_exchange_model *models,
                          const cod_teacher_spec *teacher)
{
    const int count = cod_exchange_peer_count(exchange);
    *peers = (cod_peers){.exchange = exchange, .group = context->group, .options = options};
    peers->items = calloc((size_t)count + 1, sizeof *peers->items);
    COD_REQUIRE_MEMORY(peers->items);
    peers->count = count;
    peers->merging = calloc((size_t)(count * cod_exchange_fragments(options)) + 1, sizeof *peers->merging);
    COD_REQUIRE_MEMORY(peers->merging);
    if (teacher != NULL)
        COD_TRY(cod_branch_init(&peers->branch, context->session->backend, context->session->device));
    for (int i = 0; i < count; i++) {
        cod_peer *p = &peers->items[i];
        p->group = cod_exchange_peer_group(exchange, i);
        p->fragments = calloc((size_t)cod_exchange_fragments(options), sizeof *p->fragments);
        COD_REQUIRE_MEMORY(p->fragments);
        p->age.since = -1;
        p->teacher_loss = p->student_loss = NAN;
        if (teacher == NULL)
            continue;
        cod_teacher_spec spec = *teacher;
        spec.peer = cod_run_config_group(context->config, p->group);
        spec.queue = peers->branch.queue;
        spec.trainable = models[p->group].count;
        COD_TRY(cod_teacher_create(context->session, &spec, &p->teacher));
    }
    return make_merger(peers, context, models);
}

void cod_peers_clear(cod_peers *peers)
{
    for (int i = 0; i < peers->count; i++) {
        cod_teacher_destroy(peers->items[i].teacher);
        free(peers->items[i].fragments);
        free(peers->items[i].saved);
    }
    cod_branch_clear(&peers->branch);
    cod_weights_merger_destroy(peers->merger);
    free(peers->merging);
    free(peers->items);
    *peers = (cod_peers){0};
}

static cod_status tell(const cod_peer *p, const cod_exchange_checkpoint *checkpoint, const cod_train_context *context,
                       const char *kind, double alpha)
{
    const cod_train_event event = {
        .kind = kind, .peer = p->group, .version = checkpoint->version, .peer_step = checkpoint->step, .alpha = alpha};
    return cod_train_tell(context, &event);
}

/** The oldest and the newest version of a peer's fragments; 0 where one has not come. */
static void find_ends(const cod_peers *peers, const cod_peer *p, uint64_t *oldest, uint64_t *newest)
{
    *oldest = UINT64_MAX;
    *newest = 0;
    for (int f = 0; f < cod_exchange_fragments(peers->options); f++) {
        const uint64_t version = p->fragments[f].version;
        *oldest = version < *oldest ? version : *oldest;
        *newest = version > *newest ? version : *newest;
    }
}

/**
 * Whether fragments that have come are a teacher: mixed, as soon as there is one of each; whole, when each is newer
 * than all that teach, and no other of the same is between them, so that they are of one round.
 */
static bool is_teacher(const cod_peers *peers, const cod_peer *p)
{
    uint64_t oldest, newest;
    find_ends(peers, p, &oldest, &newest);
    if (peers->options->teacher_fragments == COD_TEACHER_MIXED)
        return oldest > 0;
    return oldest > p->version && newest - oldest < (uint64_t)cod_exchange_fragments(peers->options);
}

/** What the exchange has newly decoded becomes the teacher, which is as old as its oldest fragment. */
static cod_status adopt(const cod_peers *peers, int index, int64_t step)
{
    cod_peer *p = &peers->items[index];
    uint64_t oldest;
    find_ends(peers, p, &oldest, &p->version);
    for (int f = 0; f < cod_exchange_fragments(peers->options); f++) {
        cod_exchange_checkpoint checkpoint;
        cod_exchange_read_checkpoint(peers->exchange, index, f, &checkpoint);
        if (p->teacher != NULL && p->fragments[f].taught != checkpoint.version)
            COD_TRY(cod_teacher_load(p->teacher, checkpoint.values, (size_t)checkpoint.range.first));
        p->fragments[f].taught = checkpoint.version;
        if (checkpoint.version == oldest)
            cod_teacher_age_renew(&p->age, peers->options, checkpoint.step, step);
    }
    return COD_OK;
}

static cod_status merge(cod_peers *peers, cod_peer *p, int fragment, const cod_exchange_checkpoint *checkpoint,
                        const cod_train_context *context)
{
    cod_merge due;
    if (p->share == 0 ||
        !cod_merge_is_due(peers->options, checkpoint, context->step, &p->fragments[fragment].merged, &due))
        return COD_OK;
    due.range = (size_t)fragment;
    due.share = p->share;
    peers->merges++;
    COD_TRY(tell(p, checkpoint, context, "merge", due.alpha));
    peers->merging[peers->merging_count++] = due;
    return COD_OK;
}

static cod_status take_over(cod_peers *peers, int index, cod_train_context *context)
{
    cod_peer *p = &peers->items[index];
    const int fragments = cod_exchange_fragments(peers->options);
    cod_exchange_checkpoint checkpoint;
    bool came = false;
    for (int f = 0; f < fragments; f++) {
        cod_exchange_read_checkpoint(peers->exchange, index, f, &checkpoint);
        if (checkpoint.version == p->fragments[f].version)
            continue;
        p->fragments[f].version = checkpoint.version;
        COD_TRY(tell(p, &checkpoint, context, "switch", NAN));
        came = true;
    }
    if (came && is_teacher(peers, p)) {
        COD_TRY(adopt(peers, index, context->step));
        peers->switches++;
    }
    for (int f = 0; f < fragments; f++) {
        cod_exchange_read_checkpoint(peers->exchange, index, f, &checkpoint);
        COD_TRY(merge(peers, p, f, &checkpoint, context));
    }
    return COD_OK;
}

cod_status cod_peers_take_over(cod_peers *peers, cod_train_context *context)
{
    peers->merging_count = 0;
    for (int i = 0; i < peers->count; i++)
        COD_TRY(take_over(peers, i, context));
    return peers->merging_count > 0 ? cod_weights_merger_apply(peers->merger, peers->merging, peers->merging_count)
                                    : COD_OK;
}

/** Of the oldest fragment that is held. */
static double age_of(const cod_peers *peers, int index)
{
    double oldest = NAN;
    for (int f = 0; f < cod_exchange_fragments(peers->options); f++) {
        cod_exchange_checkpoint checkpoint;
        cod_exchange_read_checkpoint(peers->exchange, index, f, &checkpoint);
        oldest = fmax(oldest, checkpoint.age_s);
    }
    return oldest;
}

void cod_peers_grow_old(cod_peers *peers)
{
    for (int i = 0; i < peers->count; i++)
        peers->items[i].age.age_s = age_of(peers, i);
}

/** Since the run began. */
static cod_exchange_peer_counters counters_of(const cod_peers *peers, int index)
{
    const cod_exchange_peer_counters *earlier = &peers->items[index].earlier;
    cod_exchange_peer_counters counters;
    cod_exchange_read_peer(peers->exchange, index, &counters);
    counters.pulled += earlier->pulled;
    counters.rejected += earlier->rejected;
    counters.lost += earlier->lost;
    counters.bytes += earlier->bytes;
    counters.timed_bytes += earlier->timed_bytes;
    counters.timed_s += earlier->timed_s;
    return counters;
}

void cod_peers_read(const cod_peers *peers, int index, cod_peer_stats *out)
{
    const cod_peer *p = &peers->items[index];
    const cod_exchange_peer_counters counters = counters_of(peers, index);
    *out = (cod_peer_stats){.group = p->group,
                            .version = p->version,
                            .step = p->age.step,
                            .age_s = age_of(peers, index),
                            .pulled = counters.pulled,
                            .rejected = counters.rejected,
                            .lost = counters.lost,
                            .pulled_bytes = counters.bytes,
                            .bytes_per_s = counters.timed_s > 0 ? (double)counters.timed_bytes / counters.timed_s : NAN,
                            .weight = p->weight,
                            .teacher_loss = p->teacher_loss,
                            .student_loss = p->student_loss};
}

enum { NAME_BYTES = 64 };

static void name_of(int index, const char *what, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "peer%d.%s", index, what);
}

/** The first fragment's is the name that a model has which is not cut. */
static void name_of_fragment(int index, const char *what, int fragment, char name[NAME_BYTES])
{
    if (fragment == 0)
        name_of(index, what, name);
    else
        snprintf(name, NAME_BYTES, "peer%d.%s.%d", index, what, fragment);
}

enum { COUNTERS = 6 };
static const char *const counter_names[COUNTERS] = {"pulled", "rejected", "lost", "bytes", "timed_bytes", "timed_s"};

static cod_status save_counters(const cod_peers *peers, int index, cod_checkpoint *checkpoint)
{
    const cod_exchange_peer_counters c = counters_of(peers, index);
    const double numbers[COUNTERS] = {(double)c.pulled, (double)c.rejected,    (double)c.lost,
                                      (double)c.bytes,  (double)c.timed_bytes, c.timed_s};
    for (int k = 0; k < COUNTERS; k++) {
        char name[NAME_BYTES];
        name_of(index, counter_names[k], name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, numbers[k]));
    }
    return COD_OK;
}

static cod_status load_counters(cod_peer *p, int index, const cod_st_file *file)
{
    int64_t numbers[COUNTERS - 1];
    char name[NAME_BYTES];
    for (int k = 0; k < COUNTERS - 1; k++) {
        name_of(index, counter_names[k], name);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &numbers[k]));
    }
    p->earlier = (cod_exchange_peer_counters){.pulled = (uint64_t)numbers[0],
                                              .rejected = (uint64_t)numbers[1],
                                              .lost = (uint64_t)numbers[2],
                                              .bytes = (uint64_t)numbers[3],
                                              .timed_bytes = (uint64_t)numbers[4]};
    name_of(index, counter_names[COUNTERS - 1], name);
    return cod_checkpoint_number(file, name, &p->earlier.timed_s);
}

/** A teacher that waits for a whole round has older fragments than those that are held. */
static bool keeps_teachers(const cod_peers *peers)
{
    return peers->options->teacher_fragments == COD_TEACHER_WHOLE && cod_exchange_fragments(peers->options) > 1;
}

static cod_status save_teacher(const cod_peers *peers, int index, cod_checkpoint *checkpoint)
{
    cod_peer *p = &peers->items[index];
    char name[NAME_BYTES];
    name_of(index, "taught", name);
    COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->version));
    name_of(index, "taught_step", name);
    COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->age.step));
    if (p->teacher == NULL)
        return COD_OK;
    const size_t bytes = cod_teacher_count(p->teacher) * sizeof(float);
    if (p->saved == NULL)
        p->saved = malloc(bytes);
    COD_REQUIRE_MEMORY(p->saved);
    COD_TRY(cod_teacher_save(p->teacher, p->saved));
    name_of(index, "teacher", name);
    return cod_checkpoint_add_part(checkpoint, peers->group, name, p->saved, bytes);
}

static cod_status read_teacher(const cod_peers *peers, int index, const cod_st_file *file)
{
    cod_peer *p = &peers->items[index];
    char name[NAME_BYTES];
    int64_t version, step;
    name_of(index, "taught", name);
    COD_TRY(cod_checkpoint_whole(file, name, 0, &version));
    name_of(index, "taught_step", name);
    COD_TRY(cod_checkpoint_whole(file, name, 0, &step));
    p->version = (uint64_t)version;
    p->age.step = step;
    if (p->teacher == NULL)
        return COD_OK;
    const size_t bytes = cod_teacher_count(p->teacher) * sizeof(float);
    p->saved = p->saved != NULL ? p->saved : malloc(bytes);
    COD_REQUIRE_MEMORY(p->saved);
    name_of(index, "teacher", name);
    return cod_checkpoint_read_part(file, peers->group, name, p->saved, bytes);
}

static cod_status load_teacher(const cod_peers *peers, int index, const cod_st_file *file)
{
    cod_peer *p = &peers->items[index];
    COD_TRY(cod_group_agree(peers->group, read_teacher(peers, index, file), NULL));
    if (p->teacher == NULL)
        return COD_OK;
    COD_TRY(cod_group_complete(peers->group, p->saved, cod_teacher_count(p->teacher) * sizeof(float)));
    return cod_teacher_restore(p->teacher, p->saved);
}

cod_status cod_peers_save(const cod_peers *peers, cod_checkpoint *checkpoint)
{
    for (int i = 0; i < peers->count; i++) {
        const cod_peer *p = &peers->items[i];
        const size_t count = cod_teacher_range_count(p->teacher);
        const float *ranges;
        char name[NAME_BYTES];
        name_of(i, "since", name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->age.since));
        for (int f = 0; f < cod_exchange_fragments(peers->options); f++) {
            name_of_fragment(i, "merged", f, name);
            COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->fragments[f].merged.version));
            name_of_fragment(i, "merged_own", f, name);
            COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->fragments[f].merged.own_version));
        }
        if (keeps_teachers(peers))
            COD_TRY(save_teacher(peers, i, checkpoint));
        COD_TRY(save_counters(peers, i, checkpoint));
        name_of(i, "ranges", name);
        if (count > 0) {
            COD_TRY(cod_teacher_ranges(p->teacher, &ranges));
            COD_TRY(cod_checkpoint_add_bytes(checkpoint, name, ranges, count * sizeof *ranges));
        }
    }
    return COD_OK;
}

/** A teacher on integers goes on with the ranges it had; there are none where it was of another type. */
static cod_status load_ranges(cod_teacher *teacher, int index, const cod_st_file *file)
{
    const size_t count = cod_teacher_range_count(teacher);
    char name[NAME_BYTES];
    name_of(index, "ranges", name);
    if (count == 0 || cod_st_tensor_find(file, name) == NULL)
        return COD_OK;
    float *ranges = malloc(count * sizeof *ranges);
    COD_REQUIRE_MEMORY(ranges);
    cod_status status = cod_checkpoint_read(file, name, ranges, count * sizeof *ranges);
    COD_THEN(status, cod_teacher_set_ranges(teacher, ranges));
    free(ranges);
    return status;
}

static cod_status load_fragments(cod_peers *peers, int index, const cod_st_file *file)
{
    for (int f = 0; f < cod_exchange_fragments(peers->options); f++) {
        cod_peer_fragment *fragment = &peers->items[index].fragments[f];
        cod_exchange_checkpoint checkpoint;
        char name[NAME_BYTES];
        int64_t merged, merged_own;
        name_of_fragment(index, "merged", f, name);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &merged));
        name_of_fragment(index, "merged_own", f, name);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &merged_own));
        cod_exchange_read_checkpoint(peers->exchange, index, f, &checkpoint);
        *fragment = (cod_peer_fragment){.version = checkpoint.version,
                                        .merged = {.version = (uint64_t)merged, .own_version = (uint64_t)merged_own}};
    }
    return COD_OK;
}

cod_status cod_peers_load(cod_peers *peers, const cod_st_file *file)
{
    for (int i = 0; i < peers->count; i++) {
        cod_peer *p = &peers->items[i];
        char name[NAME_BYTES];
        int64_t since;
        name_of(i, "since", name);
        COD_TRY(cod_checkpoint_whole(file, name, -1, &since));
        COD_TRY(load_fragments(peers, i, file));
        if (keeps_teachers(peers))
            COD_TRY(load_teacher(peers, i, file));
        else if (is_teacher(peers, p))
            COD_TRY(adopt(peers, i, since));
        COD_TRY(load_ranges(p->teacher, i, file));
        COD_TRY(load_counters(p, i, file));
        p->age.since = since;
    }
    return COD_OK;
}
