/* `codistill plan`: building and timing what a group trains. */
#include "tools/plan_internal.h"

#include "core/queue.h"
#include "core/trace.h"
#include "distill/models.h"
#include "nn/optimiser.h"
#include "tools/bench/training.h"

#include <math.h>
#include <stdlib.h>

enum { RUNS = 4 };

bool plan_exchanges(const planned *p)
{
    return p->exchange != NULL && p->exchange->codec != COD_EXCHANGE_NONE && p->config->group_count != 1;
}

static bool trains_alike(const cod_run_config *config, int a, int b)
{
    const cod_group_config *first = cod_run_config_group(config, a), *second = cod_run_config_group(config, b);
    return first->architecture == second->architecture && first->ranks == second->ranks &&
           first->device == second->device;
}

/** The section `exchange` with what it needs of the run. @return whether there is one */
static bool read_exchange(const cod_run_config *config, cod_exchange_options *out)
{
    const cod_exchange_options *exchange = cod_run_config_section(config, &cod_exchange_option_table);
    if (exchange == NULL)
        return false;
    *out = *exchange;
    out->seed = (uint64_t)config->root.seed;
    out->deterministic = out->deterministic || config->train.deterministic;
    return true;
}

/** Peers of group `reader` that train like group `like`. */
static int peers_like(const cod_run_config *config, const cod_exchange_options *exchange, int reader, int like)
{
    int count = 0;
    for (int g = 0; g < (int)config->group_count; g++)
        count += cod_exchange_reads(exchange, (int)config->group_count, reader, g) && trains_alike(config, g, like);
    return count;
}

bool cod_plan_is_alike(const cod_run_config *config, int a, int b)
{
    cod_exchange_options exchange;
    bool alike = trains_alike(config, a, b);
    if (!read_exchange(config, &exchange))
        return alike;
    for (int g = 0; g < (int)config->group_count; g++)
        alike = alike && peers_like(config, &exchange, a, g) == peers_like(config, &exchange, b, g);
    return alike;
}

cod_shape plan_input_shape(const cod_run_config *config, const cod_group_config *group, int64_t batch)
{
    const cod_classifier_sizes *sizes = cod_model_sizes(group->kind, group->architecture);
    if (sizes != NULL)
        return (cod_shape){batch, sizes->height, sizes->width, sizes->channels};
    return (cod_shape){batch, config->data.patch, config->data.patch, 3};
}

/** Equal shares of all classes, where a run would correct for its own: what is computed is the same. */
static cod_status make_priors(planned *p)
{
    const cod_classifier_sizes *sizes = cod_model_sizes(p->group->kind, p->group->architecture);
    if (!p->config->train.prior_correction || sizes == NULL)
        return COD_OK;
    p->priors = calloc(p->config->group_count * (size_t)sizes->classes, sizeof *p->priors);
    COD_REQUIRE_MEMORY(p->priors);
    return COD_OK;
}

/** The training programs of this group, as the trainer compiles them. */
static cod_status build(planned *p, int index)
{
    static const char *const inputs[] = {COD_INPUT_DATA, COD_INPUT_TRUTH};
    const cod_run_config *config = p->config;
    cod_train_session *session = &p->session;
    COD_TRY(make_priors(p));
    *session = (cod_train_session){.config = config,
                                   .group = index,
                                   .backend = p->backend,
                                   .device = p->device,
                                   .sample = plan_input_shape(config, p->group, config->data.batch),
                                   .priors = p->priors,
                                   .averages = p->ranks != 1};
    COD_TRY(cod_precision_dtype((cod_precision)config->train.precision, p->backend, p->device, &session->activation));
    COD_TRY(config->strategy->create(config, &p->strategy));
    COD_TRY(cod_train_session_build(session, p->strategy));
    COD_TRY(cod_weights_fill_initial(&session->weights, 1));
    if (config->strategy->plan != NULL)
        config->strategy->plan(config, cod_weights_count(&session->weights), session->weights.layout.state,
                               &p->meetings);
    const cod_division division = {.only_part = p->meetings.part > 0, .count = p->meetings.part};
    COD_TRY(cod_train_session_compile(session, &division));
    return cod_bench_fill_inputs(p->backend, p->device, session->executable, inputs, sizeof inputs / sizeof inputs[0]);
}

