/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of a growing table as one call: equal ids are found, ids searched or inserted, rows changed or copied. Ids and
 * rows are asked for AHEAD of their use.
 */
#include "index.h"
#include "rows.h"

struct batch {
    const int64_t *ids;
    int64_t n;
    /* Findings: see `group`. Of each distinct id the row's number, or ABSENT, and whether the row holds nothing yet. */
    int64_t *distinct, *order, *starts;
    uint32_t *numbers;
    uint8_t *fresh;
    int32_t *heads, *which;
    int64_t size;
    struct index *index;
    /* Numbers of new rows: those that are free, from the last one, then `used`, used + 1, .. At most `most` are made; if
     * more than `ready` are, the rows are not changed by the same call. */
    const uint32_t *free;
    int64_t num_free, used, most, ready;
    /* How many distinct ids there are, how many of them have a new row, and how many none; whether rows were changed. */
    int64_t found, made, absent, changed;
};

/* Return the number of an id that is looked at for the first time; make a row if that is allowed and there is memory. */
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

/* Find equal ids: the distinct ones in order of their first appearance, and where each appears.
 *
 *     ids: (n,), n < 2^31
 *     first, distinct: (n,); their first m entries become the position of each distinct id's first appearance, if it is
 *         asked for, and it
 *     order: (n,); becomes all positions, those of one distinct id together and ascending
 *     starts: (n + 2,); distinct id k is at order[starts[k] : starts[k + 1]]
 *     heads: (size,), a power of 2 and at least 2n, and which (n,): for this function's use
 *
 *     salt: of the buckets: see index.h
 *     b: what searches for each distinct id; NULL: nothing does
 *
 * Returns m. A small table of the batch's own, at most half full: a bucket has the number of a distinct id, and the id
 * itself is looked up where it first appears. Then a counting sort by that number.
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
    /* starts[k + 1] is where k begins, and moves on to where it ends as its positions are written. */
    for (ptrdiff_t i = 0; i < n; i++) order[starts[which[i] + 1]++] = i;
    return found;
}

int64_t KERNEL(index_group)(const int64_t *ids, ptrdiff_t n, int64_t *first, int64_t *distinct, int64_t *order,
                            int64_t *starts, int32_t *heads, int64_t size, int32_t *which, const uint64_t salt[2]) {
    return group(ids, n, first, distinct, order, starts, heads, size, which, salt, NULL);
}

/* Write the values of ids (n,) to out (n, width); those without a row are drawn, or are 0. */
void KERNEL(table_lookup)(const struct index *index, const struct rows *rows, const int64_t *ids, ptrdiff_t n,
                          int as_zero, float *restrict out) {
    int64_t kind = as_zero ? ZERO : rows->kind, width = rows->width;
    uint32_t numbers[AHEAD]; /* number i % AHEAD: of id i .. i + AHEAD - 1; lines are asked for twice as far ahead */
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

/* How rows change: by the formulas of the commonest update rules. Every operation is float32 and rounded by itself, in
 * the order of the rule in paddle/optim, so both give the same bits. A row is one stretch of floats at one address, so
 * that a change touches as few cache lines as there can be:
 *
 *     w: part floats | state 1: part | state 2: part |       no states: SGD; one: AdaGrad; two: Adam
 *
 * Values that are halves are changed in a copy, which is float32: `rest` is what follows the values in the row.
 */
enum { DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ROW_ADAGRAD, ADAM };

struct formula {
    int64_t kind;
    float factors[6], clip, l1, l2;
    const struct score *score; /* NULL: rows have none */
};

/* A row's score: at float `at` of the row. powers[k] is what is left of it after 2^k batches; weights (m,) say what each
 * gradient counts, NULL: a row with gradients counts 1. */
struct score {
    int64_t at;
    const float *weights;
    double powers[31];
};

/* Let a row's score fade by `age` batches, and count what this batch showed: added up in float32, in the batch's order. */
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
    case ADAGRAD: { /* s += g^2;  w -= eta (1/sqrt(s + epsilon)) g: the root's inverse is rounded, then multiplied */
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
    case FLUID_ADAGRAD: { /* s += g^2;  w -= eta g/(sqrt(s + s0) + epsilon): in memory states begin with 0, not s0 */
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
    default: { /* m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= alpha m/(sqrt(v) + epsilon): alpha has the
                * correction by the batch in it, and 1 - b comes rounded once from float64, since 1 - float32(b) is
                * another number */
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

/* Take one step of a row with the sum of its gradients; g: (2 * width,) for this function's use. */
INLINE void change_row(struct rows *rows, uint32_t number, int64_t id, int fresh, const struct sums *sums, int64_t i,
                       const struct formula *formula, uint32_t tick, float caught_up, float *restrict g) {
    int64_t width = rows->width;
    float *row = row_of(rows, number), *rest = row + value_cells(rows), *w = rows->is_half ? g + width : row;
    uint32_t *last = tick_of(rows, number);
    /* 31 bits that wrap: the difference is right as long as no row is older than ticks.MAX_AGE. */
    uint32_t age = (tick - *last) & 0x7FFFFFFFu;
    if (fresh) {
        draw(rows, rows->kind, id, w);
        memset(rest, 0, (size_t)(4 * (rows->floats - width)));
        age = 1;
    } else if (rows->is_half) {
        widen((const uint16_t *)row, w, width);
    }
    float batches = (float)(age ? age : 1);
    *last = tick; /* without the top bit: from now on the row had a gradient */
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

/* Take one step of rows (n,) with the sums of their gradients; those that are ABSENT are left out.
 *
 *     fresh: (n,); these rows hold nothing: they are drawn first, states 0
 *     caught_up: batches since all rows were decayed
 *     g: (2 * width,) for this function's use
 */
static void change(struct rows *rows, const uint32_t *numbers, const int64_t *ids, const uint8_t *fresh,
                   ptrdiff_t n, const struct sums *sums, const struct formula *formula, uint32_t tick, float caught_up,
                   float *restrict g) {
    /* A block's rows are asked for at once: between two rows' arithmetic, the processor would wait for few lines at a time. */
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

/* Find equal ids of a batch and their rows, and make rows; then take a step of them with the sums of values (n, width),
 * unless there is no formula, or an id without a row, or more rows were made than are ready. */
void KERNEL(table_update)(struct batch *b, struct rows *rows, const float *values, const struct formula *formula,
                          uint32_t tick, float caught_up, float *restrict g) {
    struct sums sums = {values, b->order, b->starts};
    b->made = b->absent = 0;
    b->found = group(b->ids, b->n, NULL, b->distinct, b->order, b->starts, b->heads, b->size, b->which, b->index->salt, b);
    b->changed = formula && !b->absent && b->made <= b->ready;
    if (b->changed) change(rows, b->numbers, b->distinct, b->fresh, b->found, &sums, formula, tick, caught_up, g);
}
