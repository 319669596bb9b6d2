/* SPDX-License-Identifier: Apache-2.0
 *
 * The buckets of an index of growing tables: paddle/pserver/sparse/index.py.
 *
 * An id's key says where it belongs: its first bits choose the id's piece, the next 32 its home line; from there on lines
 * are searched one after the other. A line is a cache line: 5 ids, compared at once, then their 5 numbers, then how many ids passed
 * it, since it was full, on the way from their home to a line behind. A search ends at a line that nobody passed, so
 * that most fetch one line and no more. An empty bucket holds an id that belongs to another segment, so that no id is
 * reserved. Every piece has an empty bucket, or insertions would not end. The directory says where pieces are; pieces
 * grow, and are split, by growth.c.
 *
 *     key          | depth bits: which piece | 32 bits h | the rest |    home line = floor(h * lines / 2^32)
 *
 *     directory    entry   0   1   2   3   4   5   6   7               bits = 3
 *                  piece   0   0   0   0   4   4   6   7               depth = 1, 2, 3, 3: a piece has its first
 *                                                                      entry's number, and 2^(bits - depth) entries
 *
 * A home is in proportion to h, not h modulo the lines: a piece has any number of them, and grows by a fifth.
 *
 * The first SEGMENT_BITS of a key are those of the mixed id, alike in all processes; the others depend on the process's
 * salt, or somebody could choose ids of one home line, each of which would be searched behind all others. So where an id
 * lies within its segment is never told.
 */
#ifndef PADDLE_INDEX_H
#define PADDLE_INDEX_H

#include "mixing.h"

#define BUCKETS 5
#define SEGMENT_BITS 10 /* an index begins with this many pieces; a segment is what one of them became */

struct line {
    int64_t ids[BUCKETS];
    uint32_t numbers[BUCKETS];
    uint32_t passed;
};

/* An entry of the directory. Entries of one piece are alike, except that `held`, its number of ids, is right in the first
 * alone. `chunk` says which chunk of memory has its lines: see growth.c. */
struct piece {
    struct line *lines;
    uint32_t count, held;
    int32_t chunk, depth;
};

/* Memory for the lines of pieces, given out from its beginning; `live` bytes of it are a piece's. NULL: none. */
struct chunk {
    char *memory;
    int64_t size, used, live;
};

/* An index. New lines come from chunk number `current`; then from number `spare`, unless that has lines or no memory.
 * `size` and `live` bytes are those of all chunks. */
struct index {
    uint64_t salt[2];
    struct piece *directory;
    int64_t bits, pieces;
    struct chunk *chunks;
    int64_t num_chunks, current, spare, size, live;
};

/* Both salts are odd. A product's high bits depend on all bits of its factors, but its low bits on the low ones alone:
 * hence two products. */
INLINE uint64_t key_of(int64_t id, const uint64_t salt[2]) {
    uint64_t mixed = mix((uint64_t)id), z = mixed * salt[0];
    z = (z ^ z >> 32) * salt[1];
    return mixed >> (64 - SEGMENT_BITS) << (64 - SEGMENT_BITS) | z >> SEGMENT_BITS;
}

INLINE struct line *home_of(uint64_t key, const struct piece *piece) {
    return piece->lines + ((((key << piece->depth) >> 32) * (uint64_t)piece->count) >> 32);
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

/* The first entry of the piece where an id is, or would be. */
INLINE struct piece *piece_of(uint64_t key, const struct index *index) {
    int64_t entry = (int64_t)(key >> (64 - index->bits));
    int64_t shift = index->bits - index->directory[entry].depth;
    return index->directory + (entry >> shift << shift);
}

/* The id that marks a piece's empty buckets: 0 lies in segment 0, and 1 does not. */
INLINE int64_t empty_of(const struct piece *piece, const struct index *index) {
    return (piece - index->directory) >> (index->bits - SEGMENT_BITS) == 0;
}

/* Insertions stop at this share of a piece's buckets, in hundredths. */
#define FULL 93

INLINE int has_room(const struct piece *piece) {
    return 100 * ((int64_t)piece->held + 1) <= (int64_t)FULL * BUCKETS * piece->count;
}

/* Make room for an id in its piece; return whether there is memory for it. Pieces then lie elsewhere. */
int KERNEL(index_make_room)(struct index *index, uint64_t key);

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
INLINE void fetch_line(uint64_t key, const struct index *index) {
    const struct line *home = home_of(key, index->directory + (key >> (64 - index->bits)));
    PREFETCH(home);
    PREFETCH(home + 1);
}

/* Return the number of an id, or ABSENT. */
INLINE uint32_t number_of(int64_t id, uint64_t key, const struct index *index) {
    const struct piece *piece = index->directory + (key >> (64 - index->bits));
    unsigned place;
    const struct line *line = search(id, home_of(key, piece), piece, &place);
    return place == BUCKETS ? ABSENT : line->numbers[place];
}

/* Lines, and rows, are asked for this many ids ahead. */
#define AHEAD 16

/* Return the key of id i, which an earlier call wrote to keys (AHEAD,), and fetch the line of id i + AHEAD. */
INLINE uint64_t next_key(const int64_t *ids, ptrdiff_t i, ptrdiff_t n, uint64_t *keys, const struct index *index) {
    uint64_t *at = keys + (size_t)(i + AHEAD) % AHEAD, key = *at;
    if (i + AHEAD < n) fetch_line(*at = key_of(ids[i + AHEAD], index->salt), index);
    return key;
}

#endif
