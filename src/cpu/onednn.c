#include "core/memory.h"
#include "cpu/onednn_library_internal.h"

#include <dlfcn.h>
#include <string.h>

enum { MAX_ARGS = 5 };

/** The argument list of one thread; its handles change from call to call. */
typedef struct conv_lane {
    dnnl_exec_arg_t args[MAX_ARGS];
} conv_lane;

struct cpu_conv {
    cpu_onednn *onednn;
    cpu_conv_direction direction;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder[2]; /**< packs s8 weights, or unpacks gradients; [1] adds to the result */
    dnnl_memory_t plain, packed; /**< the reorders' arguments */
    int lanes;
    conv_lane *lane;
};

static cod_status image_desc(const cpu_image *image, dnnl_memory_desc_t *out)
{
    const cod_shape s = image->shape;
    const dnnl_dims_t dims = {s.n, s.c, s.h, s.w};
    const dnnl_dims_t strides = {s.h * s.w * image->pixel_stride, 1, s.w * image->pixel_stride, image->pixel_stride};
    if (image->any_layout)
        return COD_DNNL(dnnl_memory_desc_init_by_tag(out, 4, dims, cpu_dnnl_type(image->dtype), dnnl_format_tag_any));
    return COD_DNNL(dnnl_memory_desc_init_by_strides(out, 4, dims, cpu_dnnl_type(image->dtype), strides));
}

/** f32 OHWI. */
static cod_status plain_weights_desc(const cpu_conv_problem *p, dnnl_memory_desc_t *out)
{
    const int64_t inputs = p->x.shape.c;
    const dnnl_dims_t dims = {p->y.shape.c, inputs, p->kernel_h, p->kernel_w};
    const dnnl_dims_t strides = {p->kernel_h * p->kernel_w * inputs, 1, p->kernel_w * inputs, inputs};
    return COD_DNNL(dnnl_memory_desc_init_by_strides(out, 4, dims, dnnl_f32, strides));
}

static cod_status append_post_ops(const cpu_conv_problem *p, dnnl_post_ops_t ops)
{
    if (p->sum)
        COD_TRY(COD_DNNL(dnnl_post_ops_append_sum(ops, 1.0f)));
    switch (p->activation) {
    case COD_ACT_RELU:
        return COD_DNNL(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f));
    case COD_ACT_LEAKY_RELU:
        return COD_DNNL(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, p->leak, 0.0f));
    case COD_ACT_SIGMOID:
        return COD_DNNL(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_logistic, 0.0f, 0.0f));
    case COD_ACT_TANH:
        return COD_DNNL(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_tanh, 0.0f, 0.0f));
    case COD_ACT_NONE:
    case COD_ACT_PRELU:
        break;
    }
    return COD_OK;
}

static cod_status attr_set_post_ops(const cpu_conv_problem *p, dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops;
    COD_TRY(COD_DNNL(dnnl_post_ops_create(&ops)));
    cod_status status = append_post_ops(p, ops);
    COD_THEN(status, COD_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops)));
    dnnl_post_ops_destroy(ops);
    return status;
}

static cod_status attr_set(const cpu_conv_problem *p, dnnl_primitive_attr_t attr)
{
    COD_TRY(COD_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)));
    if (p->direction != CPU_CONV_FORWARD)
        return COD_OK;
    if (p->factors != NULL) /* 2: one for each output channel */
        COD_TRY(COD_DNNL(dnnl_primitive_attr_set_output_scales(attr, p->y.shape.c, 2, p->factors)));
    return attr_set_post_ops(p, attr);
}

static cod_status attr_create(const cpu_conv_problem *p, dnnl_primitive_attr_t *out)
{
    COD_TRY(COD_DNNL(dnnl_primitive_attr_create(out)));
    const cod_status status = attr_set(p, *out);
    if (status != COD_OK)
        dnnl_primitive_attr_destroy(*out);
    return status;
}

