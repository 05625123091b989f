#include "train/trainer_internal.h"

#include "core/log.h"
#include "core/queue.h"
#include "infer/model_file.h"
#include "infer/named_model.h"
#include "train/memory_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Splits the world as strategy and configuration say. */
static cod_status make_group(trainer *t)
{
    cod_comm *comm = t->request->comm;
    const cod_run_config *config = t->config;
    const int size = cod_comm_size(comm);
    if (config->strategy->single_rank)
        COD_REQUIRE(size == 1,
                    "strategy '%s' trains on one rank, but the job has %d; start it with -n 1, or without mpirun",
                    config->strategy->name, size);
    if (cod_run_config_is_one_group(config))
        return cod_group_create(comm, &size, 1, &t->group);
    if (config->group_count == 0)
        return cod_group_create_by_node(comm, &t->group);
    const int wanted = cod_run_config_ranks(config);
    COD_REQUIRE(config->only_group < 0 || wanted == size,
                "group %d has %d rank%s, but its job has %d; start it with -n %d, or change cluster.groups or "
                "cluster.ranks_per_group",
                config->only_group, wanted, wanted == 1 ? "" : "s", size, wanted);
    COD_REQUIRE(wanted == size,
                "cluster asks for %zu groups with %d ranks in all, but the job has %d; start it with -n %d, or change "
                "cluster.groups or cluster.ranks_per_group",
                config->group_count, wanted, size, wanted);
    int *ranks = calloc(config->group_count, sizeof *ranks);
    COD_REQUIRE_MEMORY(ranks);
    for (size_t g = 0; g < config->group_count; g++)
        ranks[g] = config->groups[g].ranks;
    const cod_status status = config->only_group < 0 ? cod_group_create(comm, ranks, config->group_count, &t->group)
                                                     : cod_group_create_part(comm, ranks, config->group_count,
                                                                             (size_t)config->only_group, &t->group);
    free(ranks);
    return status;
}

/** Whether the group averages inside its nodes first. Collective on the group. */
static cod_status choose_allreduce(trainer *t)
{
    const int wanted = t->config->train.allreduce;
    if (wanted == COD_ALLREDUCE_FLAT || wanted == COD_ALLREDUCE_NCCL || wanted == COD_ALLREDUCE_DIRECT ||
        t->config->train.allreduce_codec != COD_ALLREDUCE_EXACT ||
        (wanted == COD_ALLREDUCE_AUTO && !cod_group_gains_by_node(t->group)))
        return COD_OK;
    if (t->leader)
        cod_log_info("group %d: gradients are averaged inside its nodes first, then between one rank of each",
                     cod_group_index(t->group));
    return cod_group_average_by_node(t->group, NULL);
}

/** Initial values of all sets, and of the model those of a file where one is named. */
static cod_status init_weights(trainer *t)
{
    const cod_model_options *options = &cod_run_config_group(t->config, cod_group_index(t->group))->model;
    cod_train_session *session = &t->session;
    const bool own = strcmp(options->init, "own") == 0;
    uint64_t seed = (uint64_t)t->config->root.seed;
    if (own)
        seed += 0x9E3779B97F4A7C15u * (uint64_t)(1 + cod_group_index(t->group));
    COD_TRY(cod_train_session_fill(session, seed));
    if (own || strcmp(options->init, "shared") == 0)
        return COD_OK;
    cod_load_counts counts;
    cod_arena arena = {0};
    const char *file = NULL;
    const cod_load_mode mode = options->init_mode == 0 ? COD_LOAD_STRICT : COD_LOAD_PARTIAL;
    cod_status status = cod_named_model_find(&arena, options->init, &file);
    COD_THEN(status, cod_model_load_weights(file, &session->recipe.model, mode, &session->weights, &counts));
    cod_arena_clear(&arena);
    if (status == COD_OK && t->leader)
        cod_log_info("model.init: %zu tensors from '%s', %zu of the model not in it", counts.loaded, options->init,
                     counts.missing + counts.misshapen);
    return status;
}

/** A strategy that divides a network over ranks knows how to divide one. */
static cod_status check_sets(const trainer *t)
{
    const cod_recipe *recipe = &t->session.recipe;
    int trained = 0;
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        trained += recipe->sets[s].trained;
    COD_REQUIRE(trained == 1 || !t->config->strategy->one_set,
                "strategy '%s' trains one network, but recipe '%s' has %d", t->config->strategy->name,
                recipe->kind->name, trained);
    const cod_strategy_division *division = t->strategy->ops->division;
    COD_REQUIRE(division == NULL || division->compute == NULL || recipe->step_count == 1,
                "strategy '%s' runs one program a step, but recipe '%s' has %zu", t->config->strategy->name,
                recipe->kind->name, recipe->step_count);
    return COD_OK;
}

