/* SPDX-License-Identifier: Apache-2.0
 *
 * All steps of a batch of an LSTM or a GRU, float32, with sigmoid and tanh; `ops.recurrent` has the numpy forms.
 *
 * The product of a step is a tile of `tile.h`: states of ROWS sequences lie beside each other, number by number, and
 * what they are multiplied with has rows of whole tiles. So a step needs neither BLAS nor Python. Rows are in order of
 * time: step t is rows bounds[t] to bounds[t + 1], and each step has at most as many rows as the one before. */
#include "exponential.h"

INLINE vector sigmoid(vector x) { return all(1.0f) / (all(1.0f) + exponential(-x)); }

INLINE vector hyperbolic(vector x) { return all(1.0f) - all(2.0f) / (all(1.0f) + exponential(x + x)); }

static void sigmoids(float *x, const float *more, int64_t n) {
    for (int64_t j = 0; j < n; j += LANES) put(x + j, sigmoid(part(x + j, n - j) + part(more + j, n - j)), n - j);
}

static void hyperbolics(float *x, const float *more, int64_t n) {
    for (int64_t j = 0; j < n; j += LANES) put(x + j, hyperbolic(part(x + j, n - j) + part(more + j, n - j)), n - j);
}

static void add_product(float *restrict out, const float *restrict a, const float *restrict b, int64_t n) {
    for (int64_t j = 0; j < n; j++) out[j] += a[j] * b[j];
}

static void slope_of_sigmoid(float *restrict out, const float *restrict y, int64_t n) {
    for (int64_t j = 0; j < n; j++) out[j] *= y[j] * (1.0f - y[j]);
}

static void slope_of_tanh(float *restrict out, const float *restrict y, int64_t n) {
    for (int64_t j = 0; j < n; j++) out[j] *= 1.0f - y[j] * y[j];
}

/* packed (blocks, width, ROWS) = rows (count, width) that lie `stride` apart; what is beyond the last row stays. */
static void pack(const float *rows, int64_t stride, int64_t count, int64_t width, float *restrict packed) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++)
            packed[(i / ROWS * width + j) * ROWS + i % ROWS] = rows[i * stride + j];
}

CONTRACTED

/* sums (blocks ROWS, pitch) = packed (blocks, depth, ROWS) weights (depth, pitch), for `count` rows. */
static void product(const float *packed, int64_t count, int64_t depth, const float *weights, const int64_t *offsets,
                    int64_t pitch, float *sums) {
    for (int64_t first = 0; first < count; first += ROWS)
        for (int64_t column = 0; column < pitch; column += WIDE)
            multiply(packed + first * depth, weights + column, offsets, depth, sums + first * pitch + column, pitch, 0);
}

CONTRACTED_END

void KERNEL(recurrent_constants)(int64_t *out) {
    out[0] = ROWS;
    out[1] = WIDE;
}

/* Run all steps of an LSTM: gates (rows, 4 width) become what they are after activation; out and cell are (rows,
 * width). weights (width, pitch) have columns of whole tiles, offsets are k pitch; looks are peepholes (3, width) or
 * null; packed (blocks, width, ROWS) is the state that the first step sees; sums (blocks ROWS, pitch) is room. */
void KERNEL(lstm_forward)(float *gates, const int64_t *bounds, int64_t steps, int64_t width, const float *weights,
                          const int64_t *offsets, int64_t pitch, const float *looks, float *packed,
                          const float *first_cell, float *sums, float *out, float *cell) {
    for (int64_t step = 0; step < steps; step++) {
        const int64_t begin = bounds[step], count = bounds[step + 1] - begin;
        const float *before = step ? cell + bounds[step - 1] * width : first_cell;
        product(packed, count, width, weights, offsets, pitch, sums);
        for (int64_t i = 0; i < count; i++) {
            float *g = gates + (begin + i) * 4 * width, *more = sums + i * pitch, *c = cell + (begin + i) * width;
            const float *past = before + i * width;
            if (looks) {
                add_product(more + width, past, looks, width);
                add_product(more + 2 * width, past, looks + width, width);
            }
            hyperbolics(g, more, width);
            sigmoids(g + width, more + width, 2 * width);
            for (int64_t j = 0; j < width; j++) c[j] = g[2 * width + j] * past[j] + g[j] * g[width + j];
            if (looks) add_product(more + 3 * width, c, looks + 2 * width, width);
            sigmoids(g + 3 * width, more + 3 * width, width);
            float *h = out + (begin + i) * width;
            for (int64_t j = 0; j < width; j += LANES)
                put(h + j, part(g + 3 * width + j, width - j) * hyperbolic(part(c + j, width - j)), width - j);
        }
        pack(out + begin * width, width, count, width, packed);
    }
}

