#include "cpu/cpu_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ISA_COUNT = CPU_ISA_AMX + 1 };

static const char *const names[ISA_COUNT] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};

const char *cpu_isa_name(cpu_isa isa)
{
    return names[isa];
}

/** The widest set that our own kernels have a path for here. */
static cpu_isa detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
        return CPU_ISA_AVX512_BF16;
    if (avx512)
        return CPU_ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return CPU_ISA_AVX2;
#endif
    return CPU_ISA_GENERIC;
}

/** What COD_CPU_ISA says, read once, as oneDNN cannot be limited anew once it has made code. */
static struct {
    char text[32];
    cpu_isa isa;
    bool set, known, limited;
} wish;

static void read_wish(void)
{
    const char *text = getenv("COD_CPU_ISA");
    wish.set = text != NULL && text[0] != '\0';
    if (!wish.set)
        return;
    snprintf(wish.text, sizeof wish.text, "%s", text);
    for (int isa = 0; isa < ISA_COUNT && !wish.known; isa++) {
        wish.known = strcmp(wish.text, names[isa]) == 0;
        wish.isa = (cpu_isa)isa;
    }
    wish.limited = wish.known && cpu_onednn_limit(wish.isa) == COD_OK;
}

cod_status cpu_isa_choose(cpu_isa *kernels, cpu_isa *library)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, read_wish) != 0)
        return cod_fail(COD_ERR_BACKEND, "COD_CPU_ISA could not be read");
    if (wish.set && !wish.known)
        return cod_fail(COD_ERR_ARGUMENT,
                        "COD_CPU_ISA: '%s' is no instruction set; generic, avx2, avx512, avx512_bf16 or amx",
                        wish.text);
    if (wish.set && !wish.limited)
        return cod_fail(COD_ERR_BACKEND, "COD_CPU_ISA: oneDNN was used before and cannot be limited to %s", wish.text);
    *kernels = detect();
    *library = cpu_onednn_isa();
    if (!wish.set)
        return COD_OK;
    /* The kernel lets a process have AMX when it asks, which oneDNN does; cpu_kernels have no variant for it. */
    const cpu_isa widest = *kernels == CPU_ISA_AVX512_BF16 && *library == CPU_ISA_AMX ? CPU_ISA_AMX : *kernels;
    if (wish.isa > widest)
        return cod_fail(COD_ERR_UNSUPPORTED, "COD_CPU_ISA: this processor has no %s; its widest is %s", wish.text,
                        names[widest]);
    if (*kernels > wish.isa)
        *kernels = wish.isa;
    return COD_OK;
}
