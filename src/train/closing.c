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

/** "held_out_0", "test_0": where the i-th figure of held-out or test data is. */
static void key_of(bool test, int figure, char key[32])
{
    snprintf(key, 32, "%s_%d", test ? "test" : "held_out", figure);
}

static cod_status add_all(const trainer *t, const closing *c, cod_checkpoint *checkpoint)
{
    for (int i = 0; i < 2 * t->task->kind->figure_count; i++) {
        char key[32];
        key_of(i % 2, i / 2, key);
        COD_TRY(cod_checkpoint_add_number(checkpoint, key, (i % 2 ? &c->test : &c->held_out)->values[i / 2]));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const double value = *(const double *)((const char *)c + numbers[i].offset);
        COD_TRY(cod_checkpoint_add_number(checkpoint, numbers[i].key, value));
    }
    COD_TRY(cod_checkpoint_add_text(checkpoint, "device", c->device));
    if (c->diverged)
        COD_TRY(cod_checkpoint_add_text(checkpoint, "diverged", "true"));
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
    for (int i = 0; i < 2 * t->task->kind->figure_count; i++) {
        char key[32];
        key_of(i % 2, i / 2, key);
        COD_TRY(cod_checkpoint_number(file, key, &(i % 2 ? &out->test : &out->held_out)->values[i / 2]));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        double *number = (double *)((char *)out + numbers[i].offset);
        COD_TRY(cod_checkpoint_number(file, numbers[i].key, number));
        if (numbers[i].whole && !cod_is_whole(*number, 0, COD_WHOLE_MOST))
            return cod_fail(COD_ERR_FORMAT, "the checkpoint's '%s' is %g, no count", numbers[i].key, *number);
    }
    return COD_OK;
}

cod_status closing_read(const trainer *t, int group, closing *out)
{
    cod_st_file *file = NULL;
    char part[TRAINER_PART];
    trainer_closing_part(group, part);
    COD_TRY(cod_checkpoint_open(t->checkpoints, t->context.steps, part, &file));
    const cod_status status = read_all(t, file, out);
    cod_st_close(file);
    return status;
}
