/* `codistill bench scale`: the exchange of many groups and large models, by a model of it. */
#include "tools/bench/scale.h"

#include "exchange/slot.h"
#include "io/file.h"
#include "io/json.h"
#include "tools/arguments.h"
#include "tools/bench/bench.h"
#include "tools/bench/exchange.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill bench scale [options] [option=value ...]\n\n"
    "Predicts what the exchange of many groups costs, by a model of its protocol (tools/bench/scale_model.h). "
    "Prints a row for each combination of layout, model size, link and choice of peers, and the time of allreduce "
    "and local SGD over the same link. Nothing is trained; only coding, copies and merges are measured here, on "
    "one thread. option=value sets an option of section `exchange`, such as period=100. A LIST has commas between "
    "its items.\n\n"
    "  --layouts LIST\tgroups x ranks of each group (4x4,16x1,64x16,256x4)\n"
    "  --weights LIST\tnumbers of weights (1.5e6,25e6,1.5e9)\n"
    "  --step-ms LIST\tmilliseconds of computing in a step, one number for each of --weights or one for all "
    "(10,100,1000, or 10)\n"
    "  --links LIST\tGbit/s of a group's link in each direction; inf = no limit (1,10,100)\n"
    "  --peers LIST\tchoices of peers, as in exchange.peers (all,ring)\n"
    "  --apart\teach rank of a group has a node or a GPU of its own and holds all values itself\n"
    "  --latency-ms X\tlatency of a link in one direction, in milliseconds (0.1)\n"
    "  --publications N\tpublications of each group (20)\n"
    "  --drift X\tstandard deviation of the groups' mean step times, relative to a step (0.02)\n"
    "  --jitter X\tstandard deviation of one group's step times, relative to a step (0.05)\n"
    "  --pace FILE\tmeasured step times, in place of --step-ms, --drift and --jitter: JSON, a list of seconds for "
    "each group\n"
    "  --cores N\tall ranks share one machine with this many cores. Without it, each rank has a core\n"
    "  --bytes FILE\tmeasured sizes of publications, in place of --ratios: JSON, a list of bytes for each group\n"
    "  --seed N\tseed of the step times and of the draws of peers (1)\n"
    "  --costs LIST\tns for each weight of copying, encoding, mirroring, decoding and merging; measured if not given\n"
    "  --ratios LIST\tcompression ratio of a key and of a delta; measured if not given\n"
    "  --deltas N\tmost versions of a peer in one pull; the exchange itself takes all that the slots hold (16)\n"
    "  --json\tprint one JSON object\n"
    "  --help\n\n"
    "Columns: used: share of the peers' publications that a group took over. stale: age of the held version in own "
    "steps, median and largest. MB/s: highest traffic to one group over a tenth of a period. step: how much longer "
    "the exchange makes a step. memory and checkpoint: of the exchange alone.\n";

enum { MOST_ITEMS = 16, MOST_GROUPS = 1024, MOST_RANKS = 1024, COSTS = 5 };

typedef struct layout {
    int groups, ranks;
} layout;

typedef struct scale {
    cod_exchange_options exchange;
    layout layouts[MOST_ITEMS];
    double weights[MOST_ITEMS], step_ms[MOST_ITEMS], links[MOST_ITEMS];
    int peers[MOST_ITEMS];
    const char *peer_names[MOST_ITEMS];
    size_t layout_count, weight_count, link_count, peer_count;
    double latency_s, drift, jitter;
    int64_t publications, deltas;
    uint64_t seed;
    const char *pace, *bytes;
    int cores;
    cod_scale_costs costs;
    bool costs_given, ratios_given, as_json, apart;
    cod_json json;
} scale;

/** One row. */
typedef struct point {
    const layout *layout;
    double weights, step_s, link;
    const char *peers;
    cod_scale_result result;
    cod_scale_rivals rivals;
} point;

/* Arguments. */