/* Run them back: dgates (rows, 4 width), dstate (n, width) and dnext (n, width) come out; dout and dcell are spent.
 * weights (4 width, pitch) are turned; packed (blocks, 4 width, ROWS) and sums (blocks ROWS, pitch) are room. */
void KERNEL(lstm_backward)(const float *gates, const int64_t *bounds, int64_t steps, int64_t width,
                           const float *weights, const int64_t *offsets, int64_t pitch, const float *looks,
                           const float *cell, const float *first_cell, float *packed, float *sums, float *dout,
                           float *dcell, float *dstate, float *dnext, float *dgates) {
    for (int64_t step = steps - 1; step >= 0; step--) {
        const int64_t begin = bounds[step], count = bounds[step + 1] - begin;
        const float *before = step ? cell + bounds[step - 1] * width : first_cell;
        for (int64_t i = 0; i < count; i++) {
            const float *g = gates + (begin + i) * 4 * width, *shown = g + 3 * width, *past = before + i * width;
            const float *c = cell + (begin + i) * width, *down = dstate + i * width;
            float *d = dgates + (begin + i) * 4 * width, *carried = dnext + i * width;
            float *dh = dout + (begin + i) * width, *dc = dcell + (begin + i) * width;
            for (int64_t j = 0; j < width; j += LANES) {
                const int64_t left = width - j;
                const vector seen = hyperbolic(part(c + j, left)), opened = part(shown + j, left);
                const vector back = part(dh + j, left) + part(down + j, left);
                const vector to_cell = back * (all(1.0f) - seen * seen) * opened;
                put(dh + j, back, left);
                put(dc + j, part(dc + j, left) + part(carried + j, left) + to_cell, left);
                put(d + 3 * width + j, back * seen * (opened * (all(1.0f) - opened)), left);
            }
            if (looks) add_product(dc, d + 3 * width, looks + 2 * width, width);
            for (int64_t j = 0; j < width; j++) {
                d[j] = dc[j] * g[width + j];
                d[width + j] = dc[j] * g[j];
                d[2 * width + j] = dc[j] * past[j];
                carried[j] = dc[j] * g[2 * width + j];
            }
            slope_of_tanh(d, g, width);
            slope_of_sigmoid(d + width, g + width, 2 * width);
            if (looks) {
                add_product(carried, d + width, looks, width);
                add_product(carried, d + 2 * width, looks + width, width);
            }
        }
        pack(dgates + begin * 4 * width, 4 * width, count, 4 * width, packed);
        product(packed, count, 4 * width, weights, offsets, pitch, sums);
        for (int64_t i = 0; i < count; i++)
            memcpy(dstate + i * width, sums + i * pitch, sizeof(float) * (size_t)width);
    }
}

/* Run all steps of a GRU: gates (rows, 3 width), update, reset, candidate, become what they are after activation;
 * resets and out are (rows, width). for_gates (width, gates_pitch) and for_candidate (width, pitch) have columns of
 * whole tiles; packed (blocks, width, ROWS) is the first state, also at first (n, width); sums is room. */
