#include "distill/peers.h"

#include "core/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** Weights can be merged where architectures are equal and the start was common; all ranks see equally many samples a step. */
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
    return ranks > own ? cod_merger_create(&context->session->weights, cod_recipe_travelling(&context->session->recipe),
                                           &peers->merger)
                       : COD_OK;
}

cod_status cod_peers_init(cod_peers *peers, cod_train_context *context, cod_exchange *exchange,
                          const cod_exchange_options *options, const cod_exchange_model *models,
                          const cod_teacher_spec *teacher)
{
    const int count = cod_exchange_peer_count(exchange);
    *peers = (cod_peers){.exchange = exchange, .options = options};
    peers->items = calloc((size_t)count + 1, sizeof *peers->items);
    COD_REQUIRE_MEMORY(peers->items);
    peers->count = count;
    peers->merging = calloc((size_t)count + 1, sizeof *peers->merging);
    COD_REQUIRE_MEMORY(peers->merging);
    if (teacher != NULL)
        COD_TRY(cod_branch_init(&peers->branch, context->session->backend, context->session->device));
    for (int i = 0; i < count; i++) {
        cod_peer *p = &peers->items[i];
        p->group = cod_exchange_peer_group(exchange, i);
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
    for (int i = 0; i < peers->count; i++)
        cod_teacher_destroy(peers->items[i].teacher);
    cod_branch_clear(&peers->branch);
    cod_merger_destroy(peers->merger);
    free(peers->merging);
    free(peers->items);
    *peers = (cod_peers){0};
}

static cod_status tell(const cod_peer *p, const cod_train_context *context, const char *kind, double alpha)
{
    const cod_train_event event = {
        .kind = kind, .peer = p->group, .version = p->version, .peer_step = p->age.step, .alpha = alpha};
    return cod_train_tell(context, &event);
}

/** A version that the exchange has newly decoded becomes the teacher. */
static cod_status adopt(const cod_peers *peers, cod_peer *p, const cod_exchange_checkpoint *checkpoint, int64_t step)
{
    p->version = checkpoint->version;
    cod_teacher_age_renew(&p->age, peers->options, checkpoint->step, step);
    return p->teacher != NULL ? cod_teacher_load(p->teacher, checkpoint->values) : COD_OK;
}

/** Weights will move toward the version, once. @param own  what it is measured from; NULL = the weights of now */
static cod_status add_merge(cod_peers *peers, cod_peer *p, const cod_exchange_checkpoint *checkpoint, cod_buffer *own,
                            double alpha, const cod_train_context *context)
{
    p->merged = p->version;
    peers->merges++;
    alpha = peers->options->merge_alpha > 0 ? peers->options->merge_alpha : alpha;
    COD_TRY(tell(p, context, "merge", alpha));
    peers->merging[peers->merging_count++] =
        (cod_merge){.peer = checkpoint->values, .own = own, .alpha = alpha, .share = p->share};
    return COD_OK;
}

/**
 * Merges each version once, beside an own one that has not stood beside an earlier: a faster peer's versions do not count more
 * for being many. Plain averaging takes each as it comes, however stale.
 */
static cod_status merge(cod_peers *peers, cod_peer *p, const cod_exchange_checkpoint *checkpoint,
                        const cod_train_context *context)
{
    if (p->share == 0 || p->merged == p->version)
        return COD_OK;
    if (peers->options->merge == COD_MERGE_AVERAGE)
        return add_merge(peers, p, checkpoint, NULL, 1, context);
    if (checkpoint->own == NULL || p->merged_own >= checkpoint->own_version)
        return COD_OK;
    const int64_t period = peers->options->period, late = context->step - (int64_t)checkpoint->own_version * period;
    p->merged_own = checkpoint->own_version;
    return add_merge(peers, p, checkpoint, checkpoint->own, cod_merge_alpha(late > 0 ? late / period : 0), context);
}

cod_status cod_peers_take_over(cod_peers *peers, cod_train_context *context)
{
    peers->merging_count = 0;
    for (int i = 0; i < peers->count; i++) {
        cod_peer *p = &peers->items[i];
        cod_exchange_checkpoint checkpoint;
        cod_exchange_read_checkpoint(peers->exchange, i, &checkpoint);
        if (checkpoint.values == NULL)
            continue;
        if (checkpoint.version != p->version) {
            COD_TRY(adopt(peers, p, &checkpoint, context->step));
            COD_TRY(tell(p, context, "switch", NAN));
            peers->switches++;
        }
        COD_TRY(merge(peers, p, &checkpoint, context));
    }
    return peers->merging_count > 0 ? cod_merger_apply(peers->merger, peers->merging, peers->merging_count) : COD_OK;
}

void cod_peers_grow_old(cod_peers *peers)
{
    for (int i = 0; i < peers->count; i++) {
        cod_exchange_checkpoint checkpoint;
        cod_exchange_read_checkpoint(peers->exchange, i, &checkpoint);
        peers->items[i].age.age_s = checkpoint.age_s;
    }
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
    cod_exchange_checkpoint checkpoint;
    cod_exchange_read_checkpoint(peers->exchange, index, &checkpoint);
    *out = (cod_peer_stats){.group = p->group,
                            .version = p->version,
                            .step = p->age.step,
                            .age_s = checkpoint.age_s,
                            .pulled = counters.pulled,
                            .rejected = counters.rejected,
                            .lost = counters.lost,
                            .pulled_bytes = counters.bytes,
                            .bytes_per_s = counters.timed_s > 0 ? (double)counters.timed_bytes / counters.timed_s : NAN,
                            .weight = p->weight,
                            .teacher_loss = p->teacher_loss,
                            .student_loss = p->student_loss};
}

static void name_of(int index, const char *what, char name[32])
{
    snprintf(name, 32, "peer%d.%s", index, what);
}

enum { COUNTERS = 6 };
static const char *const counter_names[COUNTERS] = {"pulled", "rejected", "lost", "bytes", "timed_bytes", "timed_s"};

static cod_status save_counters(const cod_peers *peers, int index, cod_checkpoint *checkpoint)
{
    const cod_exchange_peer_counters c = counters_of(peers, index);
    const double numbers[COUNTERS] = {(double)c.pulled, (double)c.rejected,    (double)c.lost,
                                      (double)c.bytes,  (double)c.timed_bytes, c.timed_s};
    for (int k = 0; k < COUNTERS; k++) {
        char name[32];
        name_of(index, counter_names[k], name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, numbers[k]));
    }
    return COD_OK;
}

