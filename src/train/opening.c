/* The first lines that a run logs: what is trained, by which program, on which data and devices. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 80 };

/** "12,345" */
static void write_number(int64_t number, char text[32])
{
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    size_t used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
}

/** The model of the first rank's group, and whether others have another one. */
static void describe_model(const trainer *t, char text[200])
{
    const char *model = cod_run_config_group(t->config, cod_group_index(t->group))->kind->name;
    char parameters[32];
    bool alike = true;
    for (int g = 0; g < cod_group_count(t->group); g++)
        alike = alike && strcmp(cod_run_config_group(t->config, g)->kind->name, model) == 0;
    write_number((int64_t)t->session.weights.sets[0].range.count, parameters);
    snprintf(text, 200, "%s%s, %s parameters", model, alike ? "" : " and others", parameters);
}

/** One line, or two where that is wider than a terminal. */
static void tell_run(const trainer *t)
{
    char model[200], steps[32], run[4096], program[200];
    const int groups = cod_group_count(t->group), ranks = trainer_ranks(t);
    describe_model(t, model);
    write_number(t->context.steps, steps);
    snprintf(run, sizeof run, "'%s': %s, %s steps", t->folder, model, steps);
    size_t used = (size_t)snprintf(program, sizeof program, "codistill %s",
                                   t->request->version != NULL ? t->request->version : "");
    if (groups > 1)
        snprintf(program + used, sizeof program - used, ", %d groups, %d ranks", groups, ranks);
    else if (ranks > 1)
        snprintf(program + used, sizeof program - used, ", %d ranks", ranks);
    if (strlen(run) + 2 + strlen(program) <= COLUMNS) {
        cod_log_info("%s, %s", run, program);
    } else {
        cod_log_info("%s", run);
        cod_log_info("%s", program);
    }
}

static void tell_data(const trainer *t)
{
    const cod_train_task *task = t->task;
    const int group = cod_group_index(t->group);
    if (task->sizes[COD_SPLIT_TEST] > 0)
        cod_log_info("group %d: %zu training, %zu held-out and %zu test %s; left out: %zu broken", group,
                     task->sizes[COD_SPLIT_TRAIN], task->sizes[COD_SPLIT_VAL], task->sizes[COD_SPLIT_TEST],
                     task->kind->items, task->broken);
    else
        cod_log_info("group %d: %zu training and %zu held-out %s; left out: %zu broken, %zu too small", group,
                     task->sizes[COD_SPLIT_TRAIN], task->sizes[COD_SPLIT_VAL], task->kind->items, task->broken,
                     task->unfit);
    for (size_t i = 0; i < task->set_count && cod_comm_rank(t->request->comm) == 0; i++)
        cod_log_info("validation set %s: %zu %s", task->sets[i].name, task->sets[i].size, task->kind->items);
    if (t->session.priors != NULL)
        cod_log_info("group %d: groups' shares of the classes differ and are corrected for", group);
}

void trainer_tell_run(const trainer *t)
{
    if (cod_comm_rank(t->request->comm) != 0)
        return;
    tell_run(t);
    if (t->binding.told[0] != '\0')
        cod_log_info("%s", t->binding.told);
}

void trainer_tell_group(const trainer *t)
{
    if (!t->leader)
        return;
    tell_data(t);
    if (t->device_reason[0] != '\0')
        cod_log_info("group %d: device: %s", cod_group_index(t->group), t->device_reason);
}
