/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of dense parameters and sums of rows, float32. numpy reads memory one time for each operation of an update;
 * these loops read it one time for all.
 *
 * Both forms give the same bits: every factor is passed as float32, and each operation is rounded separately. The order
 * of operations in a line is that of the rule in `optim.rules`: (1 - b2)(g g), not ((1 - b2) g) g. */
#include "kernel.h"
#include <math.h>

#define AHEAD 8

/* Prefetch the row that the loop reaches AHEAD steps later; of wide rows, the processor fetches the rest itself. */
INLINE void fetch_next(const float *table, const int64_t *rows, ptrdiff_t k, ptrdiff_t count, ptrdiff_t width) {
    if (k + AHEAD >= count) return;
    const float *row = table + rows[k + AHEAD] * width;
    PREFETCH(row);
    PREFETCH(row + width - 1);
}

INLINE void adapt(float *restrict w, const float *restrict g, float *restrict s, ptrdiff_t n, float eta, float epsilon) {
    for (ptrdiff_t i = 0; i < n; i++) {
        s[i] += g[i] * g[i];
        w[i] -= eta * g[i] / (sqrtf(s[i]) + epsilon);
    }
}

/* s += g^2;  w -= eta g / (sqrt(s) + epsilon) */
void KERNEL(adagrad)(float *w, const float *g, float *s, ptrdiff_t n, float eta, float epsilon) {
    adapt(w, g, s, n, eta, epsilon);
}

/* The same for distinct rows of w and s (rows, width), with g (count, width). */
void KERNEL(adagrad_rows)(float *w, const int64_t *rows, const float *g, float *s, ptrdiff_t count, ptrdiff_t width,
                          float eta, float epsilon) {
    /* Rows without a gradient are neither read nor written, so the cost of a step depends on the batch, not on the
     * table. */
    for (ptrdiff_t k = 0; k < count; k++) {
        fetch_next(w, rows, k, count, width);
        fetch_next(s, rows, k, count, width);
        adapt(w + rows[k] * width, g + k * width, s + rows[k] * width, width, eta, epsilon);
    }
}

struct decay {
    float beta1, beta2, rest1, rest2;
};

INLINE void advance(float *restrict w, const float *restrict g, float *restrict m, float *restrict v, ptrdiff_t n,
                    float alpha, struct decay by, float epsilon) {
    for (ptrdiff_t i = 0; i < n; i++) {
        m[i] = m[i] * by.beta1 + by.rest1 * g[i];
        v[i] = v[i] * by.beta2 + by.rest2 * (g[i] * g[i]);
        w[i] -= alpha * m[i] / (sqrtf(v[i]) + epsilon);
    }
}

/* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= alpha m / (sqrt(v) + epsilon). The rests are 1 - b, rounded
 * from float64 as in the plain form: 1 - float32(b) is another number. */
void KERNEL(adam)(float *w, const float *g, float *m, float *v, ptrdiff_t n, float alpha, float beta1, float beta2,
                  float rest1, float rest2, float epsilon) {
    advance(w, g, m, v, n, alpha, (struct decay){beta1, beta2, rest1, rest2}, epsilon);
}

/* The same for distinct rows of w, m and v (rows, width), with g (count, width). */
void KERNEL(adam_rows)(float *w, const int64_t *rows, const float *g, float *m, float *v, ptrdiff_t count,
                       ptrdiff_t width, float alpha, float beta1, float beta2, float rest1, float rest2,
                       float epsilon) {
    struct decay by = {beta1, beta2, rest1, rest2};
    for (ptrdiff_t k = 0; k < count; k++) {
        ptrdiff_t at = rows[k] * width;
        fetch_next(w, rows, k, count, width);
        fetch_next(m, rows, k, count, width);
        fetch_next(v, rows, k, count, width);
        advance(w + at, g + k * width, m + at, v + at, width, alpha, by, epsilon);
    }
}

/* v = mu v + g;  w -= eta v, or eta (g + mu v) with nesterov. */
void KERNEL(momentum)(float *restrict w, const float *restrict g, float *restrict v, ptrdiff_t n, float eta, float mu,
                      int nesterov) {
    for (ptrdiff_t i = 0; i < n; i++) {
        v[i] = v[i] * mu + g[i];
        w[i] -= eta * (nesterov ? g[i] + mu * v[i] : v[i]);
    }
}

/* out = x + factor y; out may be x. */
void KERNEL(add_scaled)(const float *x, const float *restrict y, float factor, float *out, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) out[i] = x[i] + factor * y[i];
}

/* out[k] = the sum of the rows of values that order[starts[k]:starts[k + 1]] names, in that order.
 *
 * order is a stable sort of the row numbers; segment k are the places of one of them:
 *
 *     rows    7 2 7 2 9        order  1 3 | 0 2 | 4        starts  0   2   4
 *                              row     2     7     9
 *
 * The first value is copied, not added to zeros, and the others are added in the order of the batch: the sum depends on
 * nothing else, so equal batches give equal bits. */
void KERNEL(add_segments)(const float *restrict values, ptrdiff_t width, const int64_t *restrict order, ptrdiff_t n,
                          const int64_t *restrict starts, ptrdiff_t segments, float *restrict out) {
    for (ptrdiff_t k = 0; k < segments; k++, out += width) {
        ptrdiff_t end = k + 1 < segments ? starts[k + 1] : n;
        memcpy(out, values + order[starts[k]] * width, (size_t)width * sizeof *out);
        for (ptrdiff_t at = starts[k] + 1; at < end; at++)
            for (ptrdiff_t j = 0; j < width; j++) out[j] += values[order[at] * width + j];
    }
}
