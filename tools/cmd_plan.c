/* `codistill plan`: what would run where, without running it. */
#include "tools/cmd.h"

#include "tools/arguments.h"
#include "tools/plan.h"
#include "train/strategy.h"
#include "train/task.h"

#include <stdio.h>

static const char help[] =
    "usage: codistill plan CONFIG.yaml [key.path=value ...]\n\n"
    "Starts nothing: prints the map of ranks to groups, nodes, devices and processors, the memory of a rank, the bytes "
    "that\n"
    "move in a step and in a publication, and the step time, predicted from steps timed in this process on random "
    "data.\n";

/** Each group that differs by configuration once. */
static cod_status plan_groups(const cod_run_config *config, const cod_backend *backend, cod_device *device)
{
    if (cod_run_config_is_one_group(config) || config->group_count == 0) {
        putchar('\n');
        return cod_plan_print_group(config, 0, backend, device);
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
        COD_TRY(cod_plan_print_group(config, g, backend, device));
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

static cod_status plan(cod_run_config *config)
{
    int threads;
    COD_TRY(look_at_data(config));
    cod_device *device;
    const cod_backend *backend = cod_backend_find(config->train.backend);
    COD_TRY(cod_plan_print_map(config, &threads));
    COD_TRY(backend->open(&(cod_device_options){.threads = threads}, &device));
    printf("%s, as rank 0 has it: %s\n", backend->name, backend->describe(device));
    const cod_status status = plan_groups(config, backend, device);
    backend->close(device);
    return status;
}

int cod_cmd_plan(int argc, char **argv)
{
    cod_config_arguments arguments;
    cod_run_config config = {0};
    int code = cod_config_arguments_parse(argc, argv, help, NULL, 0, &arguments);
    if (code < 0) {
        cod_status status = cod_run_config_load(arguments.path, arguments.overrides, arguments.count, &config);
        if (status == COD_OK)
            status = plan(&config);
        code = status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
    }
    cod_run_config_clear(&config);
    cod_config_arguments_clear(&arguments);
    return code;
}
