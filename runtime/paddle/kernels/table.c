/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes a batch of a growing table in one call: finds equal ids, searches or inserts them, and updates or copies
 * rows. Index lines and rows are prefetched AHEAD ids before their use.
 */
#include "index.h"
#include "rows.h"

struct batch {
    const int64_t *ids;
    int64_t n;
    /* Results; see `group`. For each distinct id: the row's number, or ABSENT, and whether the row is uninitialized. */
    int64_t *distinct, *order, *starts;
    uint32_t *numbers;
    uint8_t *fresh;
    int32_t *heads, *which;
    int64_t size;
    struct index *index;
    /* Numbers of new rows: the free ones, from the last, then `used`, used + 1, .. At most `most` rows are created; if
     * this is more than `ready`, the same call does not update rows. */
    const uint32_t *free;
    int64_t num_free, used, most, ready;
    /* The number of distinct ids, of new rows among them, and of ids without a row; whether rows were updated. */
    int64_t found, made, absent, changed;
};

/* Return the row number of an id at its first occurrence; create the row if this is allowed and there is memory. */
INLINE uint32_t find_or_make(struct batch *b, int64_t id, uint64_t key, uint8_t *fresh) {
    struct piece *piece = piece_of(key, b->index);
    unsigned place;
    const struct line *line = search(id, home_of(key, piece), piece, &place);
    *fresh = 0;
    if (LIKELY(place < BUCKETS)) return line->numbers[place];
    if (b->made < b->most && UNLIKELY(!has_room(piece)) && PADDLE_JOIN(index_make_room, LEVEL)(b->index, key))
        piece = piece_of(key, b->index);
    if (b->made == b->most || !has_room(piece)) {
        b->absent++;
        return ABSENT;
    }
    uint32_t row = (uint32_t)(b->made < b->num_free ? b->free[b->num_free - 1 - b->made] : b->used + b->made - b->num_free);
    put_in(id, row, home_of(key, piece), piece, empty_of(piece, b->index));
    piece->held++;
    b->made++;
    *fresh = 1;
    return row;
}

/* Group equal ids: distinct ids in order of their first occurrence, and the positions of each.
 *
 *     ids: (n,), n < 2^31
 *     first, distinct: (n,); their first m entries become the position of each distinct id's first occurrence (unless
 *         NULL), and the id
 *     order: (n,); becomes all positions, grouped by distinct id, in ascending order within a group
 *     starts: (n + 2,); distinct id k is at order[starts[k] : starts[k + 1]]
 *     heads: (size,), a power of 2 and at least 2n, and which (n,): for this function's use
 *
 *     salt: of the index; see index.h
 *     b: the batch whose index is searched for each distinct id; NULL: none
 *
 * Returns m. Uses a hash table of the batch, at most half full: a bucket contains the number of a distinct id, and the
 * id is read at its first occurrence. The positions are then sorted by that number (counting sort).
 *
 *     ids  7 2 7 9 2        first  0 1 3        order  0 2 | 1 4 | 3        starts  0   2   4   5
 */
INLINE int64_t group(const int64_t *ids, ptrdiff_t n, int64_t *first, int64_t *distinct, int64_t *order, int64_t *starts,
                     int32_t *heads, int64_t size, int32_t *which, const uint64_t salt[2], struct batch *b) {
    int32_t found = 0;
    int64_t mask = size - 1;
    int shift = __builtin_clzll((uint64_t)size) + 1;
    uint64_t keys[AHEAD] = {0};
    memset(starts, 0, (size_t)(n + 2) * sizeof *starts);
    memset(heads, 0xFF, (size_t)size * sizeof *heads);
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        uint64_t *at = keys + (size_t)(i + AHEAD) % AHEAD, key = *at;
        if (i + AHEAD < n) {
            *at = key_of(ids[i + AHEAD], salt);
            PREFETCH(heads + (*at << SEGMENT_BITS >> shift));
            if (b) fetch_line(*at, b->index);
        }
        if (i < 0) continue;
        int64_t id = ids[i], bucket = (int64_t)(key << SEGMENT_BITS >> shift);
        while (heads[bucket] >= 0 && distinct[heads[bucket]] != id) bucket = (bucket + 1) & mask;
        int32_t head = heads[bucket];
        if (head < 0) {
            heads[bucket] = head = found++;
            distinct[head] = id;
            if (first) first[head] = i;
            if (b) b->numbers[head] = find_or_make(b, id, key, b->fresh + head);
        }
        which[i] = head;
        starts[head + 2]++;
    }
    for (int32_t k = 0; k < found; k++) starts[k + 2] += starts[k + 1];
    /* starts[k + 1] is the start of k, and becomes its end as positions are written. */
    for (ptrdiff_t i = 0; i < n; i++) order[starts[which[i] + 1]++] = i;
    return found;
}

int64_t KERNEL(index_group)(const int64_t *ids, ptrdiff_t n, int64_t *first, int64_t *distinct, int64_t *order,
                            int64_t *starts, int32_t *heads, int64_t size, int32_t *which, const uint64_t salt[2]) {
    return group(ids, n, first, distinct, order, starts, heads, size, which, salt, NULL);
}

