#include "distill/exchange.h"

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
     "steps between two publications of a group's checkpoint"},
    {"fragments", COD_OPTION_INT, FIELD(fragments), "1", 1, COD_EXCHANGE_FRAGMENTS_MOST, NULL,
     "ranges that the weights are cut into, one of which is published every period/fragments steps, so that snapshots, "
     "encoding, traffic and delay are of one at a time; a divisor of period"},
    {"codec", COD_OPTION_CHOICE, FIELD(codec), "delta", 0, 0, codecs,
     "coding of published weights: f32 exact, bf16 half, int8 a quarter of the bytes (43 dB), delta what changed since "
     "the last one, about a twelfth; auto is delta with an entropy coder that each rank chooses, at keys, by how fast "
     "coders and pulls were so far (not the default: what it measures may mislead it); none publishes, reads and "
     "holds nothing"},
    {"quality_db", COD_OPTION_FLOAT, FIELD(quality_db), "43", 6, 48, NULL,
     "delta: decibels of the weights; 6 fewer save a bit a weight"},
    {"rounding", COD_OPTION_FLOAT, FIELD(rounding), "0.5", 0.01, 0.5, NULL,
     "delta: a change of q steps is sent as the whole part of q + rounding: 0.5 is the nearest number of steps; less "
     "leaves out small changes until they have added up, which takes fewer bytes"},
    {"key_every", COD_OPTION_INT, FIELD(key_every), "16", 1, 1e6, NULL,
     "delta: publications from one that stands alone, from which a reader can start, to the next"},
    {"entropy", COD_OPTION_CHOICE, FIELD(entropy), "zstd", 0, 0, entropies,
     "what shortens coded chunks: zstd's Huffman coder, LZ4 (faster, longer), or none; codec auto chooses for itself"},
    {"scales", COD_OPTION_CHOICE, FIELD(scales), "bf16", 0, 0, scales, "int8: type of the scale of each 256 values"},
    {"chunk_values", COD_OPTION_INT, FIELD(chunk_values), "16384", 256, 1048576, NULL,
     "weights in a chunk, each checked by itself"},
    {"slots", COD_OPTION_INT, FIELD(slots), "8", 2, 16, NULL,
     "versions held ready at once: a reader has slots-2 periods at least to finish"},
    {"publish", COD_OPTION_CHOICE, FIELD(publish), "raw", 0, 0, publish,
     "publish the weights, or their moving average (train.ema)"},
    {"min_interval_ms", COD_OPTION_FLOAT, FIELD(min_interval_ms), "20", 0, 1e6, NULL,
     "least time between two publications, so that tiny models do not outrun their readers"},
    {"max_staleness_steps", COD_OPTION_INT, FIELD(max_staleness_steps), "0", 0, 1e12, NULL,
     "age from which a teacher's weight falls to zero; 0 = twenty periods"},
    {"max_staleness_s", COD_OPTION_FLOAT, FIELD(max_staleness_s), "0", 0, 1e9, NULL,
     "the same in seconds since the peer copied its weights, by the clocks of both; 0 = no such limit"},
    {"pull_timeout_s", COD_OPTION_FLOAT, FIELD(pull_timeout_s), "10", 0.1, 86400, NULL,
     "seconds after which a pull that does not move is given up; where groups wait for each other (deterministic, "
     "replay) they say so after as long, and give up after 60 times as long"},
    {"deterministic", COD_OPTION_BOOL, FIELD(deterministic), "false", 0, 0, NULL,
     "groups wait for each other's publications, so that runs replay bit for bit; for tests and bug reports"},
    {"lag_steps", COD_OPTION_INT, FIELD(lag_steps), "10", 1, 1e6, NULL,
     "deterministic: steps from a publication to its use; below period"},
    {"merge", COD_OPTION_CHOICE, FIELD(merge), "delay_corrected", 0, 0, merges,
     "what else a pull is used for: merging weights, corrected for their age; plain averaging with them, which is "
     "gossip; or none"},
    {"merge_alpha", COD_OPTION_FLOAT, FIELD(merge_alpha), "0", 0, 1, NULL,
     "strength of the merge; 0 = from the delay: 1, 0.5, 0.31 for 0, 1, 2 publications; of plain averaging 1"},
    {"merge_against", COD_OPTION_CHOICE, FIELD(merge_against), "decoded", 0, 0, merge_against,
     "delay_corrected: what is subtracted from a peer's decoded weights: one's own as peers decode them, or the exact "
     "ones, with which coarse publications (18 to 24 dB) take fewer bytes where groups only merge; where they distil "
     "as well it costs accuracy"},
    {"teacher_fragments", COD_OPTION_CHOICE, FIELD(teacher_fragments), "mixed", 0, 0, teacher_fragments,
     "when a teacher changes where publications are fragments: mixed, with each that comes; whole, when all fragments "
     "of one round have come"},
    {"peers", COD_OPTION_CHOICE, FIELD(peers), "all", 1, 1e6, peers,
     "whom a group reads: all others, the next one in a ring, or k others, drawn once for each group from the seed; "
     "auto is all, or where that are more than the period allows to follow a draw of so many"},
    {"replay", COD_OPTION_STRING, FIELD(replay), "", 0, 0, NULL,
     "folder of a run whose exchange is repeated, step by step, with its config.yaml under another name"},
    {"transport", COD_OPTION_CHOICE, FIELD(transport), "rma", 0, 0, transports,
     "how checkpoints travel: rma, one-sided MPI gets; file, files in a shared folder"},
    {"directory", COD_OPTION_STRING, FIELD(directory), "", 0, 0, NULL,
     "file: the shared folder; empty: `exchange` in the run's folder"},
    {"key_file", COD_OPTION_STRING, FIELD(key_file), "", 0, 0, NULL,
     "file: a secret of at least 16 bytes that all groups have; what is not sealed with it is refused; empty: no "
     "seals"},
};
#undef FIELD

const cod_option_table cod_exchange_option_table = {"exchange", "Checkpoints between groups", options,
                                                    sizeof options / sizeof options[0], sizeof(cod_exchange_options)};
