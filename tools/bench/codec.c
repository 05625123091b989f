/* `codistill bench codec`: bytes, exactness and speed of the exchange's codings, on checkpoints of real training. */
#include "tools/bench/bench.h"

#include "codec/codec.h"
#include "core/memory.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "tools/arguments.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: codistill bench codec CHECKPOINT... [options]\n\n"
    "Encodes and decodes weights as successive publications of one group, in the order given. CHECKPOINT is a "
    "checkpoint's group-0.safetensors (use runs with checkpoint.every = exchange.period and checkpoint.keep=1000), "
    "or a model.safetensors, of which all f32 tensors are taken. Prints a row for each coding and checkpoint, and "
    "one for each coding over all checkpoints: the compression ratio with all headers; the signal-to-noise ratio "
    "in dB of the weights and of their change since the checkpoint before; and the speed in GB of f32 values a "
    "second on one core.\n\n"
    "  --db X\tquality of the delta codings in dB (43)\n"
    "  --rounding X\trounding of changes in the delta codings, above 0 and at most 0.5, which rounds to nearest "
    "(0.5)\n"
    "  --key-every N\tdelta codings: one publication in this many is a key (16)\n"
    "  --json\tprint a list of rows; `checkpoint` is null in the rows over all checkpoints\n"
    "  --help\n";

enum { CHUNK_VALUES = 16384 };
static const double measure_s = 0.01;

static const struct {
    const char *name;
    cod_chunk_coding coding;
    cod_codec_entropy entropy;
} codings[] = {
    {"f32", COD_CHUNK_F32, COD_CODEC_PLAIN},      {"f32+zstd", COD_CHUNK_F32, COD_CODEC_ZSTD},
    {"bf16", COD_CHUNK_BF16, COD_CODEC_PLAIN},    {"int8", COD_CHUNK_INT8, COD_CODEC_PLAIN},
    {"int8+lz4", COD_CHUNK_INT8, COD_CODEC_LZ4},  {"int8+zstd", COD_CHUNK_INT8, COD_CODEC_ZSTD},
    {"delta+lz4", COD_CHUNK_STEP, COD_CODEC_LZ4}, {"delta+zstd", COD_CHUNK_STEP, COD_CODEC_ZSTD},
};
enum { CODINGS = sizeof codings / sizeof codings[0] };

typedef struct bench {
    double quality_db, rounding;
    long key_every;
    bool json;
    cod_json out;
    size_t count; /**< values of each checkpoint */
    float *values, *before, *decoded, *received;
    unsigned char *bytes;
} bench;

/** What is known of one publication, or the sums over all. */
typedef struct row {
    double f32_bytes, bytes, signal, noise, moved;
    double encode_s, decode_s; /**< of the coding of f32_bytes, once */
    bool key;
} row;

static double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/** The flat array of a run's checkpoint, or all f32 tensors of a model file; `values` NULL only counts. */
static cod_status read_values(const char *path, float *values, size_t *count)
{
    cod_st_file *file;
    cod_status status = COD_OK;
    COD_TRY(cod_st_open(path, &file));
    const cod_st_tensor *flat = cod_st_tensor_find(file, "values");
    *count = 0;
    for (size_t i = 0; i < cod_st_tensor_count(file) && status == COD_OK; i++) {
        const cod_st_tensor *tensor = cod_st_tensor_at(file, i);
        if (tensor->dtype != COD_ST_F32 || (flat != NULL && tensor != flat))
            continue;
        if (values != NULL)
            status = cod_st_to_f32(tensor, values + *count, cod_st_count(tensor));
        *count += cod_st_count(tensor);
    }
    cod_st_close(file);
    return *count > 0 || status != COD_OK ? status : cod_fail(COD_ERR_FORMAT, "%s: no f32 tensors", path);
}

static double decibels(double signal, double noise)
{
    return noise > 0 ? 10 * log10(signal / noise) : INFINITY;
}

