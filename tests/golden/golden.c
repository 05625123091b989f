#include "golden/golden.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROLE_INPUT, ROLE_BEFORE, ROLE_EXPECTED };

static cod_status take(FILE *file, void *target, size_t bytes)
{
    return fread(target, 1, bytes, file) == bytes ? COD_OK : cod_fail(COD_ERR_FORMAT, "golden file ends early");
}

static cod_status take_text(FILE *file, char text[256])
{
    unsigned char length;
    COD_TRY(take(file, &length, 1));
    text[length] = 0;
    return take(file, text, length);
}

enum field_type { FIELD_INT, FIELD_FLOAT, FIELD_BOOL };

static cod_status set_attribute(cod_op_attr *attr, const char *key, double value)
{
#define FIELD(name, type)                                                                                              \
    {                                                                                                                  \
#name, offsetof(cod_op_attr, name), type                                                                       \
    }
    static const struct {
        const char *key;
        size_t offset;
        enum field_type type;
    } fields[] = {
        FIELD(stride_h, FIELD_INT),   FIELD(stride_w, FIELD_INT),      FIELD(pad_h, FIELD_INT),
        FIELD(pad_w, FIELD_INT),      FIELD(kernel_h, FIELD_INT),      FIELD(kernel_w, FIELD_INT),
        FIELD(activation, FIELD_INT), FIELD(leak, FIELD_FLOAT),        FIELD(epsilon, FIELD_FLOAT),
        FIELD(momentum, FIELD_FLOAT), FIELD(alpha, FIELD_FLOAT),       FIELD(beta, FIELD_FLOAT),
        FIELD(factor, FIELD_INT),     FIELD(resize, FIELD_INT),        FIELD(pool, FIELD_INT),
        FIELD(loss, FIELD_INT),       FIELD(temperature, FIELD_FLOAT), FIELD(optimiser, FIELD_INT),
        FIELD(beta1, FIELD_FLOAT),    FIELD(beta2, FIELD_FLOAT),       FIELD(weight_decay, FIELD_FLOAT),
        FIELD(max_norm, FIELD_FLOAT), FIELD(nesterov, FIELD_BOOL),     FIELD(smoothing, FIELD_FLOAT),
    };
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].key, key) != 0)
            continue;
        char *field = (char *)attr + fields[i].offset;
        if (fields[i].type == FIELD_FLOAT)
            *(float *)field = (float)value;
        else if (fields[i].type == FIELD_BOOL)
            *(bool *)field = value != 0;
        else
            *(int *)field = (int)value; /* enumerations are ints too */
        return COD_OK;
    }
    return cod_fail(COD_ERR_FORMAT, "unknown attribute '%s' in the golden file", key);
}

static cod_status take_tensor(FILE *file, golden_case *out)
{
    unsigned char head[3];
    uint32_t shape[4];
    COD_TRY(take(file, head, sizeof head));
    COD_TRY(take(file, shape, sizeof shape));
    const size_t slot = head[1] + (head[0] == ROLE_INPUT ? 0u : (size_t)COD_OP_MAX_INPUTS);
    if (slot >= COD_TEST_SLOTS)
        return cod_fail(COD_ERR_FORMAT, "slot %zu in the golden file", slot);
    cod_view *view = cod_test_view(&out->op, slot);
    view->shape = (cod_shape){shape[0], shape[1], shape[2], shape[3]};
    view->pixel_stride = shape[3];
    view->dtype = head[2] ? COD_I32 : COD_F64;
    const size_t count = (size_t)cod_shape_count(view->shape);
    double *values = calloc(count + 1, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    (head[0] == ROLE_EXPECTED ? out->expected : out->values)[slot] = values;
    if (head[2] == 0)
        return take(file, values, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        int32_t integer;
        COD_TRY(take(file, &integer, sizeof integer));
        values[i] = integer;
    }
    return COD_OK;
}

static cod_status take_case(FILE *file, golden_case *out)
{
    char name[256], kind[256], key[256];
    unsigned char accumulate;
    uint32_t attributes, tensors;
    COD_TRY(take_text(file, name));
    COD_TRY(take_text(file, kind));
    COD_TRY(take(file, &accumulate, 1));
    snprintf(out->name, sizeof out->name, "%.60s: %.180s", kind, name);
    int found = 0;
    while (found < COD_OP_KIND_COUNT && strcmp(cod_op_kind_name((cod_op_kind)found), kind) != 0)
        found++;
    if (found == COD_OP_KIND_COUNT)
        return cod_fail(COD_ERR_FORMAT, "unknown kind '%s' in the golden file", kind);
    out->op.kind = (cod_op_kind)found;
    out->op.accumulate = accumulate != 0;
    COD_TRY(take(file, &attributes, sizeof attributes));
    for (uint32_t i = 0; i < attributes; i++) {
        double value;
        COD_TRY(take_text(file, key));
        COD_TRY(take(file, &value, sizeof value));
        COD_TRY(set_attribute(&out->op.attr, key, value));
    }
    COD_TRY(take(file, &tensors, sizeof tensors));
    for (uint32_t i = 0; i < tensors; i++)
        COD_TRY(take_tensor(file, out));
    return COD_OK;
}

static cod_status take_all(FILE *file, golden_file *out)
{
    char magic[4];
    uint32_t version, count;
    COD_TRY(take(file, magic, sizeof magic));
    COD_TRY(take(file, &version, sizeof version));
    COD_TRY(take(file, &count, sizeof count));
    if (memcmp(magic, "CODG", 4) != 0 || version != 1 || count > 100000)
        return cod_fail(COD_ERR_FORMAT, "not a golden file of version 1");
    out->cases = calloc((size_t)count + 1, sizeof *out->cases);
    COD_REQUIRE_MEMORY(out->cases);
    out->count = count;
    for (uint32_t i = 0; i < count; i++)
        COD_TRY(take_case(file, &out->cases[i]));
    return COD_OK;
}

cod_status golden_load(const char *path, golden_file *out)
{
    *out = (golden_file){.cases = NULL};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return cod_fail(COD_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    const cod_status status = take_all(file, out);
    fclose(file);
    if (status != COD_OK)
        golden_clear(out);
    return status;
}

void golden_clear(golden_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
            free(file->cases[i].values[slot]);
            free(file->cases[i].expected[slot]);
        }
    }
    free(file->cases);
    *file = (golden_file){.cases = NULL};
}