/* Write the values of ids (n,) to out (n, width); for ids without a row, their initial values, or 0. */
void KERNEL(table_lookup)(const struct index *index, const struct rows *rows, const int64_t *ids, ptrdiff_t n,
                          int as_zero, float *restrict out) {
    int64_t kind = as_zero ? ZERO : rows->kind, width = rows->width;
    uint32_t numbers[AHEAD]; /* row numbers of ids i .. i + AHEAD - 1, at i % AHEAD; lines are prefetched earlier */
    uint64_t keys[AHEAD] = {0};
    for (ptrdiff_t i = -2 * AHEAD; i < n; i++) {
        uint64_t key = next_key(ids, i + AHEAD, n, keys, index);
        uint32_t number = i < 0 ? ABSENT : numbers[i % AHEAD];
        if (i + AHEAD >= 0 && i + AHEAD < n) {
            uint32_t next = numbers[(i + AHEAD) % AHEAD] = number_of(ids[i + AHEAD], key, index);
            if (next != ABSENT) fetch(row_of(rows, next), value_cells(rows));
        }
        if (i < 0) continue;
        if (number == ABSENT)
            draw(rows, kind, ids[i], out + i * width);
        else
            read_values(rows, row_of(rows, number), out + i * width);
    }
}

/* The most common update rules of rows. Every operation is in float32 and rounded separately, in the order of the rule
 * in paddle/optim, so that both give the same bits. A row is contiguous, so that an update touches as few cache lines
 * as possible:
 *
 *     w: part floats | state 1: part | state 2: part |       no states: SGD; one: AdaGrad; two: Adam
 *
 * float16 values are updated in a float32 copy; `rest` is the part of the row after the values.
 */
enum { DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ROW_ADAGRAD, ADAM };

struct formula {
    int64_t kind;
    float factors[6], clip, l1, l2;
    const struct score *score; /* NULL: rows have no scores */
};

/* The score of a row, stored at float `at` of the row. powers[k] is the decay factor for 2^k batches; weights (m,) are
 * the weights of gradients, NULL: a row with gradients counts 1. */
struct score {
    int64_t at;
    const float *weights;
    double powers[31];
};

/* Decay a row's score for `age` batches, and add the weights of this batch's gradients, summed in float32 in the order
 * of the batch. */
INLINE void score_row(float *score, const struct score *by, uint32_t age, const struct sums *sums, int64_t i) {
    double faded = *score;
    for (int k = 0; age; age >>= 1, k++)
        if (age & 1) faded *= by->powers[k];
    float shown = 1.0f;
    if (by->weights) {
        shown = by->weights[sums->order[sums->starts[i]]];
        for (int64_t k = sums->starts[i] + 1; k < sums->starts[i + 1]; k++) shown += by->weights[sums->order[k]];
    }
    *score = (float)(faded + (double)shown);
}

#define EACH for (int64_t j = 0; j < width; j++)

static void step(float *restrict w, float *rest, const float *restrict g, int64_t width, int64_t part,
                 const struct formula *formula) {
    const float *f = formula->factors;
    float eta = f[0], *first = rest + (part - width), *second = first + part;
    switch (formula->kind) {
    case DESCENT: /* w -= eta g */
        EACH w[j] -= eta * g[j];
        break;
    case MOMENTUM: { /* m = mu m - eta g;  w += m */
        float *restrict m = first, mu = f[1];
        EACH {
            float moved = m[j] * mu - eta * g[j];
            m[j] = moved;
            w[j] += moved;
        }
        break;
    }
    case ADAGRAD: { /* s += g^2; w -= eta (1/sqrt(s + epsilon)) g: the inverse root is rounded, then multiplied */
        float *restrict s = first, epsilon = f[1];
        EACH {
            s[j] += g[j] * g[j];
            w[j] -= eta * (1.0f / sqrtf(s[j] + epsilon)) * g[j];
        }
        break;
    }
    case ADAGRAD_MOMENTUM: { /* s += g^2;  m = mu m - eta (1/sqrt(s + epsilon)) g;  w += m */
        float *restrict s = first, *restrict m = second, epsilon = f[1], mu = f[2];
        EACH {
            s[j] += g[j] * g[j];
            float moved = m[j] * mu - eta * (1.0f / sqrtf(s[j] + epsilon)) * g[j];
            m[j] = moved;
            w[j] += moved;
        }
        break;
    }
    case FLUID_ADAGRAD: { /* s += g^2; w -= eta g/(sqrt(s + s0) + epsilon): stored states begin with 0, not s0 */
        float *restrict s = first, start = f[1], epsilon = f[2];
        EACH {
            s[j] += g[j] * g[j];
            w[j] -= eta * g[j] / (sqrtf(s[j] + start) + epsilon);
        }
        break;
    }
    case ROW_ADAGRAD: { /* s += sum of g^2 / width;  w -= eta g/(sqrt(s + s0) + epsilon): one s for the row */
        float *restrict s = rest, sum = 0.0f;
        EACH sum += g[j] * g[j];
        *s += sum / (float)width;
        float root = sqrtf(*s + f[1]) + f[2];
        EACH w[j] -= eta * g[j] / root;
        break;
    }
    default: { /* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= alpha m/(sqrt(v) + epsilon): alpha includes the
                * bias correction; 1 - b is rounded one time, from float64, since 1 - float32(b) differs from it */
        float *restrict m = first, *restrict v = second;
        float beta1 = f[1], rest1 = f[2], beta2 = f[3], rest2 = f[4], epsilon = f[5];
        EACH {
            m[j] = m[j] * beta1 + rest1 * g[j];
            v[j] = v[j] * beta2 + rest2 * (g[j] * g[j]);
            w[j] -= eta * m[j] / (sqrtf(v[j]) + epsilon);
        }
    }
    }
}

