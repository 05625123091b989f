/**
 * @file
 * What the two halves of ir_fuse() share.
 */
#ifndef COD_NN_FUSE_INTERNAL_H
#define COD_NN_FUSE_INTERNAL_H

#include "core/fused.h"
#include "nn/ir_internal.h"

typedef struct fusing {
    const ir_context *context;
    ir_program *program;
    const cod_backend *backend;
    cod_device *device;
    cod_buffer *places; /**< [IR_PLACES] stand for the buffers of the places */
    size_t arena_end;   /**< every arena tensor has bytes of its own below this offset */
} fusing;

/** Gives an arena tensor that is no view bytes of its own. */
void fuse_give_offset(fusing *fuse, int tensor);
/** A new arena tensor; 0 when memory is short. */
int fuse_add_tensor(fusing *fuse, cod_shape shape, cod_dtype dtype);
/** Whether the two tensors share any element; none does with 0. */
bool fuse_overlap(const fusing *fuse, int a, int b);
/** Whether `moved` may run behind `other` instead of before it. */
bool fuse_may_pass(const fusing *fuse, const ir_instr *moved, const ir_instr *other);
/** The op that the backend is asked about. */
cod_op fuse_op(const fusing *fuse, const ir_instr *instr);
/** How many of the ops, from the first on, would be one plan. */
size_t fuse_ask(const fusing *fuse, const cod_op *ops, size_t count);

/** Moves gradients of weights that can be one plan side by side, as late as their buckets allow, and joins them. */
COD_MUST_CHECK cod_status fuse_sink_weights(fusing *fuse, const cod_bucket *buckets, size_t bucket_count);

#endif
