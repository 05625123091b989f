/* The results of a group that the summary needs, saved as a part of its last checkpoint. */
#include "train/closing_internal.h"

#include "core/whole.h"

#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *key;
    size_t offset;
    bool whole; /**< it is cast to an integer where it is used */
} numbers[] = {
    {"baseline", offsetof(closing, baseline), false},
    {"elapsed_s", offsetof(closing, elapsed_s), false},
    {"resumed_from", offsetof(closing, resumed_from), true},
    {"parameters", offsetof(closing, parameters), true},
    {"fingerprint_high", offsetof(closing, fingerprint_high), false},
    {"fingerprint_low", offsetof(closing, fingerprint_low), false},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

/** Of groups that ended early. */
static const char steps_key[] = "ended_early_at", without_best_key[] = "evaluations_without_best";

/** "held_out_0", "test_0": where the i-th figure of held-out or test data is. */
static void key_of(bool test, int figure, char key[32])
{
    snprintf(key, 32, "%s_%d", test ? "test" : "held_out", figure);
}

/** "set.psnr_y.set5" */
static void set_key(const trainer *t, size_t set, int figure, char key[80])
{
    char of_set[64];
    cod_task_set_key(t->task, set, figure, of_set);
    snprintf(key, 80, "set.%s", of_set);
}

static cod_status add_sets(const trainer *t, const closing *c, cod_checkpoint *checkpoint)
{
    char key[80];
    for (size_t set = 1; set <= t->task->set_count; set++)
        for (int i = 0; i < t->task->kind->figure_count; i++) {
            set_key(t, set, i, key);
            COD_TRY(cod_checkpoint_add_number(checkpoint, key, c->results.sets[set - 1].values[i]));
        }
    return COD_OK;
}

/** Another group that is a job of its own may have other sets. */
static cod_status read_sets(const trainer *t, const cod_st_file *file, closing *out)
{
    char key[80];
    out->results = cod_task_results_unknown();
    for (size_t set = 1; set <= t->task->set_count; set++)
        for (int i = 0; i < t->task->kind->figure_count; i++) {
            set_key(t, set, i, key);
            if (cod_st_metadata(file, key) != NULL)
                COD_TRY(cod_checkpoint_number(file, key, &out->results.sets[set - 1].values[i]));
        }
    return COD_OK;
}

static cod_status add_all(const trainer *t, const closing *c, cod_checkpoint *checkpoint)
{
    for (int i = 0; i < 2 * t->task->kind->figure_count; i++) {
        char key[32];
        key_of(i % 2, i / 2, key);
        COD_TRY(cod_checkpoint_add_number(checkpoint, key, (i % 2 ? &c->test : &c->results.held_out)->values[i / 2]));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const double value = *(const double *)((const char *)c + numbers[i].offset);
        COD_TRY(cod_checkpoint_add_number(checkpoint, numbers[i].key, value));
    }
    COD_TRY(add_sets(t, c, checkpoint));
    COD_TRY(cod_checkpoint_add_text(checkpoint, "device", c->device));
    if (c->diverged)
        COD_TRY(cod_checkpoint_add_text(checkpoint, "diverged", "true"));
    if (trainer_ends_early(t)) {
        COD_TRY(cod_checkpoint_add_number(checkpoint, steps_key, c->steps));
        COD_TRY(cod_checkpoint_add_number(checkpoint, without_best_key, c->without_best));
    }
    return trainer_save_totals(checkpoint, c->totals);
}

cod_status closing_write(const trainer *t, const closing *c)
{
    cod_checkpoint checkpoint = {0};
    cod_status status = add_all(t, c, &checkpoint);
    COD_THEN(status, cod_checkpoint_write(&checkpoint, t->checkpoints, t->context.step, t->closing_part));
    cod_checkpoint_clear(&checkpoint);
    return status;
}

static cod_status read_all(const trainer *t, const cod_st_file *file, closing *out)
{
    const char *device = cod_st_metadata(file, "device"); /* checkpoints of older programs do not say it */
    snprintf(out->device, sizeof out->device, "%s", device != NULL ? device : "");
    out->diverged = cod_st_metadata(file, "diverged") != NULL;
    COD_TRY(trainer_load_totals(file, out->totals));
    COD_TRY(read_sets(t, file, out));
    for (int i = 0; i < 2 * t->task->kind->figure_count; i++) {
        char key[32];
        key_of(i % 2, i / 2, key);
        COD_TRY(cod_checkpoint_number(file, key, &(i % 2 ? &out->test : &out->results.held_out)->values[i / 2]));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        double *number = (double *)((char *)out + numbers[i].offset);
        COD_TRY(cod_checkpoint_number(file, numbers[i].key, number));
        if (numbers[i].whole && !cod_is_whole(*number, 0, COD_WHOLE_MOST))
            return cod_fail(COD_ERR_FORMAT, "the checkpoint's '%s' is %g, no count", numbers[i].key, *number);
    }
    out->steps = (double)t->config->train.steps;
    if (cod_st_metadata(file, steps_key) == NULL)
        return COD_OK;
    int64_t steps, without_best;
    COD_TRY(cod_checkpoint_whole(file, steps_key, 1, &steps));
    COD_TRY(cod_checkpoint_whole(file, without_best_key, 0, &without_best));
    out->steps = (double)steps;
    out->without_best = (double)without_best;
    return COD_OK;
}

/** The results at the end of all steps, or, where there are none, the newest, of which *step then is the step. */
static cod_status open_newest(const trainer *t, const char *part, int64_t *step, cod_st_file **file)
{
    const char *const parts[] = {part};
    *step = t->config->train.steps;
    const cod_status status = cod_checkpoint_open(t->checkpoints, *step, part, file);
    if (status != COD_ERR_IO)
        return status;
    COD_TRY(cod_checkpoint_newest(t->checkpoints, parts, 1, *step, step, NULL));
    return *step >= 0 ? cod_checkpoint_open(t->checkpoints, *step, part, file)
                      : cod_fail(COD_ERR_IO, "there is no %s in '%s'", part, t->checkpoints);
}

cod_status closing_read(const trainer *t, int group, closing *out)
{
    cod_st_file *file = NULL;
    char part[TRAINER_PART];
    int64_t step;
    trainer_closing_part(group, part);
    COD_TRY(open_newest(t, part, &step, &file));
    const cod_status status = read_all(t, file, out);
    cod_st_close(file);
    COD_TRY(status);
    /* Else of an end that was the last step until train.steps was raised. */
    return out->steps == (double)step
               ? COD_OK
               : cod_fail(COD_ERR_IO, "group %d has ended at step %lld only", group, (long long)step);
}
