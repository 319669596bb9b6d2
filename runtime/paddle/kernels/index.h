/* SPDX-License-Identifier: Apache-2.0
 *
 * The buckets of an index of growing tables: paddle/pserver/sparse/index.py.
 *
 * The first bits of an id's mixed number choose its piece, the next 32 its home line; from there on lines are searched
 * one after the other. A line is a cache line: 5 ids, compared at once, then their 5 numbers, then how many ids passed
 * it, since it was full, on the way from their home to a line behind. A search ends at a line that nobody passed, so
 * that most fetch one line and no more. An empty bucket holds an id that belongs to another piece, so that no id is
 * reserved. Every piece has an empty bucket, or insertions would not end. The directory says where pieces are.
 *
 *     mixed id   | depth bits: which piece | 32 bits h | the rest |      home line = floor(h * lines / 2^32)
 *
 *     directory    entry   0   1   2   3   4   5   6   7               bits = 3
 *                  piece   0   0   0   0   4   4   6   7               depth = 1, 2, 3, 3: a piece has its first
 *                                                                      entry's number, and 2^(bits - depth) entries
 *
 * A home is in proportion to h, not h modulo the lines: a piece has any number of them, and grows by an eighth.
 */
#ifndef PADDLE_INDEX_H
#define PADDLE_INDEX_H

#include "mixing.h"

#define BUCKETS 5

struct line {
    int64_t ids[BUCKETS];
    uint32_t numbers[BUCKETS];
    uint32_t passed;
};

struct piece {
    struct line *lines;
    int64_t count, depth;
};

INLINE struct line *home_of(uint64_t mixed, const struct piece *piece) {
    return piece->lines + ((((mixed << piece->depth) >> 32) * (uint64_t)piece->count) >> 32);
}

INLINE struct line *next_of(struct line *line, const struct piece *piece) {
    return ++line == piece->lines + piece->count ? piece->lines : line;
}

/* Which of a line's ids is the first that equals one; BUCKETS: none. All are compared, without a branch. */
INLINE unsigned first_equal(const struct line *line, int64_t id) {
    unsigned bits = 1u << BUCKETS;
    for (unsigned k = 0; k < BUCKETS; k++) bits |= (unsigned)(line->ids[k] == id) << k;
    return (unsigned)__builtin_ctz(bits);
}

/* The number of a piece, which is its first entry's. */
INLINE int64_t piece_of(uint64_t mixed, const struct piece *directory, int64_t bits) {
    int64_t entry = (int64_t)(mixed >> (64 - bits));
    int64_t shift = bits - directory[entry].depth;
    return entry >> shift << shift;
}

/* The id that marks a piece's empty buckets: 0 lies in piece 0, and 1 does not. */
INLINE int64_t empty_of(int64_t piece) { return piece == 0; }

/* Return the line that holds an id, *place in it; *place is BUCKETS if it is nowhere. */
INLINE struct line *search(int64_t id, struct line *home, const struct piece *piece, unsigned *place) {
    struct line *line = home;
    for (;;) {
        *place = first_equal(line, id);
        if (*place < BUCKETS || line->passed == 0) return line;
        line = next_of(line, piece);
        if (line == home) return line; /* where ids come and go, all lines of a small piece may have been passed */
    }
}

/* Put an id that is not there where it belongs. */
INLINE void put_in(int64_t id, uint32_t number, struct line *line, const struct piece *piece, int64_t empty) {
    unsigned place;
    while ((place = first_equal(line, empty)) == BUCKETS) {
        line->passed++;
        line = next_of(line, piece);
    }
    line->ids[place] = id;
    line->numbers[place] = number;
}

/* Begin to bring near the line where a search begins, and the next, to which many go on. */
INLINE void fetch_line(uint64_t mixed, const struct piece *directory, int64_t bits) {
    const struct line *home = home_of(mixed, directory + (mixed >> (64 - bits)));
    PREFETCH(home);
    PREFETCH(home + 1);
}

/* Return the number of an id, or ABSENT. */
INLINE uint32_t number_of(int64_t id, uint64_t mixed, const struct piece *directory, int64_t bits) {
    const struct piece *piece = directory + (mixed >> (64 - bits));
    unsigned place;
    const struct line *line = search(id, home_of(mixed, piece), piece, &place);
    return place == BUCKETS ? ABSENT : line->numbers[place];
}

/* Ids that are worked on at a time: all their lines are asked for before the first is used. That is faster than asking
 * for the lines of the 32nd following id before each. */
#define TOGETHER 16

#endif
