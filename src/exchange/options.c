#include "exchange/exchange.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const codecs[] = {"none", "f32", "bf16", "int8", "delta", "auto", NULL};
static const char *const entropies[] = {"none", "lz4", "zstd", NULL};
static const char *const scales[] = {"f32", "bf16", NULL};
static const char *const publish[] = {"raw", "ema", NULL};
static const char *const merges[] = {"none", "delay_corrected", "average", NULL};
static const char *const merge_against[] = {"decoded", "exact", NULL};
static const char *const teacher_fragments[] = {"mixed", "whole", NULL};
static const char *const peers[] = {"all", "ring", "random(k)", "auto", NULL};
static const char *const transports[] = {"rma", "file", NULL};

#define FIELD(name) offsetof(cod_exchange_options, name)
static const cod_option options[] = {
    {"period", COD_OPTION_INT, FIELD(period), "50", 1, 1e9, NULL,
     "Steps between two publications of a group's weights. A shorter period gives newer teachers and more traffic."},
    {"fragments", COD_OPTION_INT, FIELD(fragments), "1", 1, COD_EXCHANGE_FRAGMENTS_MOST, NULL,
     "Number of ranges that the weights are cut into. One range is published every period/fragments steps, so that "
     "each publication has fewer bytes. It must divide `period`."},
    {"codec", COD_OPTION_CHOICE, FIELD(codec), "delta", 0, 0, codecs,
     "Coding of published weights. f32: exact. bf16: half the bytes. int8: a quarter (43 dB). delta: only what "
     "changed since the last publication, about a twelfth. auto: delta, where each rank chooses its entropy coder at "
     "each key from the measured speed of coders and pulls; those measurements can mislead it. none: publishes and "
     "reads nothing."},
    {"quality_db", COD_OPTION_FLOAT, FIELD(quality_db), "43", 6, 48, NULL,
     "delta: signal-to-noise ratio of the published weights in dB. 6 dB less saves one bit for each weight."},
    {"rounding", COD_OPTION_FLOAT, FIELD(rounding), "0.5", 0.01, 0.5, NULL,
     "delta: a change of q quantisation steps is sent as the whole part of q + rounding. 0.5 rounds to nearest. Less "
     "leaves small changes out until they add up, which takes fewer bytes."},
    {"key_every", COD_OPTION_INT, FIELD(key_every), "16", 1, 1e6, NULL,
     "delta: one publication in this many is a key, which can be decoded without the ones before it. New readers "
     "start at a key. A key has more bytes."},
    {"entropy", COD_OPTION_CHOICE, FIELD(entropy), "zstd", 0, 0, entropies,
     "Entropy coder of the published bytes. zstd: its Huffman coder. lz4: faster, but more bytes. none: no entropy "
     "coding. Ignored by codec auto, which chooses for itself."},
    {"scales", COD_OPTION_CHOICE, FIELD(scales), "bf16", 0, 0, scales,
     "int8: type of the scale that each 256 values share."},
    {"chunk_values", COD_OPTION_INT, FIELD(chunk_values), "16384", 256, 1048576, NULL,
     "Weights in one chunk. Each chunk has its own checksum."},
    {"slots", COD_OPTION_INT, FIELD(slots), "8", 2, 16, NULL,
     "Number of versions that each rank keeps readable. A reader has at least slots - 2 periods to finish a pull."},
    {"publish", COD_OPTION_CHOICE, FIELD(publish), "raw", 0, 0, publish,
     "raw: publish the weights. ema: publish their moving average, which train.ema keeps."},
    {"min_interval_ms", COD_OPTION_FLOAT, FIELD(min_interval_ms), "20", 0, 1e6, NULL,
     "Shortest time in milliseconds between two publications, so that tiny models do not outrun their readers."},
    {"max_staleness_steps", COD_OPTION_INT, FIELD(max_staleness_steps), "0", 0, 1e12, NULL,
     "Age in steps at which a teacher's weight begins to fall; it is zero at 1.25 times this age. 0 = twenty periods."},
    {"max_staleness_s", COD_OPTION_FLOAT, FIELD(max_staleness_s), "0", 0, 1e9, NULL,
     "The same limit in seconds since the peer copied its weights, by the clocks of both hosts. 0 = no such limit."},
    {"pull_timeout_s", COD_OPTION_FLOAT, FIELD(pull_timeout_s), "10", 0.1, 86400, NULL,
     "Seconds after which a pull that makes no progress is abandoned. Groups that wait for each other (deterministic, "
     "replay) log that they wait after this time, and give up after 60 times as long."},
    {"deterministic", COD_OPTION_BOOL, FIELD(deterministic), "false", 0, 0, NULL,
     "Groups wait for each other's publications, so that repeated runs give the same bits. For tests and bug reports."},
    {"lag_steps", COD_OPTION_INT, FIELD(lag_steps), "10", 1, 1e6, NULL,
     "deterministic: steps from a publication to its use. Must be below period/fragments."},
    {"merge", COD_OPTION_CHOICE, FIELD(merge), "delay_corrected", 0, 0, merges,
     "How pulled weights are merged into a group's own. delay_corrected: corrected for their age. average: plain "
     "averaging (gossip). none: not merged; pulled weights only serve as teachers."},
    {"merge_alpha", COD_OPTION_FLOAT, FIELD(merge_alpha), "0", 0, 1, NULL,
     "Strength of the merge. 0 = automatic: delay_corrected takes 1, 0.5 or 0.31 for a delay of 0, 1 or 2 "
     "publications; average takes 1."},
    {"merge_against", COD_OPTION_CHOICE, FIELD(merge_against), "decoded", 0, 0, merge_against,
     "delay_corrected: which of the group's own weights are subtracted from a peer's decoded weights. decoded: its "
     "own publication as peers decode it. exact: its exact weights; groups that only merge then need fewer bytes with "
     "coarse publications (18 to 24 dB), but groups that also distil lose accuracy."},
    {"teacher_fragments", COD_OPTION_CHOICE, FIELD(teacher_fragments), "mixed", 0, 0, teacher_fragments,
     "With fragments above 1: when a teacher's weights change. mixed: with each fragment that arrives. whole: when "
     "all fragments of one round have arrived."},
    {"peers", COD_OPTION_CHOICE, FIELD(peers), "all", 1, 1e6, peers,
     "Which groups a group reads. all: all others. ring: the next group. random(k): k others, drawn once for each "
     "group from the seed. auto: all, unless that is more than a group can follow within a period; then a random draw "
     "of as many as it can."},
    {"replay", COD_OPTION_STRING, FIELD(replay), "", 0, 0, NULL,
     "Folder of an earlier run whose exchange is repeated step by step. Start from that run's config.yaml with "
     "another `name`. Empty = no replay."},
    {"transport", COD_OPTION_CHOICE, FIELD(transport), "rma", 0, 0, transports,
     "How checkpoints travel. rma: one-sided MPI gets. file: files in a shared folder."},
    {"directory", COD_OPTION_STRING, FIELD(directory), "", 0, 0, NULL,
     "file: the shared folder. Empty = `exchange` in the run's folder."},
    {"key_file", COD_OPTION_STRING, FIELD(key_file), "", 0, 0, NULL,
     "file: path of a secret of at least 16 bytes that all groups share. Files that are not sealed with it are "
     "refused. Empty = no seals."},
};
#undef FIELD

