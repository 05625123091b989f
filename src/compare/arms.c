/* The section `compare`: arms, seeds, rates and the baseline. */
#include "compare/compare_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS "codistill_rows"

/** The four uses of what is pulled; `both` is as the configuration has it. */
static const struct {
    const char *name;
    const char *set[3];
} rows[] = {
    {"distil", {"exchange.merge=none"}},
    {"merge", {"distill.weight=0"}},
    {"both", {NULL}},
    {"neither", {"distill.weight=0", "exchange.merge=none", "exchange.codec=none"}},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static cod_arena *arena_of(const cod_comparison *c)
{
    return cod_config_arena(c->config.config);
}

/** A problem at `node`; of the file as a whole where there is none. */
static void complain(cod_comparison *c, const cod_config_node *node, const char *text)
{
    cod_config_problem(c->config.config, node, "%s", text);
}

static void complain_of_strategy(cod_comparison *c, const cod_config_node *node, const char *name)
{
    const char *names[64];
    char known[512] = "", text[1024];
    size_t count = 0;
    for (; count < 63 && cod_strategy_at(count) != NULL; count++)
        names[count] = cod_strategy_at(count)->name;
    names[count++] = ROWS;
    for (size_t i = 0; i < count; i++)
        cod_names_add(known, sizeof known, names[i]);
    const char *near = cod_suggest(name, names, count);
    snprintf(text, sizeof text, "%sthere is no strategy '%s'; %s%s%sthere are: %s",
             node == NULL ? "--strategies: " : "", name, near ? "did you mean '" : "", near ? near : "",
             near ? "'? " : "", known);
    complain(c, node, text);
}

/** Room for one more arm. @return NULL when memory is short */
static cod_compare_arm *new_arm(cod_comparison *c)
{
    if (c->arm_count == c->arm_capacity) {
        const size_t capacity = 2 * c->arm_capacity + 16;
        cod_compare_arm *moved = realloc(c->arms, capacity * sizeof *moved);
        if (moved == NULL)
            return NULL;
        c->arms = moved;
        c->arm_capacity = capacity;
    }
    cod_compare_arm *arm = &c->arms[c->arm_count++];
    *arm = (cod_compare_arm){0};
    return arm;
}

static cod_status add_arm(cod_comparison *c, const cod_config_node *node, const char *name,
                          const cod_strategy_kind *kind, const char *const *set, size_t count)
{
    cod_compare_arm *arm = new_arm(c);
    COD_REQUIRE_MEMORY(arm);
    *arm = (cod_compare_arm){.name = cod_arena_strdup(arena_of(c), name), .kind = kind, .node = node};
    arm->set = cod_arena_alloc(arena_of(c), (count + 1) * sizeof *arm->set);
    COD_REQUIRE_MEMORY(arm->name);
    COD_REQUIRE_MEMORY(arm->set);
    for (size_t i = 0; i < count; i++) {
        arm->set[i] = cod_arena_strdup(arena_of(c), set[i]);
        COD_REQUIRE_MEMORY(arm->set[i]);
    }
    arm->set_count = count;
    for (size_t i = 0; i < count; i++)
        arm->own_steps = arm->own_steps || strncmp(set[i], "train.steps=", 12) == 0;
    return COD_OK;
}

static cod_status add_rows(cod_comparison *c, const cod_config_node *node)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t count = 0;
        while (count < 3 && rows[i].set[count] != NULL)
            count++;
        COD_TRY(add_arm(c, node, rows[i].name, cod_strategy_find("codistill"), rows[i].set, count));
    }
    return COD_OK;
}

/** A strategy by its name alone, or the four rows. */
static cod_status add_plain(cod_comparison *c, const cod_config_node *node, const char *name)
{
    const cod_strategy_kind *kind = cod_strategy_find(name);
    if (strcmp(name, ROWS) == 0)
        return add_rows(c, node);
    if (kind == NULL) {
        complain_of_strategy(c, node, name);
        return COD_OK;
    }
    return add_arm(c, node, name, kind, NULL, 0);
}

