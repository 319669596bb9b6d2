/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of growing tables; see paddle/pserver/sparse/slabs.py.
 *
 * A slab of 2^bits rows contains all their floats (row by row: values, then each state) and then their ticks. A row's
 * number consists of the number of its slab and its place in the slab.
 *
 *     number   | slab | place: bits |
 *
 * Values and each state are a part of a row: `part` elements, which is the row's width, or more if the values part ends
 * with numbers that exist once per row, such as the state of row-wise AdaGrad.
 *
 *     slab     address | row 0: values, state 1, state 2 | row 1 | .. | row 2^bits - 1 |     4 * cells bytes each
 *                      | tick 0 | tick 1 | .. | tick 2^bits - 1 |                            4 bytes each
 *
 * The first `width` elements of a row can be float16, in (width + 1) / 2 cells; everything else is float32. Loops widen
 * them when reading and narrow them when writing: arrays outside of slabs are float32.
 *
 * Ticks are stored separately, so that a search for old or changed rows reads 4 bytes per row.
 */
#ifndef PADDLE_ROWS_H
#define PADDLE_ROWS_H

#include "gauss.h"
#include "halves.h"

#define LINE 64

enum { CONSTANT, UNIFORM, NORMAL, ZERO }; /* the distribution of initial values; ZERO: 0 regardless of the mean */

struct rows {
    char *const *slabs;
    int64_t bits, floats, width, part;
    uint64_t key;
    double mean, spread;
    int64_t kind, cells, is_half;
    uint32_t largest; /* largest magnitude of a float16 that was written, as bits */
};

INLINE float *row_of(const struct rows *rows, uint32_t number) {
    int64_t place = (int64_t)number & (((int64_t)1 << rows->bits) - 1);
    return (float *)rows->slabs[number >> rows->bits] + place * rows->cells;
}

INLINE uint32_t *tick_of(const struct rows *rows, uint32_t number) {
    int64_t place = (int64_t)number & (((int64_t)1 << rows->bits) - 1);
    return (uint32_t *)rows->slabs[number >> rows->bits] + (rows->cells << rows->bits) + place;
}

/* Return the number of cells that the values of a row occupy. */
INLINE int64_t value_cells(const struct rows *rows) { return rows->cells - (rows->floats - rows->width); }

/* Copy a row's values to out (width,). */
INLINE void read_values(const struct rows *rows, const float *row, float *restrict out) {
    if (rows->is_half)
        widen((const uint16_t *)row, out, rows->width);
    else
        memcpy(out, row, (size_t)(4 * rows->width));
}

/* Write a row's values (width,). */
INLINE void write_values(struct rows *rows, float *row, const float *restrict values) {
    if (rows->is_half)
        rows->largest = narrow(values, (uint16_t *)row, rows->width, rows->largest);
    else
        memcpy(row, values, (size_t)(4 * rows->width));
}

INLINE void fetch(const float *floats, int64_t count) {
    for (int64_t offset = 0; offset < 4 * count; offset += LINE) PREFETCH((const char *)floats + offset);
}

/* Prefetch a row that will be updated, and its tick. A fresh row is written without being read. */
INLINE void fetch_row(const struct rows *rows, uint32_t number, int fresh) {
    const char *row = (const char *)row_of(rows, number);
    for (int64_t offset = 0; !fresh && offset < 4 * rows->cells; offset += LINE) PREFETCH_FAR(row + offset);
    PREFETCH_FAR(tick_of(rows, number));
}

INLINE float even(uint32_t half, double mean, double spread) {
    /* 24 of 32 random bits, the precision of float32: 0 .. 2^24 - 1 becomes -1 .. 1 - 2^-23 without rounding. */
    return (float)(mean + spread * ((double)(half >> 8) * 0x1p-23 - 1.0));
}

/* Write the initial values of a row to out (width,); see paddle/pserver/sparse/initial.py. */
static void draw(const struct rows *rows, int64_t kind, int64_t id, float *restrict out) {
    int64_t width = rows->width;
    double mean = rows->mean, spread = rows->spread;
    uint64_t start = mix((uint64_t)id ^ rows->key);
    if (kind == CONSTANT || kind == ZERO) {
        float value = kind == CONSTANT ? (float)mean : 0.0f;
        for (int64_t j = 0; j < width; j++) out[j] = value;
    } else if (kind == UNIFORM) {
        for (int64_t pair = 0; pair < width / 2; pair++) {
            uint64_t drawn = mix(start + (uint64_t)(pair + 1) * GAMMA);
            out[2 * pair] = even((uint32_t)(drawn >> 32), mean, spread);
            out[2 * pair + 1] = even((uint32_t)drawn, mean, spread);
        }
        if (width % 2)
            out[width - 1] = even((uint32_t)(mix(start + (uint64_t)(width / 2 + 1) * GAMMA) >> 32), mean, spread);
    } else {
        for (int64_t at = 0; at < width; at += 2 * PAIRS) {
            double z[2][PAIRS];
            bell(start, at / 2, z[0], z[1]);
            for (int64_t j = 0; j < 2 * PAIRS && at + j < width; j++) out[at + j] = (float)(mean + spread * z[j % 2][j / 2]);
        }
    }
    if (rows->is_half) round_to_halves(out, width);
}

/* The summands: the gradients of row i are those at order[starts[i] : starts[i + 1]] of values (m, width). */
struct sums {
    const float *values;
    const int64_t *order, *starts;
};

/* Return the sum of the gradients of one row, in g unless there is only one. The first gradient is copied, not added to
 * zeros, and the others are added in the order of the batch, as in the numpy form: another order gives other bits. */
INLINE const float *sum_of_row(const struct sums *sums, int64_t i, int64_t width, float *restrict g) {
    int64_t begin = sums->starts[i], end = sums->starts[i + 1];
    const float *first = sums->values + width * sums->order[begin];
    if (end == begin + 1) return first;
    memcpy(g, first, (size_t)(4 * width));
    for (int64_t k = begin + 1; k < end; k++) {
        if (k + 8 < end) fetch(sums->values + width * sums->order[k + 8], width);
        const float *more = sums->values + width * sums->order[k];
        for (int64_t j = 0; j < width; j++) g[j] += more[j];
    }
    return g;
}

#endif
