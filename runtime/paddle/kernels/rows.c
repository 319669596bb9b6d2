/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the rows of growing tables; those for a whole batch are in table.c. Rows are prefetched well before their
 * use.
 */
#include "rows.h"

#define AHEAD 24

/* Write the values of rows (n,) to out (n, width); ABSENT ones get initial values, of another kind if one is given. */
void KERNEL(rows_read)(const struct rows *rows, const uint32_t *numbers, const int64_t *ids, ptrdiff_t n, int as_zero,
                       float *restrict out) {
    int64_t kind = as_zero ? ZERO : rows->kind, width = rows->width;
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n && numbers[i + AHEAD] != ABSENT) fetch(row_of(rows, numbers[i + AHEAD]), value_cells(rows));
        if (i < 0) continue;
        if (numbers[i] == ABSENT)
            draw(rows, kind, ids[i], out + i * width);
        else
            read_values(rows, row_of(rows, numbers[i]), out + i * width);
    }
}

/* Copy rows (n,) to parts (parts, n, part) and their ticks to (n,). Rows that are `fresh` (n,), if given, get initial
 * values, states 0 and the given tick. A row stores values and states contiguously; in `parts`, the values of all rows
 * come first, then each state of all rows. */
void KERNEL(rows_gather)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const int64_t *ids,
                         const uint8_t *fresh, uint32_t tick, float *restrict parts, uint32_t *restrict ticks) {
    int64_t width = rows->part, count = rows->floats / width;
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n && !(fresh && fresh[i + AHEAD])) fetch_row(rows, numbers[i + AHEAD], 0);
        if (i < 0) continue;
        if (fresh && fresh[i]) {
            draw(rows, rows->kind, ids[i], parts + i * width);
            memset(parts + i * width + rows->width, 0, (size_t)(4 * (width - rows->width)));
            for (int64_t part = 1; part < count; part++) memset(parts + (part * n + i) * width, 0, (size_t)(4 * width));
            ticks[i] = tick;
        } else {
            const float *row = row_of(rows, numbers[i]), *rest = row + value_cells(rows);
            read_values(rows, row, parts + i * width);
            memcpy(parts + i * width + rows->width, rest, (size_t)(4 * (width - rows->width)));
            for (int64_t part = 1; part < count; part++)
                memcpy(parts + (part * n + i) * width, rest + part * width - rows->width, (size_t)(4 * width));
            ticks[i] = *tick_of(rows, numbers[i]);
        }
    }
}

/* The inverse of rows_gather: write parts and ticks to the rows. */
void KERNEL(rows_scatter)(struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const float *restrict parts,
                          const uint32_t *ticks) {
    int64_t width = rows->part, count = rows->floats / width;
    for (ptrdiff_t i = 0; i < n; i++) {
        float *row = row_of(rows, numbers[i]), *rest = row + value_cells(rows);
        write_values(rows, row, parts + i * width);
        memcpy(rest, parts + i * width + rows->width, (size_t)(4 * (width - rows->width)));
        for (int64_t part = 1; part < count; part++)
            memcpy(rest + part * width - rows->width, parts + (part * n + i) * width, (size_t)(4 * width));
        *tick_of(rows, numbers[i]) = ticks[i];
    }
}

/* Write the ticks of rows (n,) to out (n,). */
void KERNEL(rows_ticks)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, uint32_t *restrict out) {
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i + AHEAD < n) PREFETCH(tick_of(rows, numbers[i + AHEAD]));
        out[i] = *tick_of(rows, numbers[i]);
    }
}

/* Set the ticks of rows (n,). */
void KERNEL(rows_set_ticks)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const uint32_t *ticks) {
    for (ptrdiff_t i = 0; i < n; i++) *tick_of(rows, numbers[i]) = ticks[i];
}

/* Write to out (n, width) the sums of rows which (n,). */
void KERNEL(rows_add_up)(const struct sums *sums, int64_t width, const int64_t *which, ptrdiff_t n, float *out) {
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i + AHEAD < n) fetch(sums->values + width * sums->order[sums->starts[which[i + AHEAD]]], width);
        const float *sum = sum_of_row(sums, which[i], width, out + i * width);
        if (sum != out + i * width) memcpy(out + i * width, sum, (size_t)(4 * width));
    }
}

/* Write the first byte of each page without changing its value, from the last page to the first, to allocate memory. A
 * 0 becomes 0 by an atomic operation, because another thread may be writing there. Adding 0 would be compiled to a
 * read, which does not allocate memory. */
void KERNEL(rows_touch)(char *first, char *last, ptrdiff_t page) {
    for (char *at = last; at >= first; at -= page) {
        char expected = 0;
        __atomic_compare_exchange_n(at, &expected, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}
