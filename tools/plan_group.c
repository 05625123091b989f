/* `codistill plan`: what a group's ranks hold, move and take time for, in words. */
#include "tools/plan_internal.h"

#include "core/slots.h"
#include "tools/print.h"
#include "train/coded_allreduce.h"
#include "train/memory_plan.h"
#include "train/task.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

static double megabytes(double bytes)
{
    return bytes / 1e6;
}

/** Of one mini-batch. */
static double batch_bytes(const planned *p)
{
    const cod_data_options *data = &p->config->data;
    const double scale = cod_model_scale(&p->session.recipe.model);
    const cod_classifier_sizes *sizes = cod_model_sizes(p->group->kind, p->group->architecture);
    const double input = (double)cod_shape_count(plan_input_shape(p->config, p->group, data->batch));
    const double target = sizes != NULL ? (double)(data->batch * sizes->classes) : input * scale * scale;
    return sizeof(float) * (input + target);
}

/**
 * What copies between host and device go through, pinned or on the device, as far as the exchange does not count it.
 */
static double copies_bytes(const planned *p)
{
    const double slots = 2 * COD_SLOTS * batch_bytes(p),
                 gradients = p->ranks != 1 ? 4.0 * (double)p->session.weights.layout.trainable : 0,
                 inside = p->meetings.host_bytes > 0 ? p->meetings.host_bytes : gradients,
                 checkpoints = p->teachers.count > 0 ? 0.5 * (double)p->sizes.held_bytes : 0;
    return cod_backend_runs_at_once(p->backend) ? 0 : slots + inside + checkpoints;
}

static bool is_coded(const planned *p)
{
    return p->config->train.allreduce_codec != COD_ALLREDUCE_EXACT && p->ranks != 1;
}

/** Ranks of the group; as many as can be where the launcher decides. */
static int most_ranks(const planned *p)
{
    return p->ranks > 0 ? p->ranks : INT_MAX;
}

/** @param merging  bytes for it on the device */
static void print_device_memory(const planned *p, double merging)
{
    cod_memory_plan plan;
    char text[COD_MEMORY_PLAN_TEXT];
    if (!cod_memory_plan_read(&p->session, &plan))
        return;
    const bool codes = p->sizes.peers > 0 && cod_exchange_codes_on(p->backend, p->session.device);
    const double slots = COD_SLOTS * batch_bytes(p);
    plan.beside = (size_t)(p->teachers.bytes + (codes ? (double)p->sizes.device_bytes : 0) + merging + slots);
    cod_memory_plan_format(&plan, text);
    cod_print(stdout, "  of that in the device's memory, MB: %s\n", text);
}

/** What a rank does: all of it, or where some serve, one of both. */
typedef enum rank_role { ROLE_BOTH, ROLE_SERVES, ROLE_TRAINS } rank_role;

typedef struct memory_part {
    const char *name;
    double bytes;
} memory_part;

/** On one line with their sum. */
static void print_parts(const char *whose, const memory_part *parts, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += parts[i].bytes;
    cod_print(stdout, "  memory of %s: %.1f MB, validation not counted\n", whose, megabytes(sum));
    fputs("   ", stdout);
    for (size_t i = 0; i < count; i++)
        if (parts[i].bytes > 0)
            cod_print(stdout, "%s %s %.1f", i ? "," : "", parts[i].name, megabytes(parts[i].bytes));
    putchar('\n');
}

/** Of a rank's weights and what belongs to each of them. */
typedef struct kept_values {
    double weights, gradients, moments, average;
    bool once; /**< the node's ranks hold weights and averages together */
} kept_values;

static kept_values values_kept(const planned *p)
{
    const cod_train_options *train = &p->config->train;
    const double values = 4.0 * (double)cod_weights_count(&p->session.weights),
                 gradients = 4.0 * (double)p->session.weights.layout.trainable;
    double updated = p->stage_count > 0 ? 0 : p->meetings.part > 0 ? 4.0 * (double)p->meetings.part : gradients;
    for (size_t i = 0; i < p->stage_count; i++)
        updated = fmax(updated, 4.0 * (double)p->stages[i].parameters);
    const double kept = p->meetings.once_a_node ? gradients / fmax(1, p->ranks) : updated;
    return (kept_values){.weights = values,
                         .gradients = gradients,
                         .moments = train->optimiser != COD_OPT_SGD ? 2 * kept
                                    : train->momentum != 0          ? kept
                                                                    : 0,
                         .average = train->ema > 0 ? values : 0,
                         .once = p->meetings.once_a_node && cod_backend_runs_at_once(p->backend)};
}

