/* Which instructions may change places. */
#include "nn/fuse_internal.h"

bool fuse_may_pass(const fusing *fuse, const ir_instr *moved, const ir_instr *other)
{
    for (size_t o = 0; o < COD_OP_MAX_OUTPUTS; o++) {
        for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
            if (fuse_overlap(fuse, other->outputs[o], moved->inputs[i]) ||
                fuse_overlap(fuse, moved->outputs[o], other->inputs[i]))
                return false;
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
            if (fuse_overlap(fuse, other->outputs[o], moved->outputs[k]))
                return false;
    }
    return true;
}