/**
 * How many groups the data are for: one group in the place of several holds what they do together, one rank what the
 * first does.
 */
static int groups_with_data(const trainer *t)
{
    const cod_run_config *config = t->config;
    if (!cod_run_config_is_one_group(config) || config->group_count == 0)
        return cod_group_count(t->group);
    /* The first ranks serve, and groups of nothing else hold nothing. */
    const int servers = cod_run_config_servers(config);
    int groups = 0, ranks = 0;
    for (size_t g = 0; g < config->group_count; g++) {
        ranks += config->groups[g].ranks;
        groups += ranks > servers;
    }
    return groups;
}

/** Whoever sets val_count to 0 may mean that nothing is held out. */
static void tell_fraction(const cod_run_config *config)
{
    const cod_data_options *data = &config->data;
    if (cod_config_find(config->config, "data.val_count") != NULL && data->val_count == 0 && data->val_fraction > 0 &&
        cod_config_find(config->config, "data.val_fraction") == NULL && data->val_path.count == 0 && data->folds == 0)
        cod_log_info("data.val_count=0 leaves it to data.val_fraction (%g) how much is held out; "
                     "data.val_fraction=0 holds out nothing",
                     data->val_fraction);
}

static cod_status open_data(trainer *t)
{
    const cod_run_config *config = t->config;
    char left_out[4096];
    snprintf(left_out, sizeof left_out, "%s/left-out.%d.txt", t->folder, cod_group_index(t->group));
    const cod_dataset_place place = {
        .seed = (uint64_t)config->root.seed,
        .group = cod_group_index(t->group),
        .groups = groups_with_data(t),
        .all = config->strategy->one_group,
        .report = cod_comm_rank(t->request->comm) == 0,
        .left_out = left_out,
    };
    const cod_train_task_kind *kind = config->task;
    if (place.report)
        tell_fraction(config);
    COD_TRY(kind->open(t->config, &place, &t->task));
    if (t->leader)
        COD_TRY(kind->open_sets(t->task, config, place.report));
    return COD_OK;
}

/** Groups may read their data on machines of their own: they must be the same sort of data. Collective on all ranks. */
static cod_status compare_data(trainer *t)
{
    enum { FACTS = 4 };
    const cod_samples *samples = &t->task->samples;
    const double facts[FACTS] = {(double)samples->input.h, (double)samples->input.w, (double)samples->input.c,
                                 (double)samples->target.c};
    double ends[2 * FACTS]; /* greatest, and least with its sign turned */
    for (int i = 0; i < FACTS; i++)
        ends[i] = facts[i], ends[FACTS + i] = -facts[i];
    COD_TRY(cod_group_reduce(cod_comm_world(t->request->comm), ends, 2 * FACTS, COD_REDUCE_MAX));
    COD_REQUIRE(ends[FACTS - 1] == -ends[2 * FACTS - 1],
                "groups must know the same classes, but their data have from %.0f to %.0f; this group's has %.0f",
                -ends[2 * FACTS - 1], ends[FACTS - 1], facts[FACTS - 1]);
    for (int i = 0; i < FACTS; i++)
        COD_REQUIRE(ends[i] == -ends[FACTS + i],
                    "groups must train on data of one shape; this group's is %.0fx%.0fx%.0f, another's is not",
                    facts[0], facts[1], facts[2]);
    return COD_OK;
}

static cod_status start_loader(trainer *t)
{
    const cod_run_config *config = t->config;
    const cod_loader_options options = {
        .batch = t->session.sample.n,
        .seed = (uint64_t)config->root.seed,
        .group = cod_group_index(t->group),
        .rank = (cod_group_rank(t->group) - trainer_servers(t)) / trainer_stages(t),
        .ranks = trainer_replicas(t),
        .threads = (int)config->data.threads,
        .prefetch = (int)config->data.prefetch,
        .bytes = cod_feed_takes_bytes(&t->batches.feed),
    };
    return cod_loader_create(&t->task->samples, &options, (uint64_t)(t->context.step * config->train.accumulate),
                             &t->context.loader);
}