/** The command line's list; one rank alone also gets as many times the steps as there are groups. */
static cod_status add_list(cod_comparison *c, const char *list)
{
    char *text = cod_arena_strdup(arena_of(c), list), steps[64];
    COD_REQUIRE_MEMORY(text);
    for (char *rest = NULL, *name = strtok_r(text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        const cod_strategy_kind *kind = cod_strategy_find(name);
        const char *set[] = {steps};
        COD_TRY(add_plain(c, NULL, name));
        if (kind == NULL || !kind->single_rank || c->config.group_count < 2)
            continue;
        snprintf(steps, sizeof steps, "train.steps=%lld",
                 (long long)(c->config.train.steps * (int64_t)c->config.group_count));
        COD_TRY(add_arm(c, NULL, "single_long", kind, set, 1));
    }
    return COD_OK;
}

static bool is_name(const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("_-.", *at) == NULL)
            return false;
    return isalnum((unsigned char)text[0]);
}

/** The text at `node`, or NULL with a problem. */
static const char *read_text(cod_comparison *c, const cod_config_node *node)
{
    if (node->kind == COD_CONFIG_SCALAR && !node->null)
        return node->scalar;
    complain(c, node, "a name is needed here");
    return NULL;
}

static void complain_of_key(cod_comparison *c, const cod_config_node *node)
{
    static const char *const keys[] = {"name", "strategy", "set"};
    char text[256];
    const char *near = cod_suggest(node->key, keys, 3);
    snprintf(text, sizeof text, "unknown key '%s' in an arm; %s%s%s", node->key, near ? "did you mean '" : "",
             near ? near : "an arm has: name, strategy, set", near ? "'?" : "");
    complain(c, node, text);
}

static cod_status read_arm(cod_comparison *c, const cod_config_node *item)
{
    const char *name = NULL, *strategy = NULL, **set = NULL;
    const cod_config_node *named = item;
    size_t count = 0;
    for (const cod_config_node *key = item->first; key != NULL; key = key->next) {
        if (strcmp(key->key, "name") == 0)
            name = read_text(c, named = key);
        else if (strcmp(key->key, "strategy") == 0)
            strategy = read_text(c, named = key);
        else if (strcmp(key->key, "set") == 0)
            COD_TRY(cod_compare_read_set(c, key, COD_COMPARE_ARM_SETS, &set, &count));
        else
            complain_of_key(c, key);
    }
    strategy = strategy != NULL ? strategy : name;
    name = name != NULL ? name : strategy;
    if (name == NULL) {
        complain(c, item, "an arm needs a name, or a strategy, which then is its name");
        return COD_OK;
    }
    const cod_strategy_kind *kind = cod_strategy_find(strategy);
    if (!is_name(name))
        complain(c, named, "an arm's name is made of letters, digits, '_', '-' and '.'");
    else if (kind == NULL)
        complain_of_strategy(c, named, strategy);
    else
        return add_arm(c, item, name, kind, set, count);
    return COD_OK;
}

static cod_status read_arms(cod_comparison *c, const char *strategies)
{
    const cod_config_node *node = cod_config_find(c->config.config, "compare.arms");
    if (strategies[0] != '\0')
        return add_list(c, strategies);
    if (node == NULL || (node->kind == COD_CONFIG_SCALAR && node->scalar[0] == '\0'))
        return add_list(c, "single,allreduce," ROWS);
    if (node->kind == COD_CONFIG_SCALAR)
        return add_plain(c, node, node->scalar);
    if (node->kind == COD_CONFIG_MAPPING)
        complain(c, node, "arms is a list: of strategies' names, or {name: …, strategy: …, set: […]}");
    else if (node->count == 0)
        complain(c, node, "compare.arms is an empty list; at least one arm is needed");
    for (const cod_config_node *item = node->kind == COD_CONFIG_LIST ? node->first : NULL; item != NULL;
         item = item->next) {
        if (item->kind == COD_CONFIG_SCALAR)
            COD_TRY(add_plain(c, item, item->scalar));
        else if (item->kind == COD_CONFIG_MAPPING)
            COD_TRY(read_arm(c, item));
        else
            complain(c, item, "an arm is a strategy's name or a mapping {name: …, strategy: …, set: […]}");
    }
    return COD_OK;
}

static void check_names(cod_comparison *c)
{
    for (size_t i = 0; i < c->arm_count; i++) {
        bool again = false;
        char text[256];
        for (size_t k = 0; k < i; k++)
            again = again || strcmp(c->arms[k].name, c->arms[i].name) == 0;
        snprintf(text, sizeof text, "there are two arms '%s'; give one of them another name", c->arms[i].name);
        if (again)
            complain(c, c->arms[i].node, text);
    }
}

