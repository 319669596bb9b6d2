/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling of float32 images, plane by plane: every row stays in the first-level cache while it is read for all cells of
 * a window. Sums are added in the order of a window's cells, row by row, as in the numpy form, and give the same bits.
 */
#include "kernel.h"

#include <float.h>
#include <math.h>

/* Height and width of a plane, of its output and of a window, strides and padding; and for each column of a window, the
 * outputs [first, stop) at which it is inside the image. */
struct pooling {
    int64_t height, width, rows, columns, kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
    struct {
        int64_t first, stop;
    } reach[];
};

INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The initial value of a maximum; padding counts as the lowest finite number. */
INLINE float bottom(int64_t at, int64_t size, int64_t kernel, int64_t stride, int64_t pad) {
    int64_t begin = at * stride - pad;
    return begin < 0 || begin + kernel > size ? -FLT_MAX : -INFINITY;
}

INLINE int only_padding(int64_t at, int64_t size, int64_t kernel, int64_t stride, int64_t pad) {
    int64_t begin = at * stride - pad;
    return begin >= size || begin + kernel <= 0;
}

/* NaN is preserved, as in numpy. */
INLINE float maximum(float a, float b) { return b > a || b != b ? b : a; }

/* Compute the maximum of each window within one row of the image. */
INLINE void maxima_of_row(const struct pooling *p, const float *row, float *restrict out) {
    for (int64_t x = 0; x < p->columns; x++) out[x] = bottom(x, p->width, p->kernel_x, p->stride_x, p->pad_x);
    for (int64_t tap = 0; tap < p->kernel_x; tap++) {
        int64_t first = p->reach[tap].first, stop = p->reach[tap].stop;
        const float *from = row + (tap - p->pad_x);
        if (p->stride_x == 1)
            for (int64_t x = first; x < stop; x++) out[x] = maximum(out[x], from[x]);
        else
            for (int64_t x = first; x < stop; x++) out[x] = maximum(out[x], from[x * p->stride_x]);
    }
}

/* out (planes, rows, columns) = the maximum of each window of x (planes, height, width), 0 for one of padding alone.
 * `part` is room for (height, columns). */
void KERNEL(pool_max)(const float *x, int64_t planes, const struct pooling *p, float *restrict part,
                      float *restrict out) {
    for (int64_t plane = 0; plane < planes; plane++, x += p->height * p->width) {
        int64_t known = 0;
        for (int64_t y = 0; y < p->rows; y++, out += p->columns) {
            int64_t begin = y * p->stride_y - p->pad_y;
            int64_t from = larger(begin, 0), to = smaller(begin + p->kernel_y, p->height);
            float start = bottom(y, p->height, p->kernel_y, p->stride_y, p->pad_y);
            for (known = larger(known, from); known < to; known++)
                maxima_of_row(p, x + known * p->width, part + known * p->columns);
            for (int64_t c = 0; c < p->columns; c++) out[c] = start;
            for (int64_t r = from; r < to; r++)
                for (int64_t c = 0; c < p->columns; c++) out[c] = maximum(out[c], part[r * p->columns + c]);
            for (int64_t c = 0; c < p->columns; c++)
                if (from >= to || only_padding(c, p->width, p->kernel_x, p->stride_x, p->pad_x)) out[c] = 0;
        }
    }
}

/* Compute the maximum of each window within one row, and the column of the first cell that has it, or -1. */
INLINE void first_maxima_of_row(const struct pooling *p, const float *row, float *restrict out, int32_t *restrict at) {
    for (int64_t x = 0; x < p->columns; x++) {
        out[x] = -INFINITY;
        int64_t first = larger(x * p->stride_x - p->pad_x, 0);
        at[x] = only_padding(x, p->width, p->kernel_x, p->stride_x, p->pad_x) ? -1 : (int32_t)first;
    }
    for (int64_t tap = 0; tap < p->kernel_x; tap++) {
        int64_t first = p->reach[tap].first, stop = p->reach[tap].stop;
        for (int64_t x = first; x < stop; x++) {
            int64_t column = x * p->stride_x - p->pad_x + tap;
            int is_larger = row[column] > out[x];
            out[x] = is_larger ? row[column] : out[x];
            at[x] = is_larger ? (int32_t)column : at[x];
        }
    }
}

/* dx (planes, height, width) = dout at the first cell of each window that equals out, added up from the last window to
 * the first. `part` and `at` are room for (height, columns). */