/* Apply the pending decay of a row, for the batches in which it had no gradient, when it gets one. L1 moves each value
 * towards 0 by at most its magnitude; L2 divides. */
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

/* Take one step of a row with the sum of its gradients; g: (2 * width,) for this function's use. */
INLINE void change_row(struct rows *rows, uint32_t number, int64_t id, int fresh, const struct sums *sums, int64_t i,
                       const struct formula *formula, uint32_t tick, float caught_up, float *restrict g) {
    int64_t width = rows->width;
    float *row = row_of(rows, number), *rest = row + value_cells(rows), *w = rows->is_half ? g + width : row;
    uint32_t *last = tick_of(rows, number);
    /* The difference of 31-bit ticks that wrap is valid if no row is older than ticks.MAX_AGE. */
    uint32_t age = (tick - *last) & 0x7FFFFFFFu;
    if (fresh) {
        draw(rows, rows->kind, id, w);
        memset(rest, 0, (size_t)(4 * (rows->floats - width)));
        age = 1;
    } else if (rows->is_half) {
        widen((const uint16_t *)row, w, width);
    }
    float batches = (float)(age ? age : 1);
    *last = tick; /* clear the top bit: the row now has had a gradient */
    const float *sum = sum_of_row(sums, i, width, g);
    if (formula->clip != 0.0f) {
        float most = formula->clip;
        EACH g[j] = sum[j] < -most ? -most : sum[j] > most ? most : sum[j];
        sum = g;
    }
    step(w, rest, sum, width, rows->part, formula);
    if (formula->score) score_row(rest + formula->score->at - width, formula->score, age ? age : 1, sums, i);
    if (formula->l1 != 0.0f || formula->l2 != 0.0f)
        decay(w, width, formula->l1, formula->l2, batches < caught_up ? batches : caught_up);
    if (rows->is_half) write_values(rows, row, w);
}

/* Take one step of rows (n,) with the sums of their gradients; ABSENT rows are skipped.
 *
 *     fresh: (n,); whether rows are uninitialized: they first get initial values, and states 0
 *     caught_up: number of batches since all rows were decayed
 *     g: (2 * width,) for this function's use
 */
static void change(struct rows *rows, const uint32_t *numbers, const int64_t *ids, const uint8_t *fresh,
                   ptrdiff_t n, const struct sums *sums, const struct formula *formula, uint32_t tick, float caught_up,
                   float *restrict g) {
    /* Prefetch all rows of a block at once: between the arithmetic of two rows, the processor would wait for only a few
     * lines. */
    for (ptrdiff_t start = -AHEAD; start < n; start += AHEAD) {
        for (ptrdiff_t i = start + AHEAD; i < start + 2 * AHEAD && i < n; i++)
            if (numbers[i] != ABSENT) fetch_row(rows, numbers[i], fresh[i]);
        for (ptrdiff_t i = start < 0 ? 0 : start; i < start + AHEAD && i < n; i++)
            if (numbers[i] != ABSENT)
                change_row(rows, numbers[i], ids[i], fresh[i], sums, i, formula, tick, caught_up, g);
    }
}

void KERNEL(rows_change)(struct rows *rows, const uint32_t *numbers, const int64_t *ids, const uint8_t *fresh,
                         ptrdiff_t n, const struct sums *sums, const struct formula *formula, uint32_t tick,
                         float caught_up, float *restrict g) {
    change(rows, numbers, ids, fresh, n, sums, formula, tick, caught_up, g);
}

/* Group the ids of a batch, find their rows and create missing ones; then take a step with the sums of values (n,
 * width), unless there is no formula, an id has no row, or more rows were created than are ready. */
void KERNEL(table_update)(struct batch *b, struct rows *rows, const float *values, const struct formula *formula,
                          uint32_t tick, float caught_up, float *restrict g) {
    struct sums sums = {values, b->order, b->starts};
    b->made = b->absent = 0;
    b->found = group(b->ids, b->n, NULL, b->distinct, b->order, b->starts, b->heads, b->size, b->which, b->index->salt, b);
    b->changed = formula && !b->absent && b->made <= b->ready;
    if (b->changed) change(rows, b->numbers, b->distinct, b->fresh, b->found, &sums, formula, tick, caught_up, g);
}
