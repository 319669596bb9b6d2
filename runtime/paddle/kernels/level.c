/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers the loader's first queries: the sources from which a library was compiled, and the speed level that this
 * processor supports. Compiled one time, for the oldest supported processor.
 */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char *paddle_kernels_digest(void) { return DIGEST; }

#if defined(__x86_64__)
#include <cpuid.h>

static int has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

/* The psABI levels: 2 (SSE4.2), 3 (AVX2), 4 (AVX-512); 0 for older processors. */
EXPORTED int paddle_kernels_level(void) {
    unsigned a, b, c, d, b7, c7, d7, c1, d1, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!has(c, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B)) return 0;
    if (!has(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C | bit_MOVBE)) return 2;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* the registers that the operating system saves */
    if (!has(low, 0x6) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return 2;
    if (!__get_cpuid(0x80000001, &a, &b, &c1, &d1)) return 2;
    if (!has(b7, bit_AVX2 | bit_BMI | bit_BMI2) || !has(c1, 1u << 5 /* LZCNT */)) return 2;
    unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    return has(low, 0xE6) && has(b7, wide) ? 4 : 3;
}
#else
EXPORTED int paddle_kernels_level(void) { return 1; } /* NEON is part of every aarch64 */
#endif