void KERNEL(pool_max_gradient)(const float *x, const float *out, const float *dout, int64_t planes,
                               const struct pooling *p, float *restrict part, int32_t *restrict at,
                               float *restrict dx) {
    int64_t columns = p->columns;
    for (int64_t plane = 0; plane < planes; plane++) {
        memset(dx, 0, sizeof(float) * (size_t)(p->height * p->width));
        for (int64_t r = 0; r < p->height; r++)
            first_maxima_of_row(p, x + r * p->width, part + r * columns, at + r * columns);
        for (int64_t y = p->rows - 1; y >= 0; y--) {
            int64_t begin = y * p->stride_y - p->pad_y;
            int64_t from = larger(begin, 0), to = smaller(begin + p->kernel_y, p->height);
            for (int64_t c = columns - 1; c >= 0; c--) {
                float best = out[y * columns + c];
                for (int64_t r = from; r < to; r++)
                    if (part[r * columns + c] == best && at[r * columns + c] >= 0) {
                        dx[r * p->width + at[r * columns + c]] += dout[y * columns + c];
                        break;
                    }
            }
        }
        x += p->height * p->width;
        dx += p->height * p->width;
        out += p->rows * columns;
        dout += p->rows * columns;
    }
}

INLINE float sum_of_window(const struct pooling *p, const float *plane, int64_t from, int64_t to, int64_t left) {
    float sum = 0;
    for (int64_t r = from; r < to; r++)
        for (int64_t c = larger(left, 0); c < smaller(left + p->kernel_x, p->width); c++) sum += plane[r * p->width + c];
    return sum;
}

INLINE void add_taps_of_row(const struct pooling *p, const float *row, float *restrict out) {
    for (int64_t tap = 0; tap < p->kernel_x; tap++) {
        int64_t first = p->reach[tap].first, stop = p->reach[tap].stop;
        const float *from = row + (tap - p->pad_x);
        if (p->stride_x == 1)
            for (int64_t c = first; c < stop; c++) out[c] += from[c];
        else
            for (int64_t c = first; c < stop; c++) out[c] += from[c * p->stride_x];
    }
}

/* Add a row of shares to the cells of their windows in one row, from the last window to the first. */
INLINE void add_shares_to_row(const struct pooling *p, const float *shares, float *restrict row) {
    if (p->columns < p->kernel_x) {
        for (int64_t c = p->columns - 1; c >= 0; c--) {
            int64_t left = c * p->stride_x - p->pad_x;
            for (int64_t at = larger(left, 0); at < smaller(left + p->kernel_x, p->width); at++) row[at] += shares[c];
        }
        return;
    }
    for (int64_t tap = 0; tap < p->kernel_x; tap++) {
        int64_t first = p->reach[tap].first, stop = p->reach[tap].stop;
        float *to = row + (tap - p->pad_x);
        if (p->stride_x == 1)
            for (int64_t c = first; c < stop; c++) to[c] += shares[c];
        else
            for (int64_t c = first; c < stop; c++) to[c * p->stride_x] += shares[c];
    }
}

/* out (planes, rows, columns) = the sum of each window of x (planes, height, width) over counts (rows, columns). */
void KERNEL(pool_mean)(const float *x, int64_t planes, const struct pooling *p, const float *counts,
                       float *restrict out) {
    for (int64_t plane = 0; plane < planes; plane++, x += p->height * p->width)
        for (int64_t y = 0; y < p->rows; y++, out += p->columns) {
            int64_t begin = y * p->stride_y - p->pad_y;
            memset(out, 0, sizeof(float) * (size_t)p->columns);
            int64_t from = larger(begin, 0), to = smaller(begin + p->kernel_y, p->height);
            if (p->columns < p->kernel_x)
                for (int64_t c = 0; c < p->columns; c++)
                    out[c] = sum_of_window(p, x, from, to, c * p->stride_x - p->pad_x);
            else
                for (int64_t r = from; r < to; r++) add_taps_of_row(p, x + r * p->width, out);
            for (int64_t c = 0; c < p->columns; c++) out[c] /= counts[y * p->columns + c];
        }
}

/* dx (planes, height, width) = the sum of the shares (planes, rows, columns) of all windows that reach a cell. */
void KERNEL(pool_mean_gradient)(const float *share, int64_t planes, const struct pooling *p, float *restrict dx) {
    for (int64_t plane = 0; plane < planes; plane++, share += p->rows * p->columns)
        for (int64_t r = 0; r < p->height; r++, dx += p->width) {
            memset(dx, 0, sizeof(float) * (size_t)p->width);
            for (int64_t tap_y = 0; tap_y < p->kernel_y; tap_y++) {
                int64_t moved = r + p->pad_y - tap_y, y = moved / p->stride_y;
                if (moved < 0 || moved % p->stride_y || y >= p->rows) continue;
                add_shares_to_row(p, share + y * p->columns, dx);
            }
        }
}
