/* Several runs in one process: each strategy sees the options of its own run. */
#include "support/folder.h"
#include "support/test.h"

#include "distill/codistill.h"
#include "exchange/exchange.h"
#include "io/file.h"
#include "ref/ref.h"
#include "strategies/async_parameter_server.h"
#include "strategies/diloco.h"
#include "train/strategy.h"

#include <stdio.h>
#include <string.h>

static int set_up(void **state)
{
    assert_ok(cod_backend_register(&cod_ref_backend));
    cod_recipe_register_supervised();
    cod_strategy_register_codistill();
    cod_strategy_register_diloco();
    cod_strategy_register_async_parameter_server();
    return cod_test_folder_make(state);
}

/** A run of `groups` groups of one rank. */
static void load(const char *strategy, int groups, const char *text, cod_run_config *run)
{
    char chosen[64], count[64];
    const char *const overrides[] = {chosen, count, "train.backend=ref", "data.kind=synthetic"};
    snprintf(chosen, sizeof chosen, "train.strategy=%s", strategy);
    snprintf(count, sizeof count, "cluster.groups=%d", groups);
    assert_ok(cod_file_write(cod_test_at("run.yaml"), text, strlen(text)));
    assert_ok(cod_run_config_load(cod_test_at("run.yaml"), overrides, sizeof overrides / sizeof overrides[0], run));
}

/** How many programs a run's codistill strategy adds to the recipe's. */
static size_t programs_of(const cod_run_config *run, cod_strategy *strategy)
{
    cod_train_session session = {.config = run, .backend = &cod_ref_backend, .sample = {.n = 4}};
    assert_ok(cod_ref_backend.open(NULL, &session.device));
    cod_device *device = session.device;
    assert_ok(cod_train_session_build(&session, strategy));
    const size_t added = session.program_count - session.recipe.step_count;
    cod_train_session_clear(&session);
    cod_ref_backend.close(device);
    return added;
}

TEST(codistill_keeps_its_options)
{
    cod_run_config alone, batch, mixed;
    cod_strategy *strategies[3];
    load("codistill", 2, "exchange: {transport: file, period: 5}\ndistill: {weight: 0}\n", &alone);
    load("codistill", 2, "exchange: {period: 6}\n", &batch);
    load("codistill", 2, "exchange: {transport: file, deterministic: true}\ndistill: {inputs: mixup}\n", &mixed);
    cod_run_config *const runs[] = {&alone, &batch, &mixed};
    for (size_t i = 0; i < 3; i++)
        assert_ok(runs[i]->strategy->create(runs[i], &strategies[i]));
    for (size_t i = 0; i < 3; i++) { /* distilling on other inputs takes a program for the task too */
        assert_int_equal(programs_of(runs[i], strategies[i]), i);
        strategies[i]->ops->destroy(strategies[i]);
    }
    const cod_exchange_options *exchange = cod_run_config_section(&alone, &cod_exchange_option_table);
    assert_int_equal(exchange->period, 5);
    exchange = cod_run_config_section(&batch, &cod_exchange_option_table);
    assert_int_equal(exchange->period, 6);
    assert_ok(cod_run_config_choose_group(&alone, 0));
    assert_fails(COD_ERR_ARGUMENT, "exchange.transport=file", cod_run_config_choose_group(&batch, 0));
    assert_fails(COD_ERR_ARGUMENT, "exchange.deterministic", cod_run_config_choose_group(&mixed, 0));
    for (size_t i = 0; i < 3; i++)
        cod_run_config_clear(runs[i]);
}

TEST(diloco_keeps_its_options)
{
    cod_run_config coded, exact;
    cod_strategy_plan plans[2];
    load("diloco", 3, "diloco: {period: 30, codec: int8}\n", &coded);
    load("diloco", 3, "diloco: {period: 40}\n", &exact);
    coded.strategy->plan(&coded, 10000, 100, &plans[0]);
    exact.strategy->plan(&exact, 10000, 100, &plans[1]);
    assert_int_equal(plans[0].every_steps, 30);
    assert_int_equal(plans[1].every_steps, 40);
    assert_string_equal(plans[0].what, "changes averaged (int8)");
    assert_string_equal(plans[1].what, "changes averaged (f32)");
    assert_true(plans[0].sent_bytes < plans[1].sent_bytes);
    cod_run_config_clear(&coded);
    cod_run_config_clear(&exact);
}

TEST(servers_keep_their_options)
{
    cod_run_config one, two, other;
    cod_strategy_plan plans[2];
    load("async_parameter_server", 5, "async_parameter_server: {push_codec: int8}\n", &one);
    load("async_parameter_server", 5, "async_parameter_server: {servers: 2, pull_codec: topk}\n", &two);
    load("codistill", 5, "async_parameter_server: {servers: 4}\n", &other);
    assert_int_equal(cod_run_config_servers(&one), 1);
    assert_int_equal(cod_run_config_servers(&two), 2);
    assert_int_equal(cod_run_config_servers(&other), 0);
    one.strategy->plan(&one, 10000, 100, &plans[0]);
    two.strategy->plan(&two, 10000, 100, &plans[1]);
    assert_string_equal(plans[0].what, "gradients to 1 server (int8), weights back (none)");
    assert_string_equal(plans[1].what, "gradients to 2 servers (none), weights back (topk)");
    assert_null(cod_run_config_section(&one, &cod_exchange_option_table));
    cod_run_config_clear(&one);
    cod_run_config_clear(&two);
    cod_run_config_clear(&other);
}

TEST_GROUP(set_up, cod_test_folder_remove)