/**
 * Whether malloc() is glibc's. It keeps a size behind every array, so that 8 bytes there can be read, except for large
 * ones (128 KiB), which have mappings of their own. A sanitizer's or another allocator may end its mapping with a small
 * array.
 */
static bool heap_is_glibc(void)
{
#ifdef __GLIBC__
    Dl_info heap, libc;
    const void *of_heap = dlsym(RTLD_DEFAULT, "malloc"), *of_libc = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    return of_heap != NULL && of_libc != NULL && dladdr(of_heap, &heap) != 0 && dladdr(of_libc, &libc) != 0 &&
           heap.dli_fbase == libc.dli_fbase;
#else
    return false;
#endif
}

/**
 * Whether the implementation of this name is wrong for the problem in oneDNN 2.6.3; test_convolution.c and test_heap.c
 * show each fault.
 */
static bool is_faulty(const cpu_conv_problem *p, const char *name)
{
    const bool jit = strncmp(name, "jit", 3) == 0;
    if (p->direction == CPU_CONV_BACKWARD_WEIGHTS) {
        /*
         * Where no column of a phase of the stride lies in the image, reads a part of its workspace that it never
         * wrote.
         */
        if (jit && p->x.dtype == COD_BF16 && p->x.shape.w < p->stride_w)
            return true;
        /*
         * Copies the pixels that it uses, 8 or 16 channels of each, to a workspace made for fewer: oneDNN issue 6035.
         */
        if (jit && strstr(name, "1x1") && p->x.shape.c < 16 && (p->stride_h > 1 || p->stride_w > 1))
            return true;
    }
    /* While it generates code it reads the word behind an array of its own and does not use it. The next implementation
     * in the list, jit:avx512_core_amx, does not read there, but takes 12 to 54 % longer for 3x3 convolutions of 64 to
     * 256 channels. */
    if (strncmp(name, "brgconv:avx512_core_amx", strlen("brgconv:avx512_core_amx")) == 0 && !heap_is_glibc())
        return true;
    /* Faults where a pixel does not begin at a multiple of 16 bytes. */
    return strstr(name, "sse41") && (p->x.pixel_stride != p->x.shape.c || p->y.pixel_stride != p->y.shape.c);
}

static const char *implementation_name(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success ? name : "unknown";
}

/** Takes oneDNN's first choice that is not known to be faulty. */
static cod_status desc_choose(const cpu_conv_problem *p, const dnnl_convolution_desc_t *convolution,
                              const_dnnl_primitive_attr_t attr, dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
                              dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t iterator;
    COD_TRY(COD_DNNL(dnnl_primitive_desc_iterator_create(&iterator, convolution, attr, engine, hint)));
    cod_status status = COD_OK;
    for (;;) {
        dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);
        if (desc == NULL) {
            status = cod_fail(COD_ERR_MEMORY, "oneDNN: a convolution could not be described");
            break;
        }
        if (!is_faulty(p, implementation_name(desc))) {
            *out = desc;
            break;
        }
        dnnl_primitive_desc_destroy(desc);
        if (dnnl_primitive_desc_iterator_next(iterator) != dnnl_success) {
            status = cod_fail(COD_ERR_UNSUPPORTED, "oneDNN has no right implementation of this convolution");
            break;
        }
    }
    dnnl_primitive_desc_iterator_destroy(iterator);
    return status;
}

