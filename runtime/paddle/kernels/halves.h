/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion between IEEE 754 binary16 and float32; paddle/pserver/sparse/blocks.py is the numpy form. Narrowing rounds
 * to nearest, ties to even, and gives infinity from 65520. A NaN keeps its sign and the upper bits of its payload, and
 * becomes quiet, as on processors. All speed levels give the same bits.
 */
#ifndef PADDLE_HALVES_H
#define PADDLE_HALVES_H

#include "kernel.h"

#ifdef __F16C__
#include <immintrin.h>

INLINE void widen(const uint16_t *restrict halves, float *restrict out, int64_t n) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) _mm256_storeu_ps(out + j, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(halves + j))));
    for (; j < n; j++) out[j] = _cvtsh_ss(halves[j]);
}

/* Narrow n numbers; return the largest magnitude of those written and of `most`, as bits. */
INLINE uint32_t narrow(const float *restrict x, uint16_t *restrict out, int64_t n, uint32_t most) {
    int64_t j = 0;
    __m128i largest = _mm_setzero_si128(), ones = _mm_set1_epi16(-1);
    for (; j + 8 <= n; j += 8) {
        __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + j), 0);
        _mm_storeu_si128((void *)(out + j), halves);
        largest = _mm_max_epu16(largest, _mm_and_si128(halves, _mm_set1_epi16(0x7FFF)));
    }
    for (; j < n; j++) {
        out[j] = _cvtss_sh(x[j], 0);
        most = (out[j] & 0x7FFFu) > most ? out[j] & 0x7FFFu : most;
    }
    uint32_t found = ~(uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(largest, ones))) & 0xFFFFu;
    return found > most ? found : most;
}
#else
INLINE float widened(uint16_t half) {
    uint32_t magnitude = half & 0x7FFFu, sign = (uint32_t)(half & 0x8000) << 16, bits = magnitude << 13;
    float small = (float)magnitude * 0x1p-24f, out;
    if (magnitude > 0x7C00)
        bits |= 0x7FC00000;
    else if (magnitude == 0x7C00)
        bits = 0x7F800000;
    else if (magnitude >= 0x400)
        bits += 0x38000000;
    else
        memcpy(&bits, &small, 4);
    bits |= sign;
    memcpy(&out, &bits, 4);
    return out;
}

INLINE uint16_t narrowed(float x) {
    uint32_t bits, sign;
    memcpy(&bits, &x, 4);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (bits >> 13 & 0x3FF));
    if (bits >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
    if (bits >= 0x38800000) return (uint16_t)(sign | (bits + 0xFFF + (bits >> 13 & 1) - 0x38000000) >> 13);
    /* Floats from 0.5 to 1 are multiples of 2^-24, like the smallest halves, so the sum is rounded to one of these. */
    memcpy(&x, &bits, 4);
    x += 0.5f;
    memcpy(&bits, &x, 4);
    return (uint16_t)(sign | (bits - 0x3F000000));
}

INLINE void widen(const uint16_t *restrict halves, float *restrict out, int64_t n) {
    for (int64_t j = 0; j < n; j++) out[j] = widened(halves[j]);
}

INLINE uint32_t narrow(const float *restrict x, uint16_t *restrict out, int64_t n, uint32_t most) {
    uint16_t largest = (uint16_t)most;
    for (int64_t j = 0; j < n; j++) {
        uint16_t magnitude = (out[j] = narrowed(x[j])) & 0x7FFF;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}
#endif

/* Round numbers to halves in place. */
INLINE void round_to_halves(float *x, int64_t n) {
    uint16_t halves[8];
    for (int64_t j = 0; j < n; j += 8) {
        int64_t count = n - j < 8 ? n - j : 8;
        narrow(x + j, halves, count, 0);
        widen(halves, x + j, count);
    }
}

#endif