typedef struct texts {
    const char *layouts, *weights, *step_ms, *links, *peers, *latency_ms, *publications, *drift, *jitter, *seed, *costs,
        *ratios, *deltas, *cores;
} texts;

/** Reads a number, and what stands behind it up to the next comma. */
static bool read_item(const char **at, double least, double most, double *out)
{
    char *end;
    *out = strtod(*at, &end);
    const bool read = end != *at && *out >= least && *out <= most && (*end == ',' || *end == '\0');
    *at = *end == ',' ? end + 1 : end;
    return read;
}

/** @return how many numbers the list has; 0 where it is none, or has more than `most_items` */
static size_t read_list(const char *text, double least, double most, size_t most_items, double *out)
{
    const char *at = text;
    size_t count = 0;
    do {
        if (count == most_items || !read_item(&at, least, most, &out[count]))
            return 0;
        count++;
    } while (*at != '\0');
    return count;
}

static size_t read_layouts(const char *text, layout *out)
{
    size_t count = 0;
    for (const char *at = text; *at != '\0';) {
        int used = 0;
        if (count == MOST_ITEMS || sscanf(at, "%dx%d%n", &out[count].groups, &out[count].ranks, &used) != 2 ||
            out[count].groups < 2 || out[count].groups > MOST_GROUPS || out[count].ranks < 1 ||
            out[count].ranks > MOST_RANKS || (at[used] != ',' && at[used] != '\0'))
            return 0;
        at += at[used] == ',' ? used + 1 : used;
        count++;
    }
    return count;
}

/** Values of exchange.peers, separated by commas. */
static cod_status read_peers(scale *s, const char *text, cod_arena *arena)
{
    char *names = cod_arena_strdup(arena, text), *rest = NULL;
    COD_REQUIRE_MEMORY(names);
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        char setting[64];
        COD_REQUIRE(s->peer_count < MOST_ITEMS, "--peers: more than %d", MOST_ITEMS);
        snprintf(setting, sizeof setting, "peers=%s", name);
        COD_TRY(cod_bench_exchange_set(&s->exchange, setting, arena));
        s->peer_names[s->peer_count] = name;
        s->peers[s->peer_count++] = s->exchange.peers;
    }
    COD_REQUIRE(s->peer_count > 0, "--peers: nothing is named");
    return COD_OK;
}

