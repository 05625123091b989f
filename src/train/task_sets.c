/* Further validation sets of a task. */
#include "train/task.h"

#include <stdio.h>
#include <string.h>

void cod_task_set_key(const cod_train_task *task, size_t set, int figure, char key[64])
{
    const char *name = set > 0 ? task->sets[set - 1].name : "";
    snprintf(key, 64, "%s%s%s", task->kind->figures[figure].key, set > 0 ? "." : "", name);
}

const char *cod_task_begin_set(cod_train_task *task, const cod_run_config *config, size_t set)
{
    const char *item = config->data.val_sets.items[set];
    (void)cod_data_set_name(item, task->sets[set].name); /* the options have been examined */
    if (strcmp(task->sets[set].name, config->eval.best_set) == 0)
        task->judge = set + 1;
    return cod_data_set_path(item);
}

cod_status cod_task_fail_set(const cod_train_task *task, size_t set, cod_status status)
{
    return cod_fail_prefix(status, "data.val_sets: '%s'", task->sets[set].name);
}
