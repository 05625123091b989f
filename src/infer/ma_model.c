#include "infer/ma_model.h"

#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A tensor of one dimension. @param length  -1 = any */
static cod_status find(const cod_st_file *file, const char *name, cod_st_dtype dtype, int64_t length,
                       const cod_st_tensor **tensor)
{
    const cod_st_tensor *found = cod_st_tensor_find(file, name);
    if (found == NULL)
        return cod_fail(COD_ERR_FORMAT, "'%s' is not in it; tools/ma_model.py makes the file of the authors' model.mat",
                        name);
    if (found->dtype != dtype || found->rank != 1 || (length >= 0 && found->shape[0] != length))
        return length >= 0
                   ? cod_fail(COD_ERR_FORMAT, "'%s' is not %s [%lld]", name, cod_st_dtype_name(dtype),
                              (long long)length)
                   : cod_fail(COD_ERR_FORMAT, "'%s' is not %s of one dimension", name, cod_st_dtype_name(dtype));
    *tensor = found;
    return COD_OK;
}

static cod_status find_of(const cod_st_file *file, int group, const char *part, cod_st_dtype dtype, int64_t length,
                          const cod_st_tensor **tensor)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", cod_ma_group_names[group], part);
    return find(file, name, dtype, length, tensor);
}

static cod_status read_forest(const cod_st_file *file, int group, cod_ma_forest *forest)
{
    const cod_st_tensor *roots = NULL, *value = NULL, *feature = NULL, *left = NULL;
    COD_TRY(find_of(file, group, "roots", COD_ST_I32, -1, &roots));
    COD_TRY(find_of(file, group, "value", COD_ST_F64, -1, &value));
    COD_TRY(find_of(file, group, "feature", COD_ST_I32, value->shape[0], &feature));
    COD_TRY(find_of(file, group, "left", COD_ST_I32, value->shape[0], &left));
    forest->tree_count = cod_st_count(roots);
    forest->node_count = cod_st_count(value);
    forest->roots = malloc(roots->bytes + 1);
    forest->nodes = malloc(forest->node_count * sizeof *forest->nodes + 1);
    COD_REQUIRE_MEMORY(forest->roots);
    COD_REQUIRE_MEMORY(forest->nodes);
    memcpy(forest->roots, roots->data, roots->bytes);
    for (size_t n = 0; n < forest->node_count; n++) {
        cod_ma_node *node = &forest->nodes[n];
        memcpy(&node->value, (const char *)value->data + n * sizeof node->value, sizeof node->value);
        memcpy(&node->feature, (const char *)feature->data + n * sizeof node->feature, sizeof node->feature);
        memcpy(&node->left, (const char *)left->data + n * sizeof node->left, sizeof node->left);
    }
    return COD_OK;
}

static cod_status read_model(const cod_st_file *file, cod_ma_model *model)
{
    const cod_st_tensor *linear = NULL;
    COD_TRY(find(file, "linear", COD_ST_F64, 1 + COD_MA_GROUPS, &linear));
    memcpy(model->linear, linear->data, sizeof model->linear);
    for (int g = 0; g < COD_MA_GROUPS; g++)
        COD_TRY(read_forest(file, g, &model->forests[g]));
    return cod_ma_model_check(model);
}

static cod_status read_file(const char *path, cod_ma_model *model)
{
    cod_st_file *file = NULL;
    COD_TRY(cod_st_open(path, &file));
    const cod_status status = read_model(file, model);
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status cod_ma_model_load(const char *path, cod_ma_model *model)
{
    *model = (cod_ma_model){0};
    const cod_status status = read_file(path, model);
    if (status == COD_OK)
        return COD_OK;
    cod_ma_model_clear(model);
    return cod_fail_prefix(status, "the model of Ma's score");
}

void cod_ma_model_clear(cod_ma_model *model)
{
    for (int g = 0; g < COD_MA_GROUPS; g++) {
        free(model->forests[g].roots);
        free(model->forests[g].nodes);
    }
    *model = (cod_ma_model){0};
}