/** Backward primitives of oneDNN want a forward one as a hint, though they look at its layout only. */
static cod_status desc_create(cpu_conv *conv, const cpu_conv_problem *p)
{
    const dnnl_dims_t strides = {p->stride_h, p->stride_w}, pads = {p->pad_h, p->pad_w};
    const dnnl_dims_t w_dims = {p->y.shape.c, p->x.shape.c, p->kernel_h, p->kernel_w}, b_dims = {p->y.shape.c};
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_memory_desc_t x, y, w, b;
    COD_TRY(image_desc(&p->x, &x));
    COD_TRY(image_desc(&p->y, &y));
    const dnnl_data_type_t w_type = p->direction == CPU_CONV_BACKWARD_WEIGHTS
                                        ? dnnl_f32
                                        : cpu_dnnl_type(p->direction == CPU_CONV_FORWARD ? p->x.dtype : p->y.dtype);
    COD_TRY(COD_DNNL(dnnl_memory_desc_init_by_tag(&w, 4, w_dims, w_type, dnnl_format_tag_any)));
    COD_TRY(COD_DNNL(dnnl_memory_desc_init_by_tag(&b, 1, b_dims, dnnl_f32, dnnl_a)));

    const bool training = p->direction != CPU_CONV_FORWARD;
    dnnl_memory_desc_t hint_x = x, hint_y = y, hint_w = w;
    if (training) { /* in a hint all have the type of the compute inputs */
        hint_w.data_type = hint_x.data_type = hint_y.data_type = cpu_dnnl_type(p->y.dtype);
    }
    dnnl_convolution_desc_t forward, backward;
    COD_TRY(COD_DNNL(
        dnnl_convolution_forward_desc_init(&forward, training ? dnnl_forward_training : dnnl_forward_inference, direct,
                                           &hint_x, &hint_w, p->bias ? &b : NULL, &hint_y, strides, pads, pads)));
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint = NULL;
    cod_status status = COD_OK;
    COD_TRY(attr_create(p, &attr));
    if (training)
        status = COD_DNNL(dnnl_primitive_desc_create(&hint, &forward, NULL, conv->onednn->engine, NULL));
    if (p->direction == CPU_CONV_BACKWARD_DATA)
        COD_THEN(status, COD_DNNL(dnnl_convolution_backward_data_desc_init(&backward, direct, &x, &w, &y, strides, pads,
                                                                           pads)));
    if (p->direction == CPU_CONV_BACKWARD_WEIGHTS)
        COD_THEN(status, COD_DNNL(dnnl_convolution_backward_weights_desc_init(
                             &backward, direct, &x, &w, p->bias ? &b : NULL, &y, strides, pads, pads)));
    COD_THEN(status, desc_choose(p, training ? &backward : &forward, attr, conv->onednn->engine, hint, &conv->desc));
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static const dnnl_memory_desc_t *arg_desc(const cpu_conv *conv, int kind)
{
    return dnnl_primitive_desc_query_md(conv->desc, dnnl_query_exec_arg_md, kind);
}

static int weights_kind(const cpu_conv *conv)
{
    return conv->direction == CPU_CONV_BACKWARD_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
}

static cod_status reorder_create(cpu_conv *conv, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, bool sum,
                                 dnnl_primitive_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t desc = NULL;
    cod_status status = COD_DNNL(dnnl_primitive_attr_create(&attr));
    COD_THEN(status, COD_DNNL(dnnl_post_ops_create(&ops)));
    if (sum)
        COD_THEN(status, COD_DNNL(dnnl_post_ops_append_sum(ops, 1.0f)));
    COD_THEN(status, COD_DNNL(dnnl_primitive_attr_set_post_ops(attr, ops)));
    COD_THEN(status, COD_DNNL(dnnl_reorder_primitive_desc_create(&desc, from, conv->onednn->engine, to,
                                                                 conv->onednn->engine, attr)));
    COD_THEN(status, COD_DNNL(dnnl_primitive_create(out, desc)));
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static cod_status reorders_create(cpu_conv *conv, const cpu_conv_problem *p)
{
    dnnl_memory_desc_t plain;
    const dnnl_memory_desc_t *packed = arg_desc(conv, weights_kind(conv));
    COD_TRY(plain_weights_desc(p, &plain));
    COD_TRY(COD_DNNL(dnnl_memory_create(&conv->plain, &plain, conv->onednn->engine, DNNL_MEMORY_NONE)));
    COD_TRY(COD_DNNL(dnnl_memory_create(&conv->packed, packed, conv->onednn->engine, DNNL_MEMORY_NONE)));
    if (p->direction != CPU_CONV_BACKWARD_WEIGHTS)
        return reorder_create(conv, &plain, packed, false, &conv->reorder[0]);
    COD_TRY(reorder_create(conv, packed, &plain, false, &conv->reorder[0]));
    return reorder_create(conv, packed, &plain, true, &conv->reorder[1]);
}

/** Order of the arguments in every lane: x, weights, bias, y, scratchpad, as cpu_conv_execute() takes them. */
static cod_status lanes_create(cpu_conv *conv, const cpu_conv_problem *p)
{
    static const int kinds[3][MAX_ARGS] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
    };
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, (size_t)p->lanes * sizeof(conv_lane)));
    conv->lane = memory;
    conv->lanes = p->lanes;
    for (int i = 0; i < p->lanes; i++) {
        for (int k = 0; k < MAX_ARGS; k++) {
            const int kind = kinds[p->direction][k];
            const bool absent = kind == 0 || (k == 2 && !p->bias);
            conv->lane[i].args[k].arg = absent ? 0 : kind;
            if (!absent)
                COD_TRY(COD_DNNL(dnnl_memory_create(&conv->lane[i].args[k].memory, arg_desc(conv, kind),
                                                    conv->onednn->engine, DNNL_MEMORY_NONE)));
        }
    }
    return COD_OK;
}