/** @return -1 to go on, else the exit code */
static int read_numbers(const char *command, const texts *t, scale *s)
{
    double single, costs[COSTS], ratios[2];
    long publications = 20, seed = 1, deltas = COD_SLOT_MAX, cores = 0;
    s->layout_count = read_layouts(t->layouts, s->layouts);
    if (s->layout_count == 0)
        return cod_cmd_usage(command,
                             "--layouts: '%s' is not a list such as 16x1,64x16, of 2 to %d groups and 1 to %d ranks",
                             t->layouts, MOST_GROUPS, MOST_RANKS);
    s->weight_count = read_list(t->weights, 1, 1e12, MOST_ITEMS, s->weights);
    if (s->weight_count == 0)
        return cod_cmd_usage(command, "--weights: '%s' is not a list of numbers from 1 to 1e12", t->weights);
    const size_t step_count = read_list(t->step_ms, 1e-3, 1e6, MOST_ITEMS, s->step_ms);
    if (step_count != 1 && step_count != s->weight_count)
        return cod_cmd_usage(
            command, "--step-ms: '%s' is not one number from 1e-3 to 1e6, or one for each of --weights", t->step_ms);
    for (size_t i = step_count; i < s->weight_count; i++)
        s->step_ms[i] = s->step_ms[0];
    s->link_count = read_list(t->links, 1e-6, INFINITY, MOST_ITEMS, s->links);
    if (s->link_count == 0)
        return cod_cmd_usage(command, "--links: '%s' is not a list of numbers from 1e-6 on, or inf", t->links);
    const struct {
        const char *name, *text;
        double most, *out;
    } numbers[] = {{"latency-ms", t->latency_ms, 1e4, &s->latency_s},
                   {"drift", t->drift, 1, &s->drift},
                   {"jitter", t->jitter, 1, &s->jitter}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (read_list(numbers[i].text, 0, numbers[i].most, 1, &single) != 1)
            return cod_cmd_usage(command, "--%s: '%s' is not a number from 0 to %g", numbers[i].name, numbers[i].text,
                                 numbers[i].most);
        *numbers[i].out = single;
    }
    s->latency_s *= 1e-3;
    s->costs_given = t->costs != NULL;
    if (s->costs_given && read_list(t->costs, 0, 1e6, COSTS, costs) != COSTS)
        return cod_cmd_usage(command, "--costs: '%s' is not a list of %d numbers from 0 to 1e6", t->costs, COSTS);
    if (s->costs_given)
        s->costs = (cod_scale_costs){
            1e-9 * costs[0], 1e-9 * costs[1], 1e-9 * costs[2], 1e-9 * costs[3], 1e-9 * costs[4], 0, 0};
    s->ratios_given = t->ratios != NULL;
    if (s->ratios_given && read_list(t->ratios, 1e-3, 1e6, 2, ratios) != 2)
        return cod_cmd_usage(command, "--ratios: '%s' is not a list of 2 numbers from 1e-3 to 1e6", t->ratios);
    int code = cod_argument_number(command, "publications", t->publications, 3, 100000, &publications);
    code = code < 0 ? cod_argument_number(command, "seed", t->seed, 0, 1000000000, &seed) : code;
    code = code < 0 ? cod_argument_number(command, "deltas", t->deltas, 1, COD_SLOT_MAX, &deltas) : code;
    code = code < 0 ? cod_argument_number(command, "cores", t->cores, 1, 1000000, &cores) : code;
    s->publications = publications;
    s->cores = (int)cores;
    s->deltas = deltas;
    s->seed = (uint64_t)seed;
    if (s->ratios_given) {
        s->costs.key_ratio = ratios[0];
        s->costs.ratio = ratios[1];
    }
    return code;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, scale *s, cod_arena *arena)
{
    texts t = {.layouts = "4x4,16x1,64x16,256x4",
               .links = "1,10,100",
               .peers = "all,ring",
               .latency_ms = "0.1",
               .drift = "0.02",
               .jitter = "0.05"};
    const cod_argument own[] = {
        {.name = "layouts", .text = &t.layouts}, {.name = "weights", .text = &t.weights},
        {.name = "step-ms", .text = &t.step_ms}, {.name = "links", .text = &t.links},
        {.name = "peers", .text = &t.peers},     {.name = "latency-ms", .text = &t.latency_ms},
        {.name = "drift", .text = &t.drift},     {.name = "publications", .text = &t.publications},
        {.name = "jitter", .text = &t.jitter},   {.name = "pace", .text = &s->pace, .words = COD_WORDS_FILES},
        {.name = "seed", .text = &t.seed},       {.name = "costs", .text = &t.costs},
        {.name = "ratios", .text = &t.ratios},   {.name = "deltas", .text = &t.deltas},
        {.name = "cores", .text = &t.cores},     {.name = "bytes", .text = &s->bytes, .words = COD_WORDS_FILES},
        {.name = "json", .flag = &s->as_json},   {.name = "apart", .flag = &s->apart}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    if (t.step_ms == NULL)
        t.step_ms = t.weights == NULL ? "10,100,1000" : "10";
    if (t.weights == NULL)
        t.weights = "1.5e6,25e6,1.5e9";
    code = code < 0 ? read_numbers(argv[0], &t, s) : code;
    if (code >= 0)
        return code;
    cod_status status = cod_options_set_defaults(&cod_exchange_option_table, &s->exchange, arena);
    for (int i = optind; i < argc && status == COD_OK; i++)
        status = cod_bench_exchange_set(&s->exchange, argv[i], arena);
    COD_THEN(status, read_peers(s, t.peers, arena));
    s->exchange.seed = s->seed;
    return status == COD_OK ? -1 : cod_cmd_failed(status);
}

/* Steps and publications that were measured. */

/** What a file holds: `what` of each of so many `items`, which take 0 or more each. */
typedef struct measured {
    const char *path, *what, *item;
    int groups;
    int64_t items;
} measured;

static cod_status fill_measured(const cod_json_value *root, const measured *m, double *out)
{
    const cod_json_value *group = cod_json_first(root);
    COD_REQUIRE(cod_json_count(root) == (size_t)m->groups, "%zu lists are not the %s of %d groups",
                cod_json_count(root), m->what, m->groups);
    for (int g = 0; g < m->groups; g++, group = cod_json_next(group)) {
        const cod_json_value *value = cod_json_first(group);
        COD_REQUIRE(cod_json_count(group) == (size_t)m->items, "%zu %s of group %d are not those of %lld %ss",
                    cod_json_count(group), m->what, g, (long long)m->items, m->item);
        for (int64_t i = 0; i < m->items; i++, value = cod_json_next(value)) {
            out[g * m->items + i] = cod_json_get_number(value, -1);
            COD_REQUIRE(out[g * m->items + i] >= 0, "%s %lld of group %d does not take a number of %s", m->item,
                        (long long)i, g, m->what);
        }
    }
    return COD_OK;
}

/** @param[out] out  [groups][items] */
static cod_status read_measured(const measured *m, double *out)
{
    enum { MOST_BYTES = 1 << 30 };
    cod_json_value *root = NULL;
    void *text = NULL;
    size_t bytes;
    COD_TRY(cod_file_read_any(m->path, MOST_BYTES, &text, &bytes));
    cod_status status = cod_json_parse(text, bytes, &root);
    COD_THEN(status, fill_measured(root, m, out));
    cod_json_free(root);
    free(text);
    return status == COD_OK ? status : cod_fail_prefix(status, "%s", m->path);
}

/* Rows. */

static void print_number(double value)
{
    if (isnan(value))
        printf(" %6s", "-");
    else
        printf(" %6.0f", value);
}

/** Bytes with a unit of their own: they go from kB to TB. */
static void print_bytes(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1000;
    printf(" %5.3g %-2s", bytes, units[unit]);
}

static void print_row(const point *p)
{
    const cod_scale_result *r = &p->result;
    char layout_name[24], longer[24];
    snprintf(layout_name, sizeof layout_name, "%dx%d", p->layout->groups, p->layout->ranks);
    snprintf(longer, sizeof longer, "%+.1f %%", 100 * r->overhead);
    printf("%-7s %8.3g %5g %-10s", layout_name, p->weights, p->link, p->peers);
    print_number(100 * r->used);
    print_number(r->staleness_median);
    print_number(r->staleness_most);
    print_bytes(r->bytes_a_step);
    printf(" %9.3g %9s", 1e-6 * r->peak_bytes_s, longer);
    print_bytes((double)r->sizes.memory_bytes);
    print_bytes((double)r->sizes.memory_bytes * p->layout->ranks);
    print_bytes(r->checkpoint_bytes * p->layout->groups);
    printf(" %8.2f %8.2f\n", p->rivals.allreduce_step_s / p->step_s, p->rivals.local_step_s / p->step_s);
}

static void print_head(const scale *s)
{
    const cod_scale_costs *c = &s->costs;
    printf(
        "ns a weight, %s: copies %.3g, encodes %.3g, mirrors %.3g, decodes %.3g, merges %.3g; a key takes %.3g, a "
        "delta %.3g times fewer bytes "
        "than f32\n"
        "a publication every %lld steps, latency %g ms; allreduce and local SGD: a step, of one that only computes\n\n"
        "%-7s %8s %5s %-10s %6s %6s %6s %8s %9s %9s %8s %8s %8s %8s %8s\n"
        "%-7s %8s %5s %-10s %6s %6s %6s %8s %9s %9s %8s %8s %8s %8s %8s\n",
        s->costs_given ? "given" : "measured", 1e9 * c->copy, 1e9 * c->encode, 1e9 * c->mirror, 1e9 * c->decode,
        1e9 * c->merge, c->key_ratio, c->ratio, (long long)s->exchange.period, 1e3 * s->latency_s, "groups", "weights",
        "link", "peers", "used", "stale", "most", "to group", "peak", "step", "a rank's", "a group's", "all", "all-",
        "local", "x ranks", "", "Gb/s", "", "%", "steps", "steps", "a step", "MB/s", "longer", "memory", "memory",
        "saved", "reduce", "SGD");
}

static void write_row(cod_json *json, const point *p)
{
    const cod_scale_result *r = &p->result;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"weights", p->weights},
                   {"link_gbit_s", p->link},
                   {"step_s", p->step_s},
                   {"peers", r->sizes.peers},
                   {"pulls", r->sizes.pulls},
                   {"publications", (double)r->publications},
                   {"taken", (double)r->taken},
                   {"followed", (double)r->followed},
                   {"lost", (double)r->lost},
                   {"merged", r->merged},
                   {"strength", r->strength},
                   {"used", r->used},
                   {"staleness_median", r->staleness_median},
                   {"staleness_most", r->staleness_most},
                   {"bytes_a_step", r->bytes_a_step},
                   {"shared_bytes_a_step", r->shared_bytes_a_step},
                   {"peak_bytes_s", r->peak_bytes_s},
                   {"with_exchange_s", r->step_s},
                   {"overhead", r->overhead},
                   {"memory_bytes", (double)r->sizes.memory_bytes},
                   {"checkpoint_bytes", r->checkpoint_bytes},
                   {"allreduce_step_s", p->rivals.allreduce_step_s},
                   {"allreduce_bytes_a_step", p->rivals.allreduce_bytes},
                   {"local_sgd_step_s", p->rivals.local_step_s},
                   {"local_sgd_bytes_a_step", p->rivals.local_bytes}};
    cod_json_open(json, NULL, '{');
    cod_json_integer(json, "groups", p->layout->groups);
    cod_json_integer(json, "ranks", p->layout->ranks);
    cod_json_string(json, "peers_option", p->peers);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cod_json_number(json, numbers[i].key, numbers[i].value);
    cod_json_close(json);
}

