/* SPDX-License-Identifier: Apache-2.0
 *
 * e^x of vectors without branches, and partial vectors at the end of a row. */
#ifndef PADDLE_EXPONENTIAL_H
#define PADDLE_EXPONENTIAL_H

#include "tile.h"

INLINE vector all(float x) { return x - (vector){0}; }

INLINE vector either(places mask, vector a, vector b) {
    return (vector)(((places)a & mask) | ((places)b & ~mask));
}

/* Return e^x with an error of at most two units in the last place; x is clipped to [-80, 80], and NaN is preserved. The
 * polynomial is that of Cephes for (e^x - 1 - x) / x^2, for |x| up to half of ln 2. */
INLINE vector exponential(vector x) {
    x = either(x > all(80.0f), all(80.0f), x);
    x = either(x < all(-80.0f), all(-80.0f), x);
    const vector y = (vector)((places)x & (x == x)); /* NaN cannot be converted to an integer */
    const places power = __builtin_convertvector(
        y * all(1.44269504088896341f) + either(y > all(0.0f), all(0.5f), all(-0.5f)), places);
    const vector n = __builtin_convertvector(power, vector);
    const vector r = x - n * all(0.693359375f) - n * all(-2.12194440e-4f);
    vector series = all(1.9875691500e-4f) * r + all(1.3981999507e-3f);
    series = series * r + all(8.3334519073e-3f);
    series = series * r + all(4.1665795894e-2f);
    series = series * r + all(1.6666665459e-1f);
    series = series * r + all(0.5f);
    return (series * r * r + r + all(1.0f)) * (vector)((power + 127) << 23);
}

/* Load and store a partial vector with the given number of elements. */
INLINE vector part(const float *from, int64_t left) {
    vector found = {0};
    if (LIKELY(left >= LANES)) return LOAD(from);
    memcpy(&found, from, sizeof(float) * (size_t)left);
    return found;
}

INLINE void put(float *to, vector value, int64_t left) {
    if (LIKELY(left >= LANES))
        STORE(to, value);
    else
        memcpy(to, &value, sizeof(float) * (size_t)left);
}

#endif