static cod_status read_seeds(cod_comparison *c, const char *text)
{
    const cod_int_list *list = &c->config.compare.seeds;
    char *copy = cod_arena_strdup(arena_of(c), text);
    int64_t *seeds = cod_arena_alloc(arena_of(c), (strlen(text) + 1) * sizeof *seeds);
    COD_REQUIRE_MEMORY(copy);
    COD_REQUIRE_MEMORY(seeds);
    c->seed_count = 0;
    for (char *rest = NULL, *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        char *end = NULL;
        seeds[c->seed_count] = strtoll(item, &end, 10);
        COD_REQUIRE(*end == '\0' && end != item && seeds[c->seed_count] >= 0,
                    "'%s' is no seed; a seed is a whole number of at least 0", item);
        c->seed_count++;
    }
    c->seeds = c->seed_count > 0 ? seeds : list->count > 0 ? list->items : &c->config.root.seed;
    c->seed_count = c->seed_count > 0 ? c->seed_count : list->count > 0 ? list->count : 1;
    for (size_t i = 0; i < c->seed_count; i++)
        for (size_t k = 0; k < i; k++)
            if (c->seeds[i] == c->seeds[k])
                cod_config_problem_key(c->config.config, "compare.seeds", "seed %lld is there twice",
                                       (long long)c->seeds[i]);
    return COD_OK;
}

/** As tools/netlab.py reads it: 20mbit, at least 10kbit. */
static bool is_rate(const char *text)
{
    static const struct {
        const char *unit;
        double bits;
    } units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    char *end = NULL;
    const double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : 0;
    for (size_t i = 0; i < 3 && end != NULL; i++)
        if (strcmp(end, units[i].unit) == 0 && strspn(text, "0123456789.") == (size_t)(end - text))
            return number * units[i].bits >= 1e4;
    return strcmp(text, "none") == 0;
}