static void write_head(scale *s)
{
    const cod_scale_costs *c = &s->costs;
    cod_json_open(&s->json, NULL, '{');
    cod_json_integer(&s->json, "period", s->exchange.period);
    cod_json_number(&s->json, "latency_ms", 1e3 * s->latency_s);
    cod_json_bool(&s->json, "costs_measured", !s->costs_given);
    cod_json_open(&s->json, "costs_ns", '{');
    cod_json_number(&s->json, "copy", 1e9 * c->copy);
    cod_json_number(&s->json, "encode", 1e9 * c->encode);
    cod_json_number(&s->json, "mirror", 1e9 * c->mirror);
    cod_json_number(&s->json, "decode", 1e9 * c->decode);
    cod_json_number(&s->json, "merge", 1e9 * c->merge);
    cod_json_close(&s->json);
    cod_json_number(&s->json, "key_ratio", c->key_ratio);
    cod_json_number(&s->json, "ratio", c->ratio);
    cod_json_open(&s->json, "rows", '[');
}

/** Room for a layout's figures. */
typedef struct figures {
    int64_t count;
    double *steps; /**< [groups][count] what they compute */
    double *bytes; /**< [groups][publications], where --bytes gives them */
} figures;

static cod_status read_figures(const scale *s, const layout *of, double step_s, const figures *f)
{
    const measured pace = {s->pace, "seconds", "step", of->groups, f->count},
                   bytes = {s->bytes, "bytes", "publication", of->groups, s->publications};
    if (s->pace != NULL)
        COD_TRY(read_measured(&pace, f->steps));
    else
        cod_scale_draw_steps(s->seed, of->groups, f->count, step_s, s->drift, s->jitter, f->steps);
    return s->bytes != NULL ? read_measured(&bytes, f->bytes) : COD_OK;
}

