#include "nn/torch_case.h"

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void take(const torch_file *file, void *target, size_t bytes)
{
    if (fread(target, 1, bytes, file->file) != bytes)
        fail_msg("%s ends early", file->path);
}

static void take_text(const torch_file *file, char text[256])
{
    unsigned char length;
    take(file, &length, 1);
    take(file, text, length);
    text[length] = 0;
}

static void take_case(const torch_file *file, torch_case *c)
{
    take_text(file, c->name);
    take_text(file, c->kind);
    take_text(file, c->options);
    take_text(file, c->loss);
    take_text(file, c->optimiser);
    take(file, &c->tensor_count, 4);
    assert_true(c->tensor_count <= TORCH_CASE_MAX_TENSORS);
    for (uint32_t i = 0; i < c->tensor_count; i++) {
        torch_tensor *t = &c->tensors[i];
        take_text(file, t->name);
        take(file, &t->rank, 4);
        assert_true(t->rank <= 4);
        take(file, t->dims, t->rank * sizeof *t->dims);
        t->count = 1;
        for (uint32_t k = 0; k < t->rank; k++)
            t->count *= t->dims[k];
        t->values = calloc(t->count + 1, sizeof *t->values);
        assert_non_null(t->values);
        take(file, t->values, t->count * sizeof *t->values);
    }
}

const torch_tensor *torch_case_find(const torch_case *c, const char *prefix, const char *name)
{
    char wanted[600];
    snprintf(wanted, sizeof wanted, "%s%s", prefix, name);
    for (uint32_t i = 0; i < c->tensor_count; i++)
        if (strcmp(c->tensors[i].name, wanted) == 0)
            return &c->tensors[i];
    fail_msg("%s: PyTorch's model has no '%s'", c->name, wanted);
    return NULL;
}

double torch_case_distance(const float *actual, const torch_tensor *expected)
{
    double largest = 0, distance = 0;
    for (size_t i = 0; i < expected->count; i++) {
        const double difference = fabs((double)actual[i] - (double)expected->values[i]);
        largest = fmax(largest, fabs((double)expected->values[i]));
        if (!(difference <= distance))
            distance = isnan(difference) ? INFINITY : difference;
    }
    return distance / (largest + 1e-6);
}

void torch_case_compare(const torch_case *c, const char *what, const float *actual, const torch_tensor *expected,
                        double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < expected->count; i++)
        largest = fmax(largest, fabs((double)expected->values[i]));
    for (size_t i = 0; i < expected->count; i++)
        if (!(fabs((double)actual[i] - (double)expected->values[i]) <= tolerance * (largest + 1e-6)))
            fail_msg("%s, %s, %s[%zu]: %.9g, PyTorch has %.9g", c->name, what, expected->name, i, (double)actual[i],
                     (double)expected->values[i]);
}

torch_file torch_file_open(const char *path)
{
    torch_file file = {.path = path, .file = fopen(path, "rb")};
    char magic[4];
    uint32_t version;
    assert_non_null(file.file);
    take(&file, magic, 4);
    take(&file, &version, 4);
    take(&file, &file.count, 4);
    assert_memory_equal(magic, "CODM", 4);
    assert_int_equal(version, 2);
    return file;
}

bool torch_file_next(torch_file *file, torch_case *c)
{
    if (file->taken++ < file->count) {
        take_case(file, c);
        return true;
    }
    assert_int_equal(fgetc(file->file), EOF);
    fclose(file->file);
    return false;
}

void torch_case_clear(torch_case *c)
{
    for (uint32_t i = 0; i < c->tensor_count; i++)
        free(c->tensors[i].values);
    c->tensor_count = 0;
}

void torch_case_write_input(test_net *net, const char *input, const torch_tensor *from)
{
    const cod_view view = cod_executable_input(net->executable, input);
    const cod_shape s = view.shape;
    double *values = net_new(from->count);
    assert_int_equal(cod_shape_count(s), from->count);
    for (int64_t i = 0; i < cod_shape_count(s); i++) {
        const int64_t channel = i % s.c, x = i / s.c % s.w, y = i / s.c / s.w % s.h, n = i / s.c / s.w / s.h;
        values[i] = (double)from->values[((n * s.c + channel) * s.h + y) * s.w + x];
    }
    assert_ok(net_write(net, view, values));
    free(values);
}

void torch_case_read_param(const torch_tensor *from, const cod_param *param, double *values)
{
    float *ours = calloc(from->count + 1, sizeof *ours);
    assert_int_equal(from->count, cod_shape_count(param->shape));
    cod_param_from_torch(param, from->values, ours);
    for (size_t k = 0; k < from->count; k++)
        values[param->offset + k] = (double)ours[k];
    free(ours);
}
