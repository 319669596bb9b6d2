/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the rows of growing tables: paddle/pserver/sparse/slabs.py. Rows are brought near well before they are
 * used.
 *
 * A slab of 2^bits rows is, at one address, all their floats (row after row: values, then each state) and then their
 * ticks. A row's number is its slab's number and its place therein.
 *
 *     number   | slab | place: bits |
 *
 *     slab     address | row 0: values, state 1, state 2 | row 1 | .. | row 2^bits - 1 |     4 * floats bytes each
 *                      | tick 0 | tick 1 | .. | tick 2^bits - 1 |                            4 bytes each
 *
 * Ticks lie apart: a search for old rows, or for changed ones, reads 4 bytes of each and not the row.
 */
#include "mathematics.h"
#include "mixing.h"

OLDEST(log);

#define AHEAD 24
#define LINE 64

enum { CONSTANT, UNIFORM, NORMAL, ZERO }; /* how a row is drawn; ZERO: it is 0 whatever the mean */

struct rows {
    char *const *slabs;
    int64_t bits, floats, width;
    uint64_t key;
    double mean, spread;
    int64_t kind;
};

INLINE float *row_of(const struct rows *rows, uint32_t number) {
    int64_t place = (int64_t)number & (((int64_t)1 << rows->bits) - 1);
    return (float *)rows->slabs[number >> rows->bits] + place * rows->floats;
}

INLINE uint32_t *tick_of(const struct rows *rows, uint32_t number) {
    int64_t place = (int64_t)number & (((int64_t)1 << rows->bits) - 1);
    return (uint32_t *)rows->slabs[number >> rows->bits] + (rows->floats << rows->bits) + place;
}

INLINE void fetch(const float *floats, int64_t count) {
    for (int64_t offset = 0; offset < 4 * count; offset += LINE) PREFETCH((const char *)floats + offset);
}

INLINE void fetch_row(const struct rows *rows, uint32_t number) {
    fetch(row_of(rows, number), rows->floats);
    PREFETCH(tick_of(rows, number));
}

INLINE float even(uint32_t half, double mean, double spread) {
    /* 24 of 32 random bits, as many as a float32 has: 0 .. 2^24 - 1 becomes -1 .. 1 - 2^-23 without being rounded. */
    return (float)(mean + spread * ((double)(half >> 8) * 0x1p-23 - 1.0));
}

/* Write a new row's values to out (width,): see paddle/pserver/sparse/initial.py. */
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
        for (int64_t at = 0; at < width; at += 2) {
            uint64_t drawn = mix(start + (uint64_t)(at / 2 + 1) * GAMMA);
            /* Box and Muller: one word gives two numbers. 1 is added, since 0 has no logarithm. */
            double r = sqrt(-2.0 * log(((double)(drawn >> 32) + 1.0) * 0x1p-32));
            double phi = 2.0 * M_PI * ((double)(uint32_t)drawn * 0x1p-32);
            out[at] = (float)(mean + spread * (r * cos(phi)));
            if (at + 1 < width) out[at + 1] = (float)(mean + spread * (r * sin(phi)));
        }
    }
}

/* Write the values of rows (n,) to out (n, width); those that are ABSENT are drawn, by another kind if one says so. */
void KERNEL(rows_read)(const struct rows *rows, const uint32_t *numbers, const int64_t *ids, ptrdiff_t n, int as_zero,
                       float *restrict out) {
    int64_t kind = as_zero ? ZERO : rows->kind, width = rows->width;
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n && numbers[i + AHEAD] != ABSENT) fetch(row_of(rows, numbers[i + AHEAD]), width);
        if (i < 0) continue;
        if (numbers[i] == ABSENT)
            draw(rows, kind, ids[i], out + i * width);
        else
            memcpy(out + i * width, row_of(rows, numbers[i]), (size_t)(4 * width));
    }
}

/* Copy rows (n,) to parts (parts, n, width) and their ticks to (n,); of those that are fresh (n,), if that is given,
 * the values are drawn, states are 0, and the tick is the one given. A row is values and states side by side; in parts
 * all rows' values come first, then all rows' states. */