/** A layout and a model, over all links and with all peers. */
static cod_status run_model(scale *s, const layout *of, size_t model, const figures *f)
{
    const double step_s = 1e-3 * s->step_ms[model];
    COD_TRY(read_figures(s, of, step_s, f));
    for (size_t link = 0; link < s->link_count; link++) {
        for (size_t i = 0; i < s->peer_count; i++) {
            const cod_scale_setting setting = {.exchange = &s->exchange,
                                               .groups = of->groups,
                                               .ranks = of->ranks,
                                               .once = !s->apart,
                                               .weights = (uint64_t)s->weights[model],
                                               .deltas = s->deltas,
                                               .steps = f->count,
                                               .step_s = f->steps,
                                               .cores = s->cores,
                                               .published_bytes = s->bytes != NULL ? f->bytes : NULL,
                                               .link_bytes_s = 1e9 / 8 * s->links[link],
                                               .latency_s = s->latency_s,
                                               .costs = s->costs};
            point p = {.layout = of,
                       .weights = s->weights[model],
                       .step_s = step_s,
                       .link = s->links[link],
                       .peers = s->peer_names[i]};
            s->exchange.peers = s->peers[i];
            COD_TRY(cod_scale_run(&setting, &p.result));
            cod_scale_compare(&setting, &p.rivals);
            if (s->as_json)
                write_row(&s->json, &p);
            else
                print_row(&p);
            fflush(stdout);
        }
    }
    return COD_OK;
}