/** In place of the group's own average of gradients. */
static cod_status code_allreduce(trainer *t)
{
    if (t->config->train.allreduce_codec == COD_ALLREDUCE_EXACT || cod_group_size(t->group) == 1)
        return COD_OK;
    COD_TRY(cod_coded_allreduce_create(t->group, t->session.weights.layout.trainable, &t->coded));
    t->context.collective = cod_coded_allreduce_collective(t->coded);
    return COD_OK;
}

/** Gradients may lie where MPI does not reach. Collective on the group. */
static cod_status show_device(trainer *t)
{
    return cod_group_use_device(t->group, t->session.backend, t->session.device);
}

/** Local work of each rank, which may fail on one rank alone. */
static cod_status set_up_locally(trainer *t)
{
    COD_TRY(t->config->strategy->create(t->config, &t->strategy));
    COD_TRY(cod_train_session_build(&t->session, t->strategy));
    COD_TRY(check_sets(t));
    COD_TRY(trainer_losses_init(&t->losses, &t->session.recipe));
    cod_guards_init(&t->guards, &t->session.recipe);
    trainer_tell_run(t);
    COD_TRY(init_weights(t));
    return code_allreduce(t);
}

/** Sets that are updated one after the other need a step's mini-batches once more each. */
static bool needs_batches_again(const cod_recipe *recipe)
{
    int updates = 0;
    for (size_t i = 0; i < recipe->step_count; i++)
        updates += recipe->steps[i].program.trains != NULL;
    return updates > 1;
}

static cod_status compile_locally(trainer *t, const cod_division *division)
{
    const cod_train_session *session = &t->session;
    COD_TRY(cod_train_session_compile(&t->session, division));
    COD_TRY(trainer_losses_connect(&t->losses, session, !trainer_leaves_computing(t)));
    if (t->leader && cod_backend_runs_at_once(session->backend) && t->config->data.transfer != COD_TRANSFER_AUTO)
        cod_log_info("group %d: data.transfer: %s changes nothing here: backend '%s' computes in the host's memory",
                     cod_group_index(t->group), cod_data_transfer_names[t->config->data.transfer],
                     session->backend->name);
    return cod_batches_init(&t->batches, session, &t->task->samples, needs_batches_again(&session->recipe));
}

static cod_status make_agreements(trainer *t)
{
    t->agreements = (trainer_agreements){
        .group = t->group, .world = cod_comm_world(t->request->comm), .together_every = trainer_in_step_every(t)};
    return trainer_agreements_init(&t->agreements, t->strategy->agree_within, t->losses.count, t->strategy->flag_count);
}

/** Set-up before the device: opens the data, which determine the mini-batch. Collective on all ranks. */
static cod_status describe_data(trainer *t)
{
    cod_train_session *session = &t->session;
    cod_status status = COD_OK;
    COD_TRY(cod_group_agree(cod_comm_world(t->request->comm), open_data(t), NULL));
    COD_TRY(compare_data(t));
    if (t->leader)
        status = trainer_data_identify(&t->data, &t->config->data, t->task, t->folder, cod_group_index(t->group));
    COD_TRY(cod_group_agree(cod_comm_world(t->request->comm), status, NULL));
    t->evaluator = (trainer_evaluator){.task = t->task,
                                       .folder = t->folder,
                                       .checkpoints = t->checkpoints,
                                       .best = cod_task_quality_unknown(),
                                       .last = cod_task_results_unknown()};
    *session = (cod_train_session){.config = t->config,
                                   .group = cod_group_index(t->group),
                                   .sample = t->task->samples.input,
                                   .priors = t->task->priors,
                                   .averages = cod_group_size(t->group) > 1};
    session->sample.n = t->config->data.batch;
    return COD_OK;
}

static void tell_stage(const trainer *t, cod_train_stage stage)
{
    const cod_train_place place = {
        .group = cod_group_index(t->group), .groups = cod_group_count(t->group), .leads = t->leader};
    if (t->request->follow != NULL)
        t->request->follow(t->request->follow_context, stage, &place);
}

