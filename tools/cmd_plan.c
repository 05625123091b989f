/* `codistill plan`: what would run where, without running it. */
#include "tools/cmd.h"

#include "core/log.h"
#include "tools/arguments.h"
#include "tools/plan.h"
#include "tools/print.h"
#include "train/strategy.h"
#include "train/task.h"

#include <stdio.h>

static const char help[] =
    "usage: codistill plan CONFIG.yaml [key.path=value ...]\n\n"
    "Checks the configuration and prints what it would run, without training: which ranks form which group on which "
    "node, device and processors, the memory of a rank, the bytes that move in a step and in a publication, and the "
    "time of a step. The time is predicted from steps on random data that this command times, and from the number of "
    "threads of all ranks for each processor.\n";

/** Each group that differs by configuration once. */
static cod_status plan_groups(const cod_run_config *config, const cod_plan_device *devices)
{
    cod_plan_load load;
    COD_TRY(cod_plan_load_read(config, devices, &load));
    if (cod_run_config_is_one_group(config) || config->group_count == 0) {
        putchar('\n');
        return cod_plan_print_group(config, 0, &devices[config->cluster.device], &load);
    }
    for (int g = 0; g < (int)config->group_count; g++) {
        bool before = false;
        for (int i = 0; i < g && !before; i++)
            before = cod_plan_is_alike(config, i, g);
        if (before)
            continue;
        printf("\ngroup %d", g);
        for (int i = g + 1; i < (int)config->group_count; i++)
            if (cod_plan_is_alike(config, i, g))
                printf(", %d", i);
        printf(": ");
        COD_TRY(cod_plan_print_group(config, g, &devices[cod_run_config_device(config, g).device], &load));
    }
    return COD_OK;
}

/** A classifier's sizes may be known from its data alone. */
static cod_status look_at_data(cod_run_config *config)
{
    const cod_task task = config->whole.kind->task;
    const cod_train_task_kind *kind = cod_train_task_find(task);
    cod_train_task *opened = NULL;
    if (task != COD_TASK_CLASSIFICATION)
        return COD_OK;
    COD_TRY(kind->open(config, &(cod_dataset_place){.seed = (uint64_t)config->root.seed, .groups = 1}, &opened));
    kind->close(opened);
    return COD_OK;
}

enum { DEVICES = COD_DEVICE_CUDA + 1 };

/** Opens what groups of this kind compute on, on this machine. */
static cod_status open_device(const cod_run_config *config, int group, int threads, cod_plan_device *out)
{
    const cod_device_choice choice = cod_run_config_device(config, group);
    char reason[COD_DEVICE_REASON];
    if (out->device != NULL)
        return COD_OK;
    COD_TRY(cod_device_open(&choice, &(cod_device_options){.threads = threads}, &out->backend, &out->device, reason));
    if (reason[0] != '\0')
        cod_log_info("device: %s", reason);
    return COD_OK;
}

static cod_status open_devices(const cod_run_config *config, cod_plan_device devices[DEVICES])
{
    const size_t groups = cod_run_config_is_one_group(config) || config->group_count == 0 ? 1 : config->group_count;
    int threads;
    COD_TRY(cod_plan_threads(config, &threads));
    for (size_t g = 0; g < groups; g++)
        COD_TRY(open_device(config, (int)g, threads, &devices[cod_run_config_device(config, (int)g).device]));
    return COD_OK;
}

static cod_status print_all(const cod_run_config *config, const cod_plan_device devices[DEVICES])
{
    COD_TRY(cod_plan_print_map(config, devices));
    for (int d = 0; d < DEVICES; d++)
        if (devices[d].device != NULL)
            cod_print(stdout, "%s, as the first rank on it has it: %s\n", devices[d].backend->name,
                      devices[d].backend->describe(devices[d].device));
    return plan_groups(config, devices);
}

static cod_status plan(cod_run_config *config)
{
    cod_plan_device devices[DEVICES] = {{0}};
    COD_TRY(look_at_data(config));
    cod_status status = open_devices(config, devices);
    COD_THEN(status, print_all(config, devices));
    for (int d = 0; d < DEVICES; d++)
        if (devices[d].device != NULL)
            devices[d].backend->close(devices[d].device);
    return status;
}

int cod_cmd_plan(int argc, char **argv)
{
    cod_config_arguments arguments;
    cod_run_config config = {0};
    int code = cod_config_arguments_parse(argc, argv, help, NULL, 0, &arguments);
    if (code < 0) {
        cod_status status = cod_run_config_load(arguments.path, arguments.overrides, arguments.count, &config);
        COD_THEN(status, plan(&config));
        code = cod_cmd_end(status);
    }
    cod_run_config_clear(&config);
    cod_config_arguments_clear(&arguments);
    return code;
}