static cod_status run(scale *s)
{
    const int64_t count = s->publications * s->exchange.period;
    cod_scale_costs here = {0};
    if (!s->costs_given || !s->ratios_given)
        COD_TRY(cod_bench_scale_costs(&s->exchange, &here));
    if (!s->ratios_given) {
        s->costs.key_ratio = here.key_ratio;
        s->costs.ratio = here.ratio;
    }
    if (!s->costs_given) {
        here.key_ratio = s->costs.key_ratio;
        here.ratio = s->costs.ratio;
        s->costs = here;
    }
    if (s->as_json)
        write_head(s);
    else
        print_head(s);
    for (size_t l = 0; l < s->layout_count; l++) {
        const size_t groups = (size_t)s->layouts[l].groups;
        const figures f = {.count = count,
                           .steps = calloc(groups * (size_t)count, sizeof(double)),
                           .bytes = calloc(groups * (size_t)s->publications, sizeof(double))};
        cod_status status =
            f.steps != NULL && f.bytes != NULL
                ? COD_OK
                : cod_fail(COD_ERR_MEMORY, "no memory for %lld steps of %zu groups", (long long)count, groups);
        for (size_t m = 0; m < s->weight_count && status == COD_OK; m++)
            status = run_model(s, &s->layouts[l], m, &f);
        free(f.steps);
        free(f.bytes);
        COD_TRY(status);
    }
    if (!s->as_json)
        return COD_OK;
    char *text;
    cod_json_close(&s->json);
    cod_json_close(&s->json);
    COD_TRY(cod_json_end(&s->json, &text));
    puts(text);
    free(text);
    return COD_OK;
}

int cod_bench_scale(int argc, char **argv)
{
    scale s = {.json = {.indent = 2}};
    cod_arena arena = {0};
    int code = parse(argc, argv, &s, &arena);
    if (code < 0)
        code = cod_cmd_end(run(&s));
    cod_json_clear(&s.json);
    cod_arena_clear(&arena);
    return code;
}