/**
 * A rank that serves computes no gradients, and one that only trains updates nothing. Both have the same programs and
 * buffers, but on the host memory that is never written is never taken.
 *
 * @param merging  bytes on the device
 */
static void print_rank_memory(const planned *p, rank_role role, const char *whose, double merging)
{
    const kept_values kept = values_kept(p);
    const bool host = cod_backend_runs_at_once(p->backend), trains = role != ROLE_SERVES || !host,
               updates = role != ROLE_TRAINS || (!host && p->meetings.part == 0);
    double activations = p->stage_count > 0 ? 0 : (double)cod_executable_bytes(p->session.executable);
    for (size_t i = 0; i < p->stage_count; i++)
        activations = fmax(activations, p->stages[i].memory_bytes);
    const double meeting = role == ROLE_SERVES ? p->meetings.server_bytes : p->meetings.memory_bytes,
                 exchange = (double)p->sizes.memory_bytes + 1.5 * merging + meeting;
    const cod_data_options *data = &p->config->data;
    const double batches = (data->threads > 0 ? (double)data->prefetch + 1 : 1) * batch_bytes(p);
    const double coding =
        is_coded(p) ? cod_coded_allreduce_memory_bytes(p->session.weights.layout.trainable, most_ranks(p)) : 0;
    const double share = kept.once ? 1 / fmax(1, p->ranks) : 1;
    const memory_part parts[] = {{"weights", share * kept.weights},
                                 {"gradients", kept.gradients},
                                 {"optimiser", updates ? kept.moments : 0},
                                 {"moving average", updates ? share * kept.average : 0},
                                 {"activations", trains ? activations : 0},
                                 {"teachers", p->teachers.bytes},
                                 {"exchange", exchange},
                                 {"coded gradients", coding},
                                 {"batches made ahead", role != ROLE_SERVES ? batches : 0},
                                 {"copies to and from the device", copies_bytes(p)}};
    print_parts(whose, parts, sizeof parts / sizeof parts[0]);
}

static void print_memory(const planned *p)
{
    const int servers = cod_run_config_servers(p->config);
    const kept_values kept = values_kept(p);
    /*
     * Beside the exchange's own, where weights are merged on a device: the change and own weights there, and a copy on
     * the host.
     */
    const bool merges =
        plan_exchanges(p) && p->exchange->merge != COD_MERGE_NONE && !cod_backend_runs_at_once(p->backend);
    const double merging = merges ? 2 * kept.weights : 0, ranks = fmax(1, p->ranks), share = kept.once ? 1 / ranks : 1;
    if (servers > 0)
        print_rank_memory(p, ROLE_SERVES, "a rank that serves", merging);
    print_rank_memory(p, servers > 0 ? ROLE_TRAINS : ROLE_BOTH, servers > 0 ? "a rank that trains" : "a rank", merging);
    print_device_memory(p, merging);
    if (plan_exchanges(p) && p->ranks > 1 && cod_backend_runs_at_once(p->backend))
        printf("  peers' checkpoints and own publications: %.1f MB, held together by the group's %d ranks, where they "
               "run on one node; on several, each node holds as much\n",
               megabytes(ranks * (double)(p->sizes.held_bytes + p->sizes.own_bytes)), p->ranks);
    if (p->ranks > 1 && servers == 0)
        cod_print(stdout, "  weights, gradients, optimiser and moving average of %d ranks on one node: %.1f MB%s\n",
                  p->ranks, megabytes(ranks * (share * (kept.weights + kept.average) + kept.moments + kept.gradients)),
                  kept.once                 ? ", all but gradients once"
                  : p->meetings.once_a_node ? ", moments once"
                                            : "");
    printf("  memory of a node: decoded pictures, at most %lld MiB (data.cache_mb)\n",
           (long long)p->config->data.cache_mb);
}