/** The fastest of some runs of a teacher, after one for warming up. */
static cod_status time_program(const planned *p, cod_program *program, double *ms)
{
    *ms = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        const double start = cod_clock_s();
        COD_TRY(cod_program_run(program, NULL, NULL));
        COD_TRY(cod_queue_finish(p->backend, p->device, NULL));
        *ms = i > 0 ? fmin(*ms, 1e3 * (cod_clock_s() - start)) : *ms;
    }
    return COD_OK;
}

/** The same of a sub-step with its update. */
static cod_status time_sub_step(const cod_train_session *session, const cod_program_spec *spec, double *ms)
{
    cod_program *program = cod_train_program(session->executable, spec->name, 0);
    *ms = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        const double start = cod_clock_s();
        COD_TRY(cod_program_run(program, NULL, NULL));
        if (spec->trains != NULL) {
            const int set = cod_graph_set_index(session->recipe.model.graph, spec->trains);
            COD_TRY(cod_optimiser_step(session->optimisers[set], 1e-9, i + 1));
        }
        COD_TRY(cod_queue_finish(session->backend, session->device, NULL));
        *ms = i > 0 ? fmin(*ms, 1e3 * (cod_clock_s() - start)) : *ms;
    }
    return COD_OK;
}

/** Of a step, in the mean where sub-steps are not due in each. */
static cod_status time_step(const cod_train_session *session, double *ms)
{
    *ms = 0;
    for (size_t s = 0; s < session->recipe.step_count; s++) {
        const cod_sub_step *sub_step = &session->recipe.steps[s];
        double one;
        COD_TRY(time_sub_step(session, &sub_step->program, &one));
        const int64_t steps = session->config->train.steps;
        *ms += one * (double)cod_sub_step_times_due(sub_step, steps) / (double)steps;
    }
    return COD_OK;
}

static cod_status build_teacher(const planned *p, cod_model *model, cod_weights *weights, cod_executable **executable)
{
    static const char *const inputs[] = {"input"};
    COD_TRY(cod_weights_init(weights, p->backend, p->device, model->graph, COD_F32, false));
    COD_TRY(cod_weights_fill_initial(weights, 1));
    const int64_t pictures = (int64_t)ceil(p->distill->batch_fraction * (double)p->config->data.batch);
    const cod_input_shape input = {"input", plan_input_shape(p->config, p->group, pictures)};
    const cod_precision precision = (cod_precision)p->distill->teacher_precision;
    cod_compile_options options = {.activation = p->session.activation, .inputs = &input, .input_count = 1};
    if (precision != COD_PRECISION_AUTO)
        COD_TRY(cod_precision_dtype(precision, p->backend, p->device, &options.activation));
    const cod_program_spec spec = {.name = "teacher", .outputs = {model->output}};
    COD_TRY(cod_compile(model->graph, weights, &options, &spec, 1, executable));
    return cod_bench_fill_inputs(p->backend, p->device, *executable, inputs, 1);
}

/** On the device; 0 where the backend does not count it. */
static double allocated_bytes(const planned *p)
{
    return p->backend->allocated != NULL ? (double)p->backend->allocated(p->device) : 0;
}

/**
 * Memory and time of one teacher of a peer's architecture; on integers the time without rounding, which is no shorter.
 */