void KERNEL(gru_forward)(float *gates, const int64_t *bounds, int64_t steps, int64_t width, const float *for_gates,
                         const int64_t *gates_offsets, int64_t gates_pitch, const float *for_candidate,
                         const int64_t *offsets, int64_t pitch, int origin, const float *first, float *packed,
                         float *sums, float *resets, float *out) {
    if (steps) pack(first, width, bounds[1] - bounds[0], width, packed);
    for (int64_t step = 0; step < steps; step++) {
        const int64_t begin = bounds[step], count = bounds[step + 1] - begin;
        const float *before = step ? out + bounds[step - 1] * width : first;
        product(packed, count, width, for_gates, gates_offsets, gates_pitch, sums);
        for (int64_t i = 0; i < count; i++) {
            float *g = gates + (begin + i) * 3 * width, *restrict reset = resets + (begin + i) * width;
            sigmoids(g, sums + i * gates_pitch, 2 * width);
            for (int64_t j = 0; j < width; j++) reset[j] = g[width + j] * before[i * width + j];
        }
        pack(resets + begin * width, width, count, width, packed);
        product(packed, count, width, for_candidate, offsets, pitch, sums);
        for (int64_t i = 0; i < count; i++) {
            float *g = gates + (begin + i) * 3 * width, *restrict h = out + (begin + i) * width;
            const float *past = before + i * width, *candidate = g + 2 * width;
            hyperbolics(g + 2 * width, sums + i * pitch, width);
            if (origin)
                for (int64_t j = 0; j < width; j++) h[j] = candidate[j] + g[j] * (past[j] - candidate[j]);
            else
                for (int64_t j = 0; j < width; j++) h[j] = past[j] + g[j] * (candidate[j] - past[j]);
        }
        pack(out + begin * width, width, count, width, packed);
    }
}

/* Run them back: dgates (rows, 3 width) and dnext (n, width) come out; dout is not changed. Weights are turned:
 * for_gates (2 width, pitch), for_candidate (width, pitch); packed (blocks, 2 width, ROWS), sums (blocks ROWS, pitch)
 * are room. */
void KERNEL(gru_backward)(const float *gates, const int64_t *bounds, int64_t steps, int64_t width,
                          const float *for_gates, const float *for_candidate, const int64_t *offsets, int64_t pitch,
                          int origin, const float *first, const float *out, const float *dout, float *packed,
                          float *sums, float *dnext, float *dgates) {
    for (int64_t step = steps - 1; step >= 0; step--) {
        const int64_t begin = bounds[step], count = bounds[step + 1] - begin;
        const float *before = step ? out + bounds[step - 1] * width : first;
        for (int64_t i = 0; i < count; i++) {
            const float *g = gates + (begin + i) * 3 * width, *candidate = g + 2 * width, *past = before + i * width;
            const float *arriving = dout + (begin + i) * width;
            float *restrict d = dgates + (begin + i) * 3 * width, *restrict carried = dnext + i * width;
            for (int64_t j = 0; j < width; j++) {
                const float after = arriving[j] + carried[j], stays = origin ? g[j] : 1.0f - g[j];
                const float moves = origin ? 1.0f - g[j] : g[j], change = candidate[j] - past[j];
                d[j] = after * (origin ? -change : change) * (g[j] * (1.0f - g[j]));
                d[2 * width + j] = after * moves * (1.0f - candidate[j] * candidate[j]);
                carried[j] = after * stays;
            }
        }
        pack(dgates + begin * 3 * width + 2 * width, 3 * width, count, width, packed);
        product(packed, count, width, for_candidate, offsets, pitch, sums);
        for (int64_t i = 0; i < count; i++) {
            const float *reset = gates + (begin + i) * 3 * width + width, *past = before + i * width;
            const float *through = sums + i * pitch;
            float *restrict d = dgates + (begin + i) * 3 * width + width, *restrict carried = dnext + i * width;
            for (int64_t j = 0; j < width; j++) {
                d[j] = through[j] * past[j] * (reset[j] * (1.0f - reset[j]));
                carried[j] += through[j] * reset[j];
            }
        }
        pack(dgates + begin * 3 * width, 3 * width, count, 2 * width, packed);
        product(packed, count, 2 * width, for_gates, offsets, pitch, sums);
        for (int64_t i = 0; i < count; i++) {
            float *restrict carried = dnext + i * width;
            for (int64_t j = 0; j < width; j++) carried[j] += sums[i * pitch + j];
        }
    }
}