cod_status cpu_conv_create(cpu_onednn *onednn, const cpu_conv_problem *problem, cpu_conv **out)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cpu_conv)));
    cpu_conv *conv = memory;
    conv->onednn = onednn;
    conv->direction = problem->direction;
    cod_status status = desc_create(conv, problem);
    COD_THEN(status, COD_DNNL(dnnl_primitive_create(&conv->primitive, conv->desc)));
    if (problem->x.dtype == COD_S8 || problem->direction == CPU_CONV_BACKWARD_WEIGHTS)
        COD_THEN(status, reorders_create(conv, problem));
    COD_THEN(status, lanes_create(conv, problem));
    if (status == COD_OK)
        *out = conv;
    else
        cpu_conv_destroy(conv);
    return status;
}

void cpu_conv_destroy(cpu_conv *conv)
{
    if (conv == NULL)
        return;
    for (int i = 0; i < conv->lanes; i++)
        for (int k = 0; k < MAX_ARGS; k++)
            if (conv->lane[i].args[k].memory)
                dnnl_memory_destroy(conv->lane[i].args[k].memory);
    cod_aligned_free(conv->lane);
    if (conv->plain)
        dnnl_memory_destroy(conv->plain);
    if (conv->packed)
        dnnl_memory_destroy(conv->packed);
    for (int i = 0; i < 2; i++)
        if (conv->reorder[i])
            dnnl_primitive_destroy(conv->reorder[i]);
    if (conv->primitive)
        dnnl_primitive_destroy(conv->primitive);
    if (conv->desc)
        dnnl_primitive_desc_destroy(conv->desc);
    cod_aligned_free(conv);
}

cpu_conv_info cpu_conv_get_info(const cpu_conv *conv)
{
    cpu_conv_info info = {.packed_bytes = dnnl_memory_desc_get_size(arg_desc(conv, weights_kind(conv))),
                          .scratch_bytes = dnnl_memory_desc_get_size(arg_desc(conv, DNNL_ARG_SCRATCHPAD)),
                          .x_bytes = dnnl_memory_desc_get_size(arg_desc(conv, conv->lane[0].args[0].arg)),
                          .y_bytes = dnnl_memory_desc_get_size(arg_desc(conv, conv->lane[0].args[3].arg)),
                          .implementation = implementation_name(conv->desc)};
    info.fast = strncmp(info.implementation, "ref", 3) != 0;
    return info;
}

