#include "data/block_internal.h"

#include "core/log.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { MEBIBYTE = 1 << 20 };

static void tell_private(bool report)
{
    if (report)
        cod_log_warn("each process of the node keeps its own copy of the pictures: %s", cod_error_message());
}

bool cod_block_open(cod_block *block, uint64_t key, bool report)
{
    *block = (cod_block){0};
    block->is_shared = cod_shared_file_open(&block->shared, key) == COD_OK;
    if (!block->is_shared)
        tell_private(report);
    block->base = block->is_shared ? block->shared.base : NULL;
    block->bytes = block->is_shared ? block->shared.bytes : 0;
    return block->base != NULL;
}

cod_status cod_block_reserve(cod_block *block, size_t bytes, bool report)
{
    block->bytes = bytes;
    if (block->is_shared && cod_shared_file_reserve(&block->shared, bytes) == COD_OK) {
        block->base = block->shared.base;
        return COD_OK;
    }
    if (block->is_shared) {
        tell_private(report);
        cod_shared_file_close(&block->shared);
        block->is_shared = false;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return cod_fail(COD_ERR_MEMORY, "no memory for %zu MiB of pictures: %s", bytes / MEBIBYTE + 1, strerror(errno));
    block->base = memory;
    return COD_OK;
}

cod_status cod_block_complete(cod_block *block)
{
    return block->is_shared ? cod_shared_file_complete(&block->shared) : COD_OK;
}

void cod_block_close(cod_block *block)
{
    if (block->is_shared)
        cod_shared_file_close(&block->shared);
    else if (block->base != NULL)
        munmap(block->base, block->bytes);
    *block = (cod_block){0};
}
