/* SPDX-License-Identifier: Apache-2.0
 *
 * Normally distributed numbers from random words, with the same operations as paddle/pserver/sparse/initial.py, so that
 * both give the same bits on every machine. Without branches and calls, loops over words are vectorized.
 */
#ifndef PADDLE_GAUSS_H
#define PADDLE_GAUSS_H

#include "mathematics.h"
#include "mixing.h"

INLINE double of_bits(uint64_t bits) {
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

/* Convert an integer below 2^52 to double, and subtract `less`; most processors have no vector instruction for this. */
INLINE double less(uint64_t number, double less) { return of_bits(number | 0x4330000000000000u) - (0x1p52 + less); }

/* ln(n / 2^32): n = 2^e m, m in [sqrt(1/2), sqrt(2)), ln m = 2 (s + s^3/3 + ...), s = (m - 1)/(m + 1) */
INLINE double logarithm(uint64_t n) {
    double whole = less(n, 0.0);
    uint64_t bits;
    memcpy(&bits, &whole, sizeof bits);
    uint64_t e = (bits - 0x3FE6A09E667F3BCDu) >> 52;
    double m = of_bits(bits - (e << 52)), s = (m - 1.0) / (m + 1.0), z = s * s;
    double sum = 2.0 / 19;
    sum = sum * z + 2.0 / 17;
    sum = sum * z + 2.0 / 15;
    sum = sum * z + 2.0 / 13;
    sum = sum * z + 2.0 / 11;
    sum = sum * z + 2.0 / 9;
    sum = sum * z + 2.0 / 7;
    sum = sum * z + 2.0 / 5;
    sum = sum * z + 2.0 / 3;
    sum = sum * z + 2.0;
    return less(e, 32.0) * M_LN2 + s * sum;
}

/* cos and sin of 2 pi n / 2^32: the angle is a multiple of pi/2 plus at most pi/4, for which short series suffice */
INLINE void circle(uint64_t n, double *restrict cosine, double *restrict sine) {
    uint64_t quarter = (n + (1u << 29)) >> 30;
    double a = less((n + (1u << 29)) & ((1u << 30) - 1), 0x1p29) * (M_PI / 0x1p31), y = a * a;
    double s = -1.0 / 1307674368000, c = 1.0 / 20922789888000;
    s = s * y + 1.0 / 6227020800;
    s = s * y - 1.0 / 39916800;
    s = s * y + 1.0 / 362880;
    s = s * y - 1.0 / 5040;
    s = s * y + 1.0 / 120;
    s = s * y - 1.0 / 6;
    s = s * y + 1.0;
    s = s * a;
    c = c * y - 1.0 / 87178291200;
    c = c * y + 1.0 / 479001600;
    c = c * y - 1.0 / 3628800;
    c = c * y + 1.0 / 40320;
    c = c * y - 1.0 / 720;
    c = c * y + 1.0 / 24;
    c = c * y - 1.0 / 2;
    c = c * y + 1.0;
    double x = quarter & 1 ? s : c, other = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -x : x;
    *sine = quarter & 2 ? -other : other;
}

#define PAIRS 8

/* Write PAIRS pairs of numbers from words first, first + 1, .. of the stream that begins at `start` (Box, Muller, 1958). */
INLINE void bell(uint64_t start, int64_t first, double *restrict even, double *restrict odd) {
    for (int64_t k = 0; k < PAIRS; k++) {
        uint64_t drawn = mix(start + (uint64_t)(first + k + 1) * GAMMA);
        /* 1 is added, since the logarithm of 0 is infinite */
        double r = sqrt(-2.0 * logarithm((drawn >> 32) + 1)), cosine, sine;
        circle((uint32_t)drawn, &cosine, &sine);
        even[k] = r * cosine;
        odd[k] = r * sine;
    }
}

#endif
