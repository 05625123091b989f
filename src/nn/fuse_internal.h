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
    cod_buffer *places; /**< [IR_PLACES] stand-ins for the buffers of the places */
    size_t arena_end;   /**< every arena tensor has separate bytes below this offset */
} fusing;

/** Gives an arena tensor that is no view bytes of its own. */
void fuse_give_offset(fusing *fuse, int tensor);
/** A new arena tensor; 0 when memory is short. */
int fuse_add_tensor(fusing *fuse, cod_shape shape, cod_dtype dtype);
/** Whether the two tensors share any element; false if one is 0. */
bool fuse_overlap(const fusing *fuse, int a, int b);
/** Whether `moved` may run after `other` instead of before it. */
bool fuse_may_pass(const fusing *fuse, const ir_instr *moved, const ir_instr *other);
/** The op for asking the backend. */
cod_op fuse_op(const fusing *fuse, const ir_instr *instr);
/** Number of ops, from the first on, that the backend would make one plan. */
size_t fuse_ask(const fusing *fuse, const cod_op *ops, size_t count);

/** Moves weight gradients that can be one plan next to each other, as late as their buckets allow, and joins them. */
COD_MUST_CHECK cod_status fuse_sink_weights(fusing *fuse, const cod_bucket *buckets, size_t bucket_count);

#endif