static cod_status load_counters(cod_peer *p, int index, const cod_st_file *file)
{
    int64_t numbers[COUNTERS - 1];
    char name[32];
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

cod_status cod_peers_save(const cod_peers *peers, cod_checkpoint *checkpoint)
{
    for (int i = 0; i < peers->count; i++) {
        const cod_peer *p = &peers->items[i];
        char name[32];
        size_t count;
        name_of(i, "since", name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->age.since));
        name_of(i, "merged", name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->merged));
        name_of(i, "merged_own", name);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)p->merged_own));
        COD_TRY(save_counters(peers, i, checkpoint));
        name_of(i, "ranges", name);
        const float *ranges = cod_teacher_ranges(p->teacher, &count);
        if (ranges != NULL)
            COD_TRY(cod_checkpoint_add_bytes(checkpoint, name, ranges, count * sizeof *ranges));
    }
    return COD_OK;
}

/** A teacher on integers goes on with the ranges it had; there are none where it was of another type. */
static cod_status load_ranges(cod_teacher *teacher, int index, const cod_st_file *file)
{
    char name[32];
    size_t count;
    name_of(index, "ranges", name);
    if (cod_teacher_ranges(teacher, &count) == NULL || cod_st_tensor_find(file, name) == NULL)
        return COD_OK;
    float *ranges = malloc(count * sizeof *ranges);
    COD_REQUIRE_MEMORY(ranges);
    const cod_status status = cod_checkpoint_read(file, name, ranges, count * sizeof *ranges);
    if (status == COD_OK)
        cod_teacher_set_ranges(teacher, ranges);
    free(ranges);
    return status;
}

cod_status cod_peers_load(cod_peers *peers, const cod_st_file *file)
{
    for (int i = 0; i < peers->count; i++) {
        cod_peer *p = &peers->items[i];
        cod_exchange_checkpoint checkpoint;
        char name[32];
        int64_t since, merged, merged_own;
        name_of(i, "since", name);
        COD_TRY(cod_checkpoint_whole(file, name, -1, &since));
        name_of(i, "merged", name);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &merged));
        name_of(i, "merged_own", name);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &merged_own));
        cod_exchange_read_checkpoint(peers->exchange, i, &checkpoint);
        if (checkpoint.values != NULL)
            COD_TRY(adopt(peers, p, &checkpoint, since));
        COD_TRY(load_ranges(p->teacher, i, file));
        COD_TRY(load_counters(p, i, file));
        p->age.since = since;
        p->merged = (uint64_t)merged;
        p->merged_own = (uint64_t)merged_own;
    }
    return COD_OK;
}
