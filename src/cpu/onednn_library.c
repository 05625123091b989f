/* The library itself: its errors, its instruction sets, its engine. */
#include "cpu/onednn_library_internal.h"

#include "core/memory.h"

#include <stdio.h>

cod_status cpu_dnnl_check(dnnl_status_t status, const char *call)
{
    static const char *const reasons[] = {"success",       "out of memory", "invalid arguments", "unimplemented",
                                          "iterator ends", "runtime error", "not required"};
    if (status == dnnl_success)
        return COD_OK;
    const cod_status code = status == dnnl_out_of_memory   ? COD_ERR_MEMORY
                            : status == dnnl_unimplemented ? COD_ERR_UNSUPPORTED
                                                           : COD_ERR_BACKEND;
    const size_t index = (size_t)status;
    return cod_fail(code, "oneDNN: %s: %s", index < sizeof reasons / sizeof reasons[0] ? reasons[index] : "error",
                    call);
}

/**
 * Each set in oneDNN's terms: bit masks, of which the wider contain the narrower; SSE4.1 is the least it makes code
 * for.
 */
static const dnnl_cpu_isa_t isa_masks[] = {
    [CPU_ISA_GENERIC] = dnnl_cpu_isa_sse41,       [CPU_ISA_AVX2] = dnnl_cpu_isa_avx2,
    [CPU_ISA_AVX512] = dnnl_cpu_isa_avx512_core,  [CPU_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    [CPU_ISA_AMX] = dnnl_cpu_isa_avx512_core_amx,
};

cod_status cpu_onednn_limit(cpu_isa isa)
{
#if defined(__x86_64__)
    return COD_DNNL(dnnl_set_max_cpu_isa(isa_masks[isa]));
#else
    (void)isa;
    return COD_OK;
#endif
}

cpu_isa cpu_onednn_isa(void)
{
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa();
    int isa = CPU_ISA_AMX;
    while (isa > CPU_ISA_GENERIC && (has & (unsigned)isa_masks[isa]) != (unsigned)isa_masks[isa])
        isa--;
    return (cpu_isa)isa;
}

bool cpu_onednn_has_int8(void)
{
    const unsigned vnni = (unsigned)dnnl_cpu_isa_avx512_core_vnni;
    return ((unsigned)dnnl_get_effective_cpu_isa() & vnni) == vnni;
}

cod_status cpu_onednn_create(cpu_onednn **out)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cpu_onednn)));
    cpu_onednn *onednn = memory;
    cod_status status = COD_DNNL(dnnl_engine_create(&onednn->engine, dnnl_cpu, 0));
    COD_THEN(status, COD_DNNL(dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags)));
    if (status == COD_OK)
        *out = onednn;
    else
        cpu_onednn_destroy(onednn);
    return status;
}

void cpu_onednn_destroy(cpu_onednn *onednn)
{
    if (onednn == NULL)
        return;
    if (onednn->stream)
        dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        dnnl_engine_destroy(onednn->engine);
    cod_aligned_free(onednn);
}

void cpu_onednn_describe(char *text, size_t bytes)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, bytes, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

dnnl_data_type_t cpu_dnnl_type(cod_dtype dtype)
{
    return dtype == COD_BF16 ? dnnl_bf16 : dtype == COD_S8 ? dnnl_s8 : dnnl_f32;
}
