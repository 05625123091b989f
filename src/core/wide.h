/**
 * @file
 * Functions for the vectors that a processor has.
 */
#ifndef COD_CORE_WIDE_H
#define COD_CORE_WIDE_H

/**
 * Before a function: compiles it for AVX-512, AVX2 and the baseline; which one runs is chosen when the program is loaded. All give the same
 * bits, as C11 neither contracts nor reorders sums. Elsewhere, and under the thread sanitizer, which starts too late for that, it says nothing.
 */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) &&                           \
    !defined(__SANITIZE_THREAD__)
#define COD_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define COD_WIDE
#endif

#endif