void KERNEL(rows_gather)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const int64_t *ids,
                         const uint8_t *fresh, uint32_t tick, float *restrict parts, uint32_t *restrict ticks) {
    int64_t width = rows->width, count = rows->floats / width;
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n && !(fresh && fresh[i + AHEAD])) fetch_row(rows, numbers[i + AHEAD]);
        if (i < 0) continue;
        if (fresh && fresh[i]) {
            draw(rows, rows->kind, ids[i], parts + i * width);
            for (int64_t part = 1; part < count; part++) memset(parts + (part * n + i) * width, 0, (size_t)(4 * width));
            ticks[i] = tick;
        } else {
            const float *row = row_of(rows, numbers[i]);
            for (int64_t part = 0; part < count; part++)
                memcpy(parts + (part * n + i) * width, row + part * width, (size_t)(4 * width));
            ticks[i] = *tick_of(rows, numbers[i]);
        }
    }
}

/* Undo rows_gather: write parts and ticks back. */
void KERNEL(rows_scatter)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const float *restrict parts,
                          const uint32_t *ticks) {
    int64_t width = rows->width, count = rows->floats / width;
    for (ptrdiff_t i = 0; i < n; i++) {
        for (int64_t part = 0; part < count; part++)
            memcpy(row_of(rows, numbers[i]) + part * width, parts + (part * n + i) * width, (size_t)(4 * width));
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

/* Give rows (n,) other ticks (n,). */
void KERNEL(rows_set_ticks)(const struct rows *rows, const uint32_t *numbers, ptrdiff_t n, const uint32_t *ticks) {
    for (ptrdiff_t i = 0; i < n; i++) *tick_of(rows, numbers[i]) = ticks[i];
}

/* What is added up: the gradients of row i are those at order[starts[i] : starts[i + 1]] of values (m, width). */
struct sums {
    const float *values;
    const int64_t *order, *starts;
};

/* g = the sum of the gradients of one row. The first is copied, not added to zeros, and the others follow in the order
 * of the batch: so the plain form adds, and floats added in another order give other bits. */
INLINE void add_up(const struct sums *sums, int64_t i, int64_t width, float *restrict g) {
    int64_t begin = sums->starts[i], end = sums->starts[i + 1];
    memcpy(g, sums->values + width * sums->order[begin], (size_t)(4 * width));
    for (int64_t k = begin + 1; k < end; k++) {
        const float *more = sums->values + width * sums->order[k];
        for (int64_t j = 0; j < width; j++) g[j] += more[j];
    }
}

/* Write to out (n, width) the sums of rows which (n,). */
void KERNEL(rows_add_up)(const struct sums *sums, int64_t width, const int64_t *which, ptrdiff_t n, float *out) {
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i + AHEAD < n) fetch(sums->values + width * sums->order[sums->starts[which[i + AHEAD]]], width);
        add_up(sums, which[i], width, out + i * width);
    }
}

/* Let the first byte of each page be written without being changed, from the last page back to the first. If it is 0,
 * it becomes 0, atomically: another thread may be writing there. Adding 0 would be made a read, which brings no
 * memory. */