static void print_row(bench *b, const char *coding, const char *checkpoint, const row *r)
{
    const double ratio = r->f32_bytes / r->bytes, db = decibels(r->signal, r->noise);
    const double movement_db = r->moved > 0 ? decibels(r->moved, r->noise) : NAN;
    const double encode = 1e-9 * r->f32_bytes / r->encode_s, decode = 1e-9 * r->f32_bytes / r->decode_s;
    if (!b->json) {
        printf("%-10s  %6.2f  %7.1f  %8.1f  %6.2f  %6.2f  %s%s\n", coding, ratio, db, movement_db, encode, decode,
               checkpoint != NULL ? checkpoint : "all of them", r->key && checkpoint != NULL ? " (key)" : "");
        return;
    }
    cod_json_open(&b->out, NULL, '{');
    cod_json_string(&b->out, "codec", coding);
    cod_json_string(&b->out, "checkpoint", checkpoint);
    cod_json_bool(&b->out, "key", r->key);
    cod_json_number(&b->out, "ratio", ratio);
    cod_json_number(&b->out, "db", db);
    cod_json_number(&b->out, "movement_db", movement_db);
    cod_json_number(&b->out, "encode_gb_s", encode);
    cod_json_number(&b->out, "decode_gb_s", decode);
    cod_json_close(&b->out);
}

/** Codes `values` against `decoded`, or as a key; b->received is what a reader then has. */
static cod_status code(bench *b, cod_codec *codec, uint64_t version, bool key, row *r)
{
    const cod_codec_range range = {.count = b->count, .exact_from = UINT64_MAX};
    const cod_codec_key name = {.run = 1, .version = version};
    const uint64_t capacity = cod_codec_bound(&codec->options, &range);
    const float *reference = key ? NULL : b->decoded;
    int rounds = 0;
    const double begin = processor_s();
    do {
        cod_codec_begin(codec, &range, &name);
        COD_TRY(cod_codec_encode(codec, b->values, reference, UINT64_MAX, b->bytes, capacity, NULL));
        rounds++;
    } while (processor_s() - begin < measure_s);
    const double encoded = processor_s();
    const uint64_t bytes = codec->bytes;
    r->encode_s = (encoded - begin) / rounds;
    rounds = 0;
    do {
        cod_codec_begin(codec, &range, &name);
        COD_TRY(cod_codec_decode(codec, b->bytes, bytes, reference, UINT64_MAX, b->received));
        rounds++;
    } while (processor_s() - encoded < measure_s);
    r->decode_s = (processor_s() - encoded) / rounds;
    r->bytes = (double)bytes;
    r->f32_bytes = 4.0 * (double)b->count;
    r->key = key;
    return COD_OK;
}

static void compare(const bench *b, bool first, row *r)
{
    for (size_t i = 0; i < b->count; i++) {
        const double value = b->values[i], error = value - (double)b->received[i],
                     moved = first ? 0 : value - (double)b->before[i];
        r->signal += value * value;
        r->noise += error * error;
        r->moved += moved * moved;
    }
}

static void swap(float **a, float **b)
{
    float *kept = *a;
    *a = *b;
    *b = kept;
}

/** One coding of one checkpoint, whose figures are added to `all`. */
static cod_status run_checkpoint(bench *b, int coding, cod_codec *codec, char *const *paths, int i, row *all)
{
    row r = {0};
    size_t count;
    COD_TRY(read_values(paths[i], NULL, &count));
    if (count != b->count)
        return cod_fail(COD_ERR_FORMAT, "%s holds %zu values, %s %zu", paths[i], count, paths[0], b->count);
    COD_TRY(read_values(paths[i], b->values, &count));
    COD_TRY(code(b, codec, (uint64_t)i + 1, codings[coding].coding != COD_CHUNK_STEP || i % b->key_every == 0, &r));
    compare(b, i == 0, &r);
    print_row(b, codings[coding].name, paths[i], &r);
    all->f32_bytes += r.f32_bytes;
    all->bytes += r.bytes;
    all->signal += r.signal;
    all->noise += r.noise;
    all->moved += r.moved;
    all->encode_s += r.encode_s;
    all->decode_s += r.decode_s;
    swap(&b->decoded, &b->received);
    swap(&b->before, &b->values);
    return COD_OK;
}