/** What takes the place of an all-reduce. */
static void print_in_group(const cod_strategy_plan *plan)
{
    const double sent = megabytes(plan->sent_bytes), received = megabytes(plan->received_bytes);
    if (plan->once_a_node) {
        cod_print(stdout, "  inside the group, each step: %s; at most %.1f MB cross each way of a node\n", plan->what,
                  sent);
        return;
    }
    if (plan->received_bytes == 0 || plan->received_bytes == plan->sent_bytes)
        cod_print(stdout, "  inside the group, each step: %s, %.1f MB each way for each rank that trains\n", plan->what,
                  sent);
    else
        cod_print(stdout,
                  "  inside the group, each step: %s, %.2f MB sent and %.2f MB received by each rank that trains\n",
                  plan->what, sent, received);
}

/** Networks that the ranks train side by side. */
static int networks(const planned *p)
{
    return p->stage_count > 0 ? p->ranks / (int)p->stage_count : p->ranks;
}

/** A step's time as a multiple of one that a single rank takes for a network's mini-batches. */
static double pipeline_factor(const planned *p)
{
    const double batches = (double)p->config->train.accumulate;
    double greatest = p->stage_count > 0 ? 0 : 1;
    for (size_t i = 0; i < p->stage_count; i++)
        greatest = fmax(greatest, p->stages[i].share);
    return p->stage_count > 0 ? greatest * (batches + (double)p->stage_count - 1) / batches : 1;
}

static void print_stages(const planned *p)
{
    const double batches = (double)p->config->train.accumulate, idle = (double)p->stage_count - 1;
    if (p->stage_count == 0)
        return;
    cod_print(
        stdout,
        "  %zu stages, %d network%s, %.0f mini-batches a step: with equal stages each idles %.1f %% of the time\n",
        p->stage_count, networks(p), networks(p) == 1 ? "" : "s", batches, 100 * idle / (batches + idle));
    for (size_t i = 0; i < p->stage_count; i++) {
        const cod_strategy_stage *s = &p->stages[i];
        cod_print(
            stdout,
            "  stage %zu: layers %s to %s, %zu parameters, %.1f %% of the work (%s), activations and messages %.1f MB, "
            "%.3f MB sent in a step\n",
            i, s->first, s->last, s->parameters, 100 * s->share, s->timed ? "timed" : "operations counted",
            megabytes(s->memory_bytes), megabytes(s->sent_bytes));
        if (networks(p) > 1)
            printf("    and %.2f MB a rank all-reduced\n",
                   megabytes(8.0 * (double)s->parameters * (networks(p) - 1) / networks(p)));
    }
}

/** Of groups that publish. */
static void print_publications(const planned *p)
{
    const cod_exchange_options *exchange = p->exchange;
    const char *codec = cod_option_find(&cod_exchange_option_table, "codec")->choices[exchange->codec],
               *what = cod_exchange_fragments(exchange) > 1 ? "fragment" : "publication";
    const bool shortened = exchange->entropy > 0 || exchange->codec == COD_EXCHANGE_AUTO,
               waits = exchange->deterministic || exchange->replay[0] != '\0';
    char at_a_time[32] = "", advice[512];
    if (p->sizes.pulls > 1)
        snprintf(at_a_time, sizeof at_a_time, ", %d at a time", p->sizes.pulls);
    cod_print(stdout, "  between groups, each %lld steps: a %s of at most %.2f MB (%s%s)",
              (long long)cod_exchange_spacing(exchange), what, megabytes((double)p->sizes.published), codec,
              shortened ? " before compression" : "");
    if (p->sizes.peers > 0)
        cod_print(stdout, "; %d peer%s pulled%s, %.2f MB", p->sizes.peers, p->sizes.peers > 1 ? "s" : "", at_a_time,
                  megabytes((double)p->sizes.pulled));
    else if (p->config->group_count == 0)
        printf("; peers, one a node, are in none of these figures");
    putchar('\n');
    if (cod_exchange_falls_behind(exchange, p->sizes.peers, advice, sizeof advice))
        cod_print(stdout, "    %s\n", advice);
    if (!waits)
        printf("    with exchange.period %lld a group can follow about %d peers\n", (long long)exchange->period,
               cod_exchange_peers_allowed(exchange));
}