void KERNEL(rows_touch)(char *first, char *last, ptrdiff_t page) {
    for (char *at = last; at >= first; at -= page) {
        char expected = 0;
        __atomic_compare_exchange_n(at, &expected, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

/* How rows change: by the formulas of the commonest update rules. Every operation is float32 and rounded by itself, in
 * the order of the rule in paddle/optim, so both give the same bits. A row is one stretch of floats at one address, so
 * that a change touches as few cache lines as there can be:
 *
 *     w: width floats | state 1: width | state 2: width |       no states: SGD; one: AdaGrad; two: Adam
 */
enum { DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ADAM };

struct formula {
    int64_t kind;
    float factors[6], clip, l1, l2;
};

#define EACH for (int64_t j = 0; j < width; j++)

static void step(float *restrict w, const float *restrict g, int64_t width, const struct formula *formula) {
    const float *f = formula->factors;
    float eta = f[0];
    switch (formula->kind) {
    case DESCENT: /* w -= eta g */
        EACH w[j] -= eta * g[j];
        break;
    case MOMENTUM: { /* m = mu m - eta g;  w += m */
        float *restrict m = w + width, mu = f[1];
        EACH {
            float moved = m[j] * mu - eta * g[j];
            m[j] = moved;
            w[j] += moved;
        }
        break;
    }
    case ADAGRAD: { /* s += g^2;  w -= eta (1/sqrt(s + epsilon)) g: the root's inverse is rounded, then multiplied */
        float *restrict s = w + width, epsilon = f[1];
        EACH {
            s[j] += g[j] * g[j];
            w[j] -= eta * (1.0f / sqrtf(s[j] + epsilon)) * g[j];
        }
        break;
    }
    case ADAGRAD_MOMENTUM: { /* s += g^2;  m = mu m - eta (1/sqrt(s + epsilon)) g;  w += m */
        float *restrict s = w + width, *restrict m = w + 2 * width, epsilon = f[1], mu = f[2];
        EACH {
            s[j] += g[j] * g[j];
            float moved = m[j] * mu - eta * (1.0f / sqrtf(s[j] + epsilon)) * g[j];
            m[j] = moved;
            w[j] += moved;
        }
        break;
    }
    case FLUID_ADAGRAD: { /* s += g^2;  w -= eta g/(sqrt(s + s0) + epsilon): in memory states begin with 0, not s0 */
        float *restrict s = w + width, start = f[1], epsilon = f[2];
        EACH {
            s[j] += g[j] * g[j];
            w[j] -= eta * g[j] / (sqrtf(s[j] + start) + epsilon);
        }
        break;
    }
    default: { /* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= alpha m/(sqrt(v) + epsilon): alpha has the
                * correction by the batch in it, and 1 - b comes rounded once from float64, since 1 - float32(b) is
                * another number */
        float *restrict m = w + width, *restrict v = w + 2 * width;
        float beta1 = f[1], rest1 = f[2], beta2 = f[3], rest2 = f[4], epsilon = f[5];
        EACH {
            m[j] = m[j] * beta1 + rest1 * g[j];
            v[j] = v[j] * beta2 + rest2 * (g[j] * g[j]);
            w[j] -= eta * m[j] / (sqrtf(v[j]) + epsilon);
        }
    }
    }
}

/* All decay that a row owes: when it gets a gradient it pays for the batches in which it had none. L1 moves each value
 * towards 0, by no more than it has; L2 divides. */
INLINE void decay(float *restrict w, int64_t width, float l1, float l2, float batches) {
    if (l1 != 0.0f) {
        float threshold = l1 * batches;
        EACH {
            float left = fabsf(w[j]) - threshold;
            w[j] = copysignf(left < 0.0f ? 0.0f : left, w[j]);
        }
    }
    if (l2 != 0.0f) {
        float factor = 1.0f / (1.0f + l2 * batches);
        EACH w[j] *= factor;
    }
}

/* Take one step of rows (n,) with the sums of their gradients; those that are ABSENT are left out.
 *
 *     fresh: (n,); these rows hold nothing: they are drawn first, states 0
 *     caught_up: batches since all rows were decayed
 *     g: (width,) for this function's use
 */
void KERNEL(rows_change)(const struct rows *rows, const uint32_t *numbers, const int64_t *ids, const uint8_t *fresh,
                         ptrdiff_t n, const struct sums *sums, const struct formula *formula, uint32_t tick,
                         float caught_up, float *restrict g) {
    int64_t width = rows->width;
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n && numbers[i + AHEAD] != ABSENT) {
            ptrdiff_t coming = i + AHEAD;
            if (!fresh[coming]) fetch(row_of(rows, numbers[coming]), rows->floats); /* else written without being read */
            PREFETCH(tick_of(rows, numbers[coming]));
            fetch(sums->values + width * sums->order[sums->starts[coming]], width);
        }
        if (i < 0 || numbers[i] == ABSENT) continue;
        float *row = row_of(rows, numbers[i]);
        uint32_t *last = tick_of(rows, numbers[i]);
        /* 31 bits that wrap: the difference is right as long as no row is older than ticks.MAX_AGE. */
        uint32_t age = (tick - *last) & 0x7FFFFFFFu;
        if (fresh[i]) {
            draw(rows, rows->kind, ids[i], row);
            memset(row + width, 0, (size_t)(4 * (rows->floats - width)));
            age = 1;
        }
        float batches = (float)(age ? age : 1);
        *last = tick; /* without the top bit: from now on the row had a gradient */
        add_up(sums, i, width, g);
        if (formula->clip != 0.0f) {
            float most = formula->clip;
            EACH g[j] = g[j] < -most ? -most : g[j] > most ? most : g[j];
        }
        step(row, g, width, formula);
        if (formula->l1 != 0.0f || formula->l2 != 0.0f)
            decay(row, width, formula->l1, formula->l2, batches < caught_up ? batches : caught_up);
    }
}
