/* What oneDNN reads beyond its own arrays; as test_cpu_guarded_heap each of them ends where no byte can be read. */
#include "support/test.h"

#include "cpu/cpu.h"
#include "cpu/onednn_internal.h"
#include "guard_heap.h"
#include "support/ops.h"

#include <string.h>

#ifdef GUARDED
static const bool guarded = true;
#else
static const bool guarded = false;
void guard_heap(bool on)
{
    (void)on;
}
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static cpu_image image(int64_t channels, int64_t height, int64_t width, cod_dtype dtype)
{
    return (cpu_image){{2, height, width, channels}, channels, dtype, false};
}

/** Creates a 3x3 convolution and tells whether oneDNN took its implementation `prefix`. */
static void check_taken(cpu_onednn *onednn, cpu_image x, cpu_image y, const char *prefix)
{
    float factors[64];
    for (int i = 0; i < 64; i++)
        factors[i] = 1;
    const cpu_conv_problem problem = {.direction = CPU_CONV_FORWARD,
                                      .x = x,
                                      .y = y,
                                      .kernel_h = 3,
                                      .kernel_w = 3,
                                      .stride_h = 1,
                                      .stride_w = 1,
                                      .pad_h = 1,
                                      .pad_w = 1,
                                      .factors = x.dtype == COD_S8 ? factors : NULL,
                                      .lanes = 1};
    cpu_conv *conv = NULL;
    guard_heap(true);
    const cod_status status = cpu_conv_create(onednn, &problem, &conv);
    guard_heap(false);
    assert_ok(status);
    const char *name = cpu_conv_get_info(conv).implementation;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        fail_msg("%lld to %lld channels: %s, not %s", (long long)x.shape.c, (long long)y.shape.c, name, prefix);
    cpu_conv_destroy(conv);
}

/** brgconv, the fastest, reads a word behind an array while it is made. It is taken where that can be read. */
TEST(amx_needs_readable_words)
{
    cpu_onednn *onednn;
    const char *prefix = guarded || sanitized ? "jit:avx512_core_amx" : "brgconv:avx512_core_amx";
    assert_ok(cpu_onednn_create(&onednn));
    check_taken(onednn, image(32, 13, 7, COD_BF16), image(8, 13, 7, COD_BF16), prefix);
    check_taken(onednn, image(64, 24, 24, COD_BF16), image(64, 24, 24, COD_F32), prefix);
    check_taken(onednn, image(64, 24, 24, COD_S8), image(64, 24, 24, COD_F32), prefix);
    cpu_onednn_destroy(onednn);
}

TEST_DEVICE(cod_cpu_backend)