static cod_status measure_teacher(const planned *p, const cod_group_config *peer, double *bytes, double *ms)
{
    cod_model model = {0};
    cod_weights weights = {0};
    cod_executable *executable = NULL;
    const double before = allocated_bytes(p);
    cod_status status = cod_model_build(peer->kind, peer->architecture, &model);
    COD_THEN(status, build_teacher(p, &model, &weights, &executable));
    COD_THEN(status, time_program(p, cod_executable_program(executable, "teacher"), ms));
    const int programs = p->distill->teacher_precision == COD_PRECISION_INT8 ? 2 : 1; /* one that observes ranges */
    if (status == COD_OK) {
        const double values = 4.0 * (double)cod_weights_count(&weights), run = (double)cod_executable_bytes(executable);
        const double packed = fmax(0, allocated_bytes(p) - before - values - run);
        *bytes = values + programs * (run + packed);
    }
    cod_executable_destroy(executable);
    if (weights.backend != NULL)
        cod_weights_clear(&weights);
    cod_model_clear(&model);
    return status;
}

static cod_status measure_teachers(planned *p, int mine)
{
    const cod_group_config *last = NULL;
    double bytes = 0, ms = 0;
    for (int g = 0; g < (int)p->config->group_count; g++) {
        if (!cod_exchange_reads(p->exchange, (int)p->config->group_count, mine, g))
            continue;
        const cod_group_config *peer = cod_run_config_group(p->config, g);
        if (last == NULL || last->architecture != peer->architecture)
            COD_TRY(measure_teacher(p, peer, &bytes, &ms));
        last = peer;
        p->teachers.count++;
        p->teachers.bytes += bytes;
        p->teachers.ms += ms;
    }
    if (p->teachers.count > 0)
        p->teachers.ms /= p->teachers.count;
    return COD_OK;
}

static cod_status plan_exchange(planned *p, int mine)
{
    const int groups = p->config->group_count > 0 ? (int)p->config->group_count : 1;
    cod_exchange_model *models = NULL;
    int *ranks = calloc((size_t)groups, sizeof *ranks);
    COD_REQUIRE_MEMORY(ranks);
    for (int g = 0; g < groups; g++)
        ranks[g] = cod_run_config_group(p->config, g)->ranks;
    const cod_status status = cod_exchange_models_read(p->config, groups, &models);
    if (status == COD_OK)
        p->sizes = cod_exchange_plan(p->exchange, models, ranks, groups, mine,
                                     cod_backend_runs_at_once(p->backend) ? ranks[mine] : 1);
    free(models);
    free(ranks);
    return status == COD_OK && p->distill->weight != 0 ? measure_teachers(p, mine) : status;
}

static cod_status measure(planned *p, int index)
{
    COD_TRY(build(p, index));
    COD_TRY(time_step(&p->session, &p->step_ms));
    if (plan_exchanges(p))
        COD_TRY(plan_exchange(p, index));
    if (p->config->strategy->plan_stages != NULL && p->ranks > 1)
        COD_TRY(p->config->strategy->plan_stages(&p->session, p->ranks, &p->stages, &p->stage_count));
    return COD_OK;
}

cod_status plan_measure(planned *p, const cod_run_config *config, int index, const cod_plan_device *device,
                        const cod_plan_load *load)
{
    const cod_group_config *group = cod_run_config_group(config, index);
    const bool known = config->group_count > 0;
    *p = (planned){.config = config,
                   .group = group,
                   .backend = device->backend,
                   .device = device->device,
                   .load = load,
                   .ranks = cod_run_config_is_one_group(config) ? cod_run_config_ranks(config)
                            : known                             ? group->ranks
                                                                : 0,
                   .distill = cod_run_config_section(config, &cod_distill_option_table)};
    if (read_exchange(config, &p->exchange_options))
        p->exchange = &p->exchange_options;
    return measure(p, index);
}

void plan_clear(planned *p)
{
    free(p->stages);
    free(p->priors);
    cod_train_session_clear(&p->session);
    if (p->strategy != NULL)
        p->strategy->ops->destroy(p->strategy);
}
