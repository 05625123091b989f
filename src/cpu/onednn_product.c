/* Products of matrices. */
#include "core/memory.h"
#include "cpu/onednn_library_internal.h"

enum { A, B, C, SCRATCH, ARGS };

struct cpu_matmul {
    cpu_onednn *onednn;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[ARGS];
};

static const int arg_kinds[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

static cod_status matrix_desc(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, cod_dtype dtype,
                              dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return COD_DNNL(dnnl_memory_desc_init_by_strides(out, 2, dims, cpu_dnnl_type(dtype), strides));
}

static cod_status attr_set(dnnl_primitive_attr_t attr, dnnl_post_ops_t ops, bool accumulate)
{
    COD_TRY(COD_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)));
    if (accumulate)
        COD_TRY(COD_DNNL(dnnl_post_ops_append_sum(ops, 1.0f)));
    return COD_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
}

static cod_status desc_create(cpu_matmul *matmul, const cpu_matmul_problem *p)
{
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    COD_TRY(matrix_desc(p->rows, p->depth, 1, p->a_stride, p->dtype, &a));
    COD_TRY(matrix_desc(p->depth, p->columns, p->b_stride, 1, p->dtype, &b));
    COD_TRY(matrix_desc(p->rows, p->columns, p->columns, 1, COD_F32, &c));
    COD_TRY(COD_DNNL(dnnl_matmul_desc_init(&product, &a, &b, NULL, &c)));
    cod_status status = COD_DNNL(dnnl_primitive_attr_create(&attr));
    COD_THEN(status, COD_DNNL(dnnl_post_ops_create(&ops)));
    COD_THEN(status, attr_set(attr, ops, p->accumulate));
    COD_THEN(status, COD_DNNL(dnnl_primitive_desc_create(&matmul->desc, &product, attr, matmul->onednn->engine, NULL)));
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static const dnnl_memory_desc_t *arg_desc(const cpu_matmul *matmul, int arg)
{
    return dnnl_primitive_desc_query_md(matmul->desc, dnnl_query_exec_arg_md, arg_kinds[arg]);
}

static cod_status memory_create(cpu_matmul *matmul)
{
    for (int i = 0; i < ARGS; i++)
        COD_TRY(COD_DNNL(
            dnnl_memory_create(&matmul->memory[i], arg_desc(matmul, i), matmul->onednn->engine, DNNL_MEMORY_NONE)));
    return COD_OK;
}

cod_status cpu_matmul_create(cpu_onednn *onednn, const cpu_matmul_problem *problem, cpu_matmul **out)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cpu_matmul)));
    cpu_matmul *matmul = memory;
    matmul->onednn = onednn;
    cod_status status = desc_create(matmul, problem);
    COD_THEN(status, COD_DNNL(dnnl_primitive_create(&matmul->primitive, matmul->desc)));
    COD_THEN(status, memory_create(matmul));
    if (status == COD_OK)
        *out = matmul;
    else
        cpu_matmul_destroy(matmul);
    return status;
}

void cpu_matmul_destroy(cpu_matmul *matmul)
{
    if (matmul == NULL)
        return;
    for (int i = 0; i < ARGS; i++)
        if (matmul->memory[i])
            dnnl_memory_destroy(matmul->memory[i]);
    if (matmul->primitive)
        dnnl_primitive_destroy(matmul->primitive);
    if (matmul->desc)
        dnnl_primitive_desc_destroy(matmul->desc);
    cod_aligned_free(matmul);
}

size_t cpu_matmul_scratch_bytes(const cpu_matmul *matmul)
{
    return dnnl_memory_desc_get_size(arg_desc(matmul, SCRATCH));
}

cod_status cpu_matmul_execute(cpu_matmul *matmul, void *a, void *b, float *c, void *scratch)
{
    void *const handles[ARGS] = {a, b, c, scratch};
    dnnl_exec_arg_t args[ARGS];
    for (int i = 0; i < ARGS; i++) {
        COD_TRY(COD_DNNL(dnnl_memory_set_data_handle(matmul->memory[i], handles[i])));
        args[i] = (dnnl_exec_arg_t){arg_kinds[i], matmul->memory[i]};
    }
    return COD_DNNL(dnnl_primitive_execute(matmul->primitive, matmul->onednn->stream, ARGS, args));
}