/** One coding over all checkpoints. */
static cod_status run_coding(bench *b, int coding, char *const *paths, int path_count)
{
    const cod_codec_options options = {.coding = codings[coding].coding,
                                       .entropy = codings[coding].entropy,
                                       .bf16_scales = true,
                                       .chunk_values = CHUNK_VALUES,
                                       .quality_db = b->quality_db,
                                       .rounding = (float)b->rounding};
    cod_codec codec;
    row all = {0};
    cod_status status = cod_codec_init(&codec, &options);
    for (int i = 0; i < path_count && status == COD_OK; i++)
        status = run_checkpoint(b, coding, &codec, paths, i, &all);
    if (status == COD_OK)
        print_row(b, codings[coding].name, NULL, &all);
    cod_codec_clear(&codec);
    return status;
}

static cod_status run_codings(bench *b, char *const *paths, int path_count)
{
    const cod_codec_options longest = {.coding = COD_CHUNK_F32, .chunk_values = CHUNK_VALUES};
    const cod_codec_range range = {.count = b->count, .exact_from = UINT64_MAX};
    float **const arrays[] = {&b->values, &b->before, &b->decoded, &b->received};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        COD_TRY(cod_aligned_alloc((void **)arrays[i], b->count * sizeof(float)));
    COD_TRY(cod_aligned_alloc((void **)&b->bytes, cod_codec_bound(&longest, &range)));
    if (b->json) {
        cod_json_open(&b->out, NULL, '[');
    } else {
        char library[64];
        cod_codec_library(library, sizeof library);
        printf("%d checkpoints of %zu values; %s\ncodec        ratio  weights  movement  encode  decode\n"
               "                        dB        dB    GB/s    GB/s\n",
               path_count, b->count, library);
    }
    for (int i = 0; i < CODINGS; i++)
        COD_TRY(run_coding(b, i, paths, path_count));
    if (b->json) {
        char *text;
        cod_json_close(&b->out);
        COD_TRY(cod_json_end(&b->out, &text));
        puts(text);
        free(text);
    }
    return COD_OK;
}

static int run(bench *b, char *const *paths, int path_count)
{
    cod_status status = read_values(paths[0], NULL, &b->count);
    COD_THEN(status, run_codings(b, paths, path_count));
    cod_aligned_free(b->values);
    cod_aligned_free(b->before);
    cod_aligned_free(b->decoded);
    cod_aligned_free(b->received);
    cod_aligned_free(b->bytes);
    cod_json_clear(&b->out);
    return cod_cmd_end(status);
}

/** @return whether `text`, where it is given, is a number in the range */
static bool read_number(const char *text, double least, double most, double *out)
{
    char *end;
    if (text == NULL)
        return true;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most;
}

int cod_bench_codec(int argc, char **argv)
{
    bench b = {.quality_db = 43, .rounding = 0.5, .key_every = 16, .out = {.indent = 2}};
    const char *db = NULL, *rounding = NULL, *key_every = NULL;
    const cod_argument own[] = {{.name = "db", .text = &db},
                                {.name = "rounding", .text = &rounding},
                                {.name = "key-every", .text = &key_every},
                                {.name = "json", .flag = &b.json}};
    int wrong = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (wrong < 0)
        wrong = cod_argument_number(argv[0], "key-every", key_every, 1, 1000000, &b.key_every);
    if (wrong >= 0)
        return wrong;
    if (!read_number(db, COD_CODEC_MIN_DB, COD_CODEC_MAX_DB, &b.quality_db))
        return cod_cmd_usage(argv[0], "--db: '%s' is not a number from %d to %d", db, COD_CODEC_MIN_DB,
                             COD_CODEC_MAX_DB);
    if (!read_number(rounding, 0.01, 0.5, &b.rounding))
        return cod_cmd_usage(argv[0], "--rounding: '%s' is not a number from 0.01 to 0.5", rounding);
    if (argc == optind)
        return cod_cmd_usage(argv[0], "a CHECKPOINT is wanted: weights of real training, as noise tells nothing");
    return run(&b, argv + optind, argc - optind);
}
