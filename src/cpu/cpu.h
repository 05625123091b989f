/**
 * @file
 * The CPU backend ("cpu"): oneDNN's convolutions on NHWC views, own kernels for everything between them.
 *
 * Activations may be f32 or bf16 (accumulated in f32); parameters, statistics and their gradients are f32. Work is done
 * when its call returns: there are no queues, events or captures. One device belongs to one host thread at a time; its
 * plans share one scratch buffer, which only plan_create() grows.
 *
 * Instruction sets. The widest that the processor has are used, by our kernels and by oneDNN. The environment variable
 * COD_CPU_ISA, read when the process opens its first device, makes the whole backend behave as on a lesser processor:
 *
 * COD_CPU_ISA   kernels       oneDNN up to          convolutions of bf16 views computed in
 * generic       4 floats      SSE4.1                f32
 * avx2          AVX2, FMA     AVX2                  f32
 * avx512        AVX512BW/DQ   AVX512_CORE           f32
 * avx512_bf16   AVX512-BF16   AVX512_CORE_BF16      bf16
 * amx           AVX512-BF16   AVX512_CORE_AMX       bf16
 *
 * Opening fails with COD_ERR_ARGUMENT for another value, with COD_ERR_UNSUPPORTED where the processor lacks the set.
 * Where the table says f32, supports() denies bf16, so that precision `auto` is f32 and bf16 by name is refused
 * (oneDNN's emulation on AVX512 takes three times f32's time); a plan with bf16 views is right all the same. AMX is
 * used by oneDNN's convolutions and by ours of bf16 views, which configure a thread's tiles for each of their tasks and
 * release them. The parity tests run on AMX where ctest finds it.
 *
 * Convolutions. Several implementations may be able to compute one. When a plan is made, they are timed on this
 * processor, for at most 0.6 s in all, and the fastest is remembered in ~/.cache/codistill/convolutions.txt
 * (XDG_CACHE_HOME). Plans are timed now and then as they run, so that a wrong choice is found out and made again by a
 * later process. Deterministic plans, and all with cod_device_options.no_autotune, take a fixed choice.
 * COD_CPU_CONVOLUTION=columns|tiles|narrow|winograd|winograd4|strided|phased|onednn forces one wherever it fits,
 * `fixed` is no_autotune, `auto` the default. Winograd's rounds bf16 twice as coarsely as a direct one; winograd4, for
 * f32 alone, takes fewer products and rounds to within 2^-18 of the result's size (see test_winograd.c).
 *
 * Convolutions with attr.int8_range run on AVX512-VNNI or AMX, and are refused without these; see supports(COD_S8).
 * oneDNN computes them near the processor's peak (Zen 4, 3x3 64 -> 64: 450 of 466 GOP/s), except those with few output
 * channels, which narrow.c computes. Their results are the same for any number of threads.
 *
 * Threads. A device computes with OpenMP teams of one size, fixed when it is opened: `threads`, or as many as OpenMP
 * grants (OMP_THREAD_LIMIT), with a warning. Each call sets the calling thread's OpenMP team size and switches dynamic
 * teams off; a call that would still get a smaller team, for example inside a parallel region, fails with
 * COD_ERR_ARGUMENT.
 */
#ifndef COD_CPU_CPU_H
#define COD_CPU_CPU_H

#include "core/backend.h"

extern const cod_backend cod_cpu_backend;

#endif