/** Setting a handle makes oneDNN clear the padding of blocked layouts, so it is done only where the handle changes. */
static cod_status set_handle(dnnl_memory_t memory, void *handle)
{
    void *old = NULL;
    COD_TRY(COD_DNNL(dnnl_memory_get_data_handle(memory, &old)));
    return old == handle ? COD_OK : COD_DNNL(dnnl_memory_set_data_handle(memory, handle));
}

/** Where element `index` of a dimension lies, within its blocks of a blocked layout and between them. */
static int64_t place_of(const dnnl_memory_desc_t *layout, int dimension, int64_t index)
{
    const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
    int64_t place = 0, inner = 1;
    for (int k = blocking->inner_nblks - 1; k >= 0; k--) {
        if (blocking->inner_idxs[k] == dimension) {
            place += index % blocking->inner_blks[k] * inner;
            index /= blocking->inner_blks[k];
        }
        inner *= blocking->inner_blks[k];
    }
    return place + index * blocking->strides[dimension];
}

cod_status cpu_conv_get_packing(const cpu_conv *conv, cpu_packing **out)
{
    enum { O, I, H, W };
    const dnnl_memory_desc_t *layout = arg_desc(conv, weights_kind(conv));
    const dnnl_dim_t *dims = layout->dims;
    if (layout->format_kind != dnnl_blocked || layout->extra.flags != dnnl_memory_extra_flag_none ||
        layout->data_type == dnnl_s8)
        return cod_fail(COD_ERR_UNSUPPORTED, "oneDNN: weights in a layout that is not blocked");
    const cod_dtype dtype = layout->data_type == dnnl_bf16 ? COD_BF16 : COD_F32;
    COD_TRY(cpu_packing_create((cod_shape){dims[O], dims[H], dims[W], dims[I]}, dtype, out));
    cpu_packing *packing = *out;
    packing->h_stride = layout->format_desc.blocking.strides[H];
    packing->w_stride = layout->format_desc.blocking.strides[W];
    for (int64_t o = 0; o < dims[O]; o++)
        packing->o_at[o] = place_of(layout, O, o);
    for (int64_t i = 0; i < dims[I]; i++)
        packing->i_at[i] = place_of(layout, I, i);
    return COD_OK;
}

static cod_status reorder(cpu_conv *conv, dnnl_primitive_t primitive, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return COD_DNNL(dnnl_primitive_execute(primitive, conv->onednn->stream, 2, args));
}

cod_status cpu_conv_pack_s8(cpu_conv *conv, const float *weights, void *packed)
{
    COD_TRY(set_handle(conv->plain, (void *)(uintptr_t)weights));
    COD_TRY(set_handle(conv->packed, packed));
    return reorder(conv, conv->reorder[0], conv->plain, conv->packed);
}

cod_status cpu_conv_unpack(cpu_conv *conv, const void *packed, float *grad, bool accumulate)
{
    COD_TRY(set_handle(conv->plain, grad));
    COD_TRY(set_handle(conv->packed, (void *)(uintptr_t)packed));
    return reorder(conv, conv->reorder[accumulate], conv->packed, conv->plain);
}

cod_status cpu_conv_execute(cpu_conv *conv, int lane, void *x, void *packed, float *bias, void *y, void *scratch)
{
    void *const handles[MAX_ARGS] = {x, packed, bias, y, scratch};
    dnnl_exec_arg_t args[MAX_ARGS];
    int count = 0;
    for (int k = 0; k < MAX_ARGS; k++) {
        const dnnl_exec_arg_t *arg = &conv->lane[lane].args[k];
        if (arg->arg == 0)
            continue;
        COD_TRY(set_handle(arg->memory, handles[k]));
        args[count++] = *arg;
    }
    return COD_DNNL(dnnl_primitive_execute(conv->primitive, conv->onednn->stream, count, args));
}