static void read_rates(cod_comparison *c)
{
    static const char *const none[] = {"none"};
    const cod_string_list *list = &c->config.compare.rates;
    bool laboratory = false, equal = c->config.group_count >= 2;
    c->rates = list->count > 0 ? (const char *const *)list->items : none;
    c->rate_count = list->count > 0 ? list->count : 1;
    for (size_t i = 0; i < list->count; i++) {
        if (!is_rate(list->items[i]))
            cod_config_problem_key(c->config.config, "compare.rates",
                                   "'%s' is no rate such as 10mbit or 1gbit, at least 10kbit, or none", list->items[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(list->items[i], list->items[k]) == 0)
                cod_config_problem_key(c->config.config, "compare.rates", "'%s' is there twice", list->items[i]);
        laboratory = laboratory || (is_rate(list->items[i]) && strcmp(list->items[i], "none") != 0);
    }
    for (size_t g = 1; g < c->config.group_count; g++)
        equal = equal && c->config.groups[g].ranks == c->config.groups[0].ranks;
    if (laboratory && !equal)
        cod_config_problem_key(c->config.config, "compare.rates",
                               "links are between groups, each on a host of its own: cluster.groups must be 2 or more, "
                               "with equally many ranks");
}

static void check_budget(cod_comparison *c)
{
    const double value = c->config.compare.budget_value;
    const int kind = c->config.compare.budget;
    if ((kind == COD_BUDGET_STEPS || kind == COD_BUDGET_SAMPLES) && value != floor(value))
        cod_config_problem_key(c->config.config, "compare.budget_value", "a whole number of %s is needed",
                               cod_budget_names[kind]);
    if (kind == COD_BUDGET_SAMPLES && c->config.group_count == 0)
        cod_config_problem_key(c->config.config, "compare.budget",
                               "with cluster.groups: by_node it is not known how many samples a step has; set a number "
                               "of groups, or another budget");
}

static void read_baseline(cod_comparison *c)
{
    const char *wanted = c->config.compare.baseline, *names[COD_COMPARE_MAX_RUNS];
    size_t count = 0;
    c->baseline = 0;
    for (size_t i = 0; i < c->arm_count && count < COD_COMPARE_MAX_RUNS; i++) {
        names[count++] = c->arms[i].name;
        if (strcmp(c->arms[i].name, wanted[0] != '\0' ? wanted : "allreduce") == 0) {
            c->baseline = i;
            return;
        }
    }
    const char *near = cod_suggest(wanted, names, count);
    if (wanted[0] != '\0')
        cod_config_problem_key(c->config.config, "compare.baseline", "there is no arm '%s'%s%s%s", wanted,
                               near ? "; did you mean '" : "; it must be one of compare.arms", near ? near : "",
                               near ? "'?" : "");
}

static void describe_arm(const cod_run_config *config, cod_compare_arm *arm)
{
    const int servers = cod_run_config_servers(config);
    const int stages = cod_run_config_stages(config);
    arm->ranks = cod_run_config_ranks(config);
    arm->groups = cod_run_config_is_one_group(config) ? 1 : (int)config->group_count;
    arm->hosts = (int)config->group_count;
    arm->slots = arm->hosts > 0 ? config->groups[0].ranks : 0;
    for (int g = 1; g < arm->hosts; g++)
        arm->slots = config->groups[g].ranks == arm->slots ? arm->slots : 0;
    arm->steps = config->train.steps;
    arm->samples_per_step = config->data.batch * config->train.accumulate * ((arm->ranks - servers) / stages);
    cod_compare_describe_traffic(config, arm);
}

/** Without the words that point to the command line, which the user has not used. */
static void drop_place(char *message)
{
    static const char place[] = "command line: ";
    for (char *at = strstr(message, place); at != NULL; at = strstr(at, place))
        memmove(at, at + sizeof place - 1, strlen(at + sizeof place - 1) + 1);
}

cod_status cod_compare_describe_arm(cod_comparison *c, size_t arm)
{
    const cod_compare_run run = {.arm = arm, .seed = c->seeds[0], .name = "compare"};
    cod_run_config config;
    COD_TRY(cod_compare_load(c, &run, &config));
    describe_arm(&config, &c->arms[arm]);
    cod_run_config_clear(&config);
    return COD_OK;
}

/** Whether a candidate's settings, too, are possible in an arm. */
static cod_status load_candidate(const cod_comparison *c, size_t arm, const cod_compare_candidate *candidate)
{
    const cod_compare_run run = {.arm = arm, .seed = c->seeds[0], .candidate = candidate, .name = "compare"};
    cod_run_config config;
    COD_TRY(cod_compare_load(c, &run, &config));
    cod_run_config_clear(&config);
    return COD_OK;
}

/** A failure to load an arm, with a candidate where there is one, becomes a problem. */
static cod_status complain_of_load(cod_comparison *c, cod_status status, const cod_compare_arm *arm,
                                   const cod_compare_candidate *candidate)
{
    if (status != COD_ERR_ARGUMENT)
        return status;
    char message[4096], text[4200];
    snprintf(message, sizeof message, "%s", cod_error_message());
    drop_place(message);
    for (char *at = message; *at != '\0'; at++) /* a problem has one line */
        *at = *at == '\n' ? ';' : *at;
    snprintf(text, sizeof text, "%sarm '%s': %s", candidate != NULL ? "candidate in " : "", arm->name, message);
    complain(c, candidate != NULL ? candidate->node : arm->node, text);
    return COD_OK;
}

/** Checks that the settings of the arms, and of their candidates, are possible. */
static cod_status check_arms(cod_comparison *c)
{
    for (size_t i = 0; i < c->arm_count; i++)
        COD_TRY(complain_of_load(c, cod_compare_describe_arm(c, i), &c->arms[i], NULL));
    if (cod_config_problem_count(c->config.config) > 0)
        return COD_OK;
    for (size_t k = 0; k < c->candidate_count; k++) {
        cod_status status = COD_OK;
        size_t i = 0;
        while (i < c->arm_count && (status = load_candidate(c, i, &c->candidates[k])) == COD_OK)
            i++;
        if (status != COD_OK) /* once, though it may be of other arms too */
            COD_TRY(complain_of_load(c, status, &c->arms[i], &c->candidates[k]));
    }
    return COD_OK;
}

cod_status cod_compare_read(cod_comparison *c)
{
    COD_TRY(cod_run_config_resolved(&c->config, false, &c->config_text));
    c->task = c->config.task;
    COD_TRY(read_arms(c, c->arguments->strategies));
    COD_TRY(read_seeds(c, c->arguments->seeds));
    COD_TRY(cod_compare_read_tune(c));
    check_names(c);
    read_rates(c);
    check_budget(c);
    if (c->config.eval.patience > 0)
        cod_config_problem_key(c->config.config, "eval.patience", "%s", cod_compare_no_patience);
    read_baseline(c);
    if (cod_config_problem_count(c->config.config) == 0)
        COD_TRY(check_arms(c));
    const size_t trainings = c->seed_count * c->rate_count + c->candidate_count;
    COD_REQUIRE(c->arm_count * trainings <= COD_COMPARE_MAX_RUNS, "more than %d runs", COD_COMPARE_MAX_RUNS);
    return cod_config_check(c->config.config);
}
