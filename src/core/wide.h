/**
 * @file
 * Functions compiled for several instruction sets, of which the processor's widest runs.
 */
#ifndef COD_CORE_WIDE_H
#define COD_CORE_WIDE_H

/**
 * Stands before a function and compiles it for AVX-512, AVX2 and the baseline. Which one runs is chosen when the
 * program is loaded. All give the same bits, because C11 allows neither contracting nor reordering of sums. It has no
 * effect on other processors, nor under the thread sanitizer, which starts after that choice.
 */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) &&                           \
    !defined(__SANITIZE_THREAD__)
#define COD_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define COD_WIDE
#endif

#endif
