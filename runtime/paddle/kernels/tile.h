/* SPDX-License-Identifier: Apache-2.0
 *
 * Register tiles: the innermost loops of convolutions and of recurrent steps, with the vector extensions of GCC and
 * Clang.
 *
 * Compilers do not keep a block of sums in registers for scalar loops. Callers pad their arrays, so a tile has no
 * edges. CONTRACTED functions alone may fuse products and sums (FMA). Only these use tiles, since GCC does not inline
 * functions into those compiled with other options. */
#ifndef PADDLE_TILE_H
#define PADDLE_TILE_H

#include "kernel.h"

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 8, LEFT = 4, RIGHT = 4 };
#define FOR_LANES(F, w) F(0, w), F(1, w), F(2, w), F(3, w), F(4, w), F(5, w), F(6, w), F(7, w), F(8, w), F(9, w), \
    F(10, w), F(11, w), F(12, w), F(13, w), F(14, w), F(15, w)
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 4, LEFT = 4, RIGHT = 2 };
#define FOR_LANES(F, w) F(0, w), F(1, w), F(2, w), F(3, w), F(4, w), F(5, w), F(6, w), F(7, w)
#else
#if defined(__aarch64__)  /* 32 registers, like AVX-512 */
enum { LANES = 4, ROWS = 8, LEFT = 2, RIGHT = 2 };
#else
enum { LANES = 4, ROWS = 4, LEFT = 2, RIGHT = 2 };
#endif
#define FOR_LANES(F, w) F(0, w), F(1, w), F(2, w), F(3, w)
#endif

/* Sums that stay in registers: ROWS x VECTORS are 24 of 32 registers, or 12 of 16. `multiply` gives (ROWS, WIDE)
 * sums, `dots` LEFT RIGHT = LANES: as many as one register holds. */
enum { VECTORS = 3, WIDE = VECTORS * LANES };

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef float unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t places __attribute__((vector_size(4 * LANES)));

#ifdef __clang__
#define SHUFFLED(a, b, F, w) __builtin_shufflevector(a, b, FOR_LANES(F, w))
#define CONTRACTED _Pragma("clang fp contract(fast)")
#define CONTRACTED_END _Pragma("clang fp contract(off)")
#else
#define SHUFFLED(a, b, F, w) __builtin_shuffle(a, b, (places){FOR_LANES(F, w)})
#define CONTRACTED _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=fast\")")
#define CONTRACTED_END _Pragma("GCC pop_options")
#endif

/* Keep a vector that several products use in a register; GCC would otherwise load it again for each. */
#if defined(__clang__) /* Clang rejects vectors wider than a register here */
#define KEEP(v) ((void)0)
#elif defined(__aarch64__)
#define KEEP(v) __asm__("" : "+w"(v))
#else
#define KEEP(v) __asm__("" : "+x"(v))
#endif

#define LOAD(from) ((vector)*(const unaligned *)(from))
#define STORE(to, value) (*(unaligned *)(to) = (value))

CONTRACTED

/* out[m pitch + v] = sum of a[k ROWS + m] x[offsets[k] + v], k < count; with `more` that is added.
 * m goes over ROWS, v over WIDE. */
static inline void multiply(const float *restrict a, const float *restrict x,
        const int64_t *restrict offsets, int64_t count, float *restrict out, int64_t pitch, int more) {
    vector sums[ROWS][VECTORS] = {0};
    for (int64_t k = 0; k < count; k++) {
        const float *source = x + offsets[k];
        vector right[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) right[v] = LOAD(source + v * LANES);
#pragma GCC unroll 8
        for (int m = 0; m < ROWS; m++) {
            vector left = a[k * ROWS + m] - (vector){0};
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) sums[m][v] += left * right[v];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < ROWS; m++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            float *place = out + m * pitch + v * LANES;
            STORE(place, more ? LOAD(place) + sums[m][v] : sums[m][v]);
        }
}

/* Pairs are merged until one vector is left: of (a0 a1 a2 a3) and (b0 b1 b2 b3) comes (a0+a1 b0+b1 a2+a3 b2+b3). */
#define EVEN(lane, w) ((lane) + ((lane) & (w) ? LANES - (w) : 0))
#define ODD(lane, w) (EVEN(lane, w) + (w))
#define MERGED(sums, i, w) (SHUFFLED(sums[i], sums[(i) + 1], EVEN, w) + SHUFFLED(sums[i], sums[(i) + 1], ODD, w))

/* Return the vector whose lane i is the sum of the lanes of sums[i]; sums are overwritten. */
static inline vector across(vector *sums) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; i++) sums[i] = MERGED(sums, 2 * i, 1);
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 4; i++) sums[i] = MERGED(sums, 2 * i, 2);
#if defined(__AVX2__)
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 8; i++) sums[i] = MERGED(sums, 2 * i, 4);
#endif
#if defined(__AVX512F__)
    sums[0] = MERGED(sums, 0, 8);
#endif
    return sums[0];
}

/* out[k LEFT + m] += sum of a[m pitch + q] x[offsets[k] + q], q < count, a multiple of LANES.
 * m goes over LEFT, k over RIGHT. */
static inline void dots(const float *restrict a, int64_t pitch, const float *restrict x,
        const int64_t *restrict offsets, int64_t count, float *restrict out) {
    vector sums[LANES] = {0};
    const float *lines[RIGHT];
    for (int k = 0; k < RIGHT; k++) lines[k] = x + offsets[k];
    for (int64_t q = 0; q < count; q += LANES) {
        vector left[LEFT];
#pragma GCC unroll 8
        for (int m = 0; m < LEFT; m++) {
            left[m] = LOAD(a + m * pitch + q);
            KEEP(left[m]);
        }
#pragma GCC unroll 8
        for (int k = 0; k < RIGHT; k++) {
            vector right = LOAD(lines[k] + q);
#pragma GCC unroll 8
            for (int m = 0; m < LEFT; m++) sums[k * LEFT + m] += left[m] * right;
        }
    }
    STORE(out, LOAD(out) + across(sums));
}

CONTRACTED_END

/* target[y pitch + x] = source[y source_pitch + x], y < rows, x < width: short rows, so no call of memcpy each. */
static inline void copy_rows(float *restrict target, int64_t pitch, const float *restrict source,
        int64_t source_pitch, int64_t rows, int64_t width) {
    for (int64_t y = 0; y < rows; y++, target += pitch, source += source_pitch) {
        if (width >= LANES) {
            for (int64_t x = 0; x < width - LANES; x += LANES) STORE(target + x, LOAD(source + x));
            STORE(target + width - LANES, LOAD(source + width - LANES));  /* may overlap the previous one */
        } else {
            for (int64_t x = 0; x < width; x++) target[x] = source[x];
        }
    }
}

#endif