cod_status trainer_set_up(trainer *t)
{
    cod_group *world = cod_comm_world(t->request->comm);
    cod_train_context *context = &t->context;
    cod_division division = {0};
    COD_TRY(cod_group_agree(world, make_group(t), NULL));
    t->leader = cod_group_rank(t->group) == 0;
    COD_TRY(cod_group_agree(world, choose_allreduce(t), NULL));
    trainer_group_part(cod_group_index(t->group), t->part);
    trainer_rank_part(trainer_rank(t), t->rank_part);
    trainer_closing_part(cod_group_index(t->group), t->closing_part);
    COD_TRY(trainer_open_folder(t));
    tell_stage(t, COD_TRAIN_OPENED);
    COD_TRY(trainer_agree_nonce(t));
    *context = (cod_train_context){.config = t->config,
                                   .session = &t->session,
                                   .comm = t->request->comm,
                                   .group = t->group,
                                   .collective = cod_group_collective(t->group),
                                   .steps = t->config->train.steps};
    COD_TRY(cod_comm_bind(t->request->comm, (cod_bind_mode)t->config->cluster.bind, &t->binding));
    COD_TRY(describe_data(t));
    COD_TRY(trainer_open_device(t));
    COD_TRY(cod_group_agree(world, set_up_locally(t), NULL));
    trainer_tell_group(t); /* after the first rank has told of the run */
    COD_TRY(cod_group_agree(world, show_device(t), NULL));
    COD_TRY(cod_group_agree(world, trainer_choose_averages(t), NULL));
    COD_TRY(STRATEGY_PART(t, division, place, context, &division));
    COD_TRY(cod_group_agree(world, compile_locally(t, &division), NULL));
    COD_TRY(cod_memory_plan_explain(&t->session, STRATEGY(t, start, context)));
    trainer_tell_memory(t);
    COD_TRY(cod_group_agree(world, make_agreements(t), NULL));
    COD_TRY(trainer_resume(t));
    COD_TRY(cod_group_agree(world, trainer_restore_early_end(t), NULL));
    t->first_step = context->step;
    COD_TRY(trainer_look_whether_finished(t));
    if (t->finished_before)
        return COD_OK;
    trainer_tell_resume(t);
    cod_trace_process process;
    COD_TRY(trainer_describe_process(t, &process));
    cod_status status = COD_OK;
    if (context->step > context->steps)
        status = cod_fail(COD_ERR_ARGUMENT,
                          "the run is at step %lld already, train.steps asks for %lld (another name= begins a new run, "
                          "checkpoint.resume=never begins anew in its place)",
                          (long long)context->step, (long long)context->steps);
    if (trainer_trains(t))
        COD_THEN(status, start_loader(t));
    COD_THEN(status, trainer_open_trace(t, &process));
    if (t->leader)
        COD_THEN(status, cod_metrics_open(t->folder, cod_group_index(t->group), context->step,
                                          t->config->log.tensorboard, &t->metrics));
    if (status == COD_OK && t->leader)
        cod_metrics_set_stop_signal(t->metrics, t->request->stop_signal);
    context->metrics = t->metrics;
    if (t->leader)
        COD_THEN(status, trainer_data_write(&t->data));
    if (cod_comm_rank(context->comm) == 0)
        COD_THEN(status, trainer_claim_folder(t));
    COD_TRY(cod_group_agree(world, status, NULL));
    tell_stage(t, COD_TRAIN_BEGINS);
    return COD_OK;
}

void trainer_clear(trainer *t)
{
    const cod_backend *backend = t->session.backend;
    cod_device *device = t->session.device;
    if (t->trace != NULL)
        cod_trace_set_sink(NULL, NULL);
    if (cod_trace_file_close(t->trace) != COD_OK)
        cod_log_warn("trace: %s", cod_error_message());
    cod_loader_destroy(t->context.loader);
    cod_metrics_close(t->metrics);
    if (t->strategy != NULL)
        t->strategy->ops->destroy(t->strategy);
    cod_batches_clear(&t->batches);
    trainer_losses_clear(&t->losses);
    if (t->task != NULL)
        t->task->kind->close(t->task);
    trainer_evaluator_clear(&t->evaluator);
    trainer_data_clear(&t->data);
    cod_group_leave_device(t->group); /* its plans name the session's buffers */
    cod_train_session_clear(&t->session);
    if (t->between_devices != NULL)
        backend->collective_destroy(device, t->between_devices);
    if (device != NULL)
        backend->close(device);
    cod_coded_allreduce_destroy(t->coded);
    cod_group_destroy(t->group);
    trainer_agreements_clear(&t->agreements);
    cod_file_lock_release(t->group_lock);
    cod_file_lock_release(t->lock);
}