const cod_option_table cod_exchange_option_table = {"exchange",
                                                    "How groups publish their weights and read each other's.", options,
                                                    sizeof options / sizeof options[0], sizeof(cod_exchange_options)};

/** Who is told of problems. */
typedef struct listener {
    cod_exchange_problem *problem;
    void *context;
} listener;

COD_PRINTF(3, 4) static void tell(const listener *to, const char *option, const char *format, ...)
{
    char message[512];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    to->problem(to->context, option, message);
}

static void check_fragments(const cod_exchange_options *e, const listener *to)
{
    const int64_t spacing = cod_exchange_spacing(e);
    if (e->period % e->fragments != 0)
        tell(to, "exchange.fragments", "%lld is no divisor of exchange.period, %lld", (long long)e->fragments,
             (long long)e->period);
    else if (e->deterministic && e->lag_steps >= spacing && e->fragments == 1)
        tell(to, "exchange.lag_steps", "%lld steps are not below exchange.period, %lld", (long long)e->lag_steps,
             (long long)e->period);
    else if (e->deterministic && e->lag_steps >= spacing)
        tell(to, "exchange.lag_steps",
             "a fragment must arrive before the next one is published, in %lld steps; set fewer than that",
             (long long)spacing);
}

void cod_exchange_check(const cod_exchange_options *e, int groups, cod_exchange_problem *problem, void *context)
{
    const listener to = {.problem = problem, .context = context};
    const int drawn = cod_choice_argument(e->peers), others = groups - 1;
    check_fragments(e, &to);
    if (e->replay[0] != '\0' && e->deterministic)
        tell(&to, "exchange.replay", "a deterministic run repeats itself; a record is for asynchronous ones");
    if (e->key_file[0] != '\0' && e->transport != COD_TRANSPORT_FILE)
        tell(&to, "exchange.key_file",
             "seals are for files that others may write: set exchange.transport=file, or no key");
    if (e->max_staleness_s > 0 && (e->deterministic || e->replay[0] != '\0'))
        tell(&to, "exchange.max_staleness_s",
             "a run that repeats itself, or another, must not depend on the clock: use max_staleness_steps");
    if (cod_choice_index(e->peers) == COD_PEERS_RANDOM && others > 0 && drawn > others)
        tell(&to, "exchange.peers", "random(%d) draws from %d other group%s: `all`, or random(%d) at most", drawn,
             others, others == 1 ? "" : "s", others);
    if (e->merge_against == COD_AGAINST_EXACT && e->merge != COD_MERGE_DELAY_CORRECTED)
        tell(&to, "exchange.merge_against",
             "only merges corrected for delay subtract own weights: set exchange.merge=delay_corrected, or leave this "
             "out");
}