static void print_traffic(const planned *p)
{
    const double gradients = 4.0 * (double)p->session.weights.layout.trainable;
    const double sent = is_coded(p) ? cod_coded_allreduce_sent_bytes(p->session.weights.layout.trainable, most_ranks(p))
                                    : 2 * gradients * (most_ranks(p) - 1) / most_ranks(p);
    const cod_strategy_plan *meetings = &p->meetings;
    char how[96] = "";
    if (is_coded(p))
        snprintf(how, sizeof how, " as %s", cod_allreduce_codec_names[p->config->train.allreduce_codec]);
    else if (p->config->train.allreduce != COD_ALLREDUCE_FLAT)
        snprintf(how, sizeof how, "; at most %.1f MB cross each way of a node", megabytes(2 * gradients));
    if (p->stage_count > 0)
        print_stages(p);
    else if (p->config->strategy->plan_stages != NULL)
        puts("  how many ranks the launcher starts decides on the stages");
    else if (meetings->in_group)
        print_in_group(meetings);
    else if (p->ranks > 1)
        cod_print(stdout, "  inside the group, each step: %.1f MB a rank all-reduced%s\n", megabytes(sent), how);
    else if (p->ranks == 0)
        cod_print(stdout, "  inside the group, each step: up to %.1f MB a rank all-reduced%s\n", megabytes(sent), how);
    if (meetings->what[0] != '\0' && !meetings->in_group && p->config->group_count != 1) {
        cod_print(stdout, "  between groups, each %lld steps: %s", (long long)meetings->every_steps, meetings->what);
        if (p->config->group_count == 0)
            puts("; how many nodes the launcher has decides how much moves");
        else
            printf(", %.2f MB sent and received by each group, which waits for all\n", megabytes(meetings->sent_bytes));
    }
    if (plan_exchanges(p))
        print_publications(p);
    else if (p->exchange != NULL)
        cod_print(stdout, "  between groups: nothing (%s)\n",
                  p->config->group_count == 1 ? "there is one group" : "exchange.codec: none");
}

static void print_group(const planned *p)
{
    const cod_train_options *train = &p->config->train;
    const double every = p->distill != NULL ? (double)p->distill->every : 1;
    const double slower = p->backend->memory == NULL ? p->load->slower : 1;
    const double plain = slower * p->step_ms * (double)train->accumulate * pipeline_factor(p),
                 taught = slower * p->teachers.ms * (double)train->accumulate / every;
    const double total_s = (plain + taught) * (double)train->steps / 1e3;
    cod_print(stdout, "model %s: %zu parameters, %s activations\n", p->session.recipe.model.kind->name,
              p->session.weights.layout.trainable, cod_dtype_name(p->session.activation));
    print_memory(p);
    print_traffic(p);
    cod_print(stdout, "  a step: %lld pictures a %s, about %.1f ms",
              (long long)(p->config->data.batch * train->accumulate), p->stage_count > 0 ? "network" : "rank",
              plain + taught);
    if (slower > 1)
        cod_print(stdout, ", as %d ranks with %d threads share %d processor%s (%.1f in this process)", p->load->ranks,
                  p->load->threads, p->load->processors, p->load->processors > 1 ? "s" : "", (plain + taught) / slower);
    else
        printf(" in this process");
    if (p->teachers.count > 0)
        cod_print(stdout, ", %.1f of them a teacher%s", taught,
                  every > 1 ? "'s, which does not run in every step" : "'s");
    cod_print(stdout, "\n  all %lld steps: about %.0f %s\n", (long long)train->steps,
              total_s < 120 ? total_s : total_s / 60, total_s < 120 ? "s" : "min");
}

cod_status cod_plan_print_group(const cod_run_config *config, int index, const cod_plan_device *device,
                                const cod_plan_load *load)
{
    planned p;
    const cod_status status = plan_measure(&p, config, index, device, load);
    if (status == COD_OK)
        print_group(&p);
    plan_clear(&p);
    return status;
}
