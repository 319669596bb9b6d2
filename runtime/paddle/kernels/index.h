/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash index of growing tables; see paddle/pserver/sparse/index.py.
 *
 * The key of an id determines its position: the first bits select the piece, the next 32 bits the home line, from which
 * lines are probed linearly. A line is a cache line: 5 ids, which are compared at once, their 5 numbers, and the number
 * of ids that overflowed this line on the way from their home line. A search ends at a line without overflow, so most
 * searches fetch a single line. An empty bucket contains an id of another segment, so that no id is reserved. Every
 * piece has an empty bucket, so that insertions end. The directory maps keys to pieces; growth.c grows and splits
 * pieces.
 *
 *     key          | depth bits: which piece | 32 bits h | the rest |    home line = floor(h * lines / 2^32)
 *
 *     directory    entry   0   1   2   3   4   5   6   7               bits = 3
 *                  piece   0   0   0   0   4   4   6   7               depth = 1, 2, 3, 3: a piece has its first
 *                                                                      entry's number, and 2^(bits - depth) entries
 *
 * The home line is proportional to h, not h modulo the number of lines, because a piece can have any number of lines.
 *
 * The first SEGMENT_BITS of a key are those of the mixed id and equal in all processes. The others depend on the
 * process's salt, which prevents attackers from choosing many ids with the same home line. For the same reason, the
 * position of an id within its segment is not revealed.
 */
#ifndef PADDLE_INDEX_H
#define PADDLE_INDEX_H

#include "mixing.h"

#define BUCKETS 5
#define SEGMENT_BITS 10 /* log2 of the initial number of pieces; a segment is what one of them was split into */

struct line {
    int64_t ids[BUCKETS];
    uint32_t numbers[BUCKETS];
    uint32_t passed;
};

/* An entry of the directory. All entries of a piece are equal, except that `held`, its number of ids, is valid only in
 * the first. `chunk` is the index of the chunk that contains its lines; see growth.c. */
struct piece {
    struct line *lines;
    uint32_t count, held;
    int32_t chunk, depth;
};

/* Memory for the lines of pieces, allocated from its beginning; `live` bytes of it are used by pieces. NULL: none. */
struct chunk {
    char *memory;
    int64_t size, used, live;
};

/* An index. New lines are allocated in chunk number `current`, then in number `spare`, unless it has lines or no
 * memory. `size` and `live` are the bytes of all chunks. */
struct index {
    uint64_t salt[2];
    struct piece *directory;
    int64_t bits, pieces;
    struct chunk *chunks;
    int64_t num_chunks, current, spare, size, live;
};

/* Both salts are odd. The high bits of a product depend on all bits of its factors, its low bits only on their low
 * bits; hence two products. */
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

/* Return the position of the first id of a line that equals `id`, or BUCKETS; all are compared, without a branch. */
INLINE unsigned first_equal(const struct line *line, int64_t id) {
    unsigned bits = 1u << BUCKETS;
    for (unsigned k = 0; k < BUCKETS; k++) bits |= (unsigned)(line->ids[k] == id) << k;
    return (unsigned)__builtin_ctz(bits);
}

/* The first directory entry of the piece to which an id belongs. */
INLINE struct piece *piece_of(uint64_t key, const struct index *index) {
    int64_t entry = (int64_t)(key >> (64 - index->bits));
    int64_t shift = index->bits - index->directory[entry].depth;
    return index->directory + (entry >> shift << shift);
}

/* The id that marks empty buckets of a piece: 0, or 1 in segment 0, to which the id 0 belongs. */
INLINE int64_t empty_of(const struct piece *piece, const struct index *index) {
    return (piece - index->directory) >> (index->bits - SEGMENT_BITS) == 0;
}

/* Maximum load of a piece for insertions, in percent. */
#define FULL 93

INLINE int has_room(const struct piece *piece) {
    return 100 * ((int64_t)piece->held + 1) <= (int64_t)FULL * BUCKETS * piece->count;
}

/* Make room for an id in its piece; return whether there is memory for it. Pieces may move. */
int KERNEL(index_make_room)(struct index *index, uint64_t key);

/* Return the line that contains an id, and its position as *place, or BUCKETS if the id does not exist. */
INLINE struct line *search(int64_t id, struct line *home, const struct piece *piece, unsigned *place) {
    struct line *line = home;
    for (;;) {
        *place = first_equal(line, id);
        if (*place < BUCKETS || line->passed == 0) return line;
        line = next_of(line, piece);
        if (line == home) return line; /* if ids are often removed, all lines of a small piece may have overflowed */
    }
}

/* Insert an id that is not in the piece. */
INLINE void put_in(int64_t id, uint32_t number, struct line *line, const struct piece *piece, int64_t empty) {
    unsigned place;
    while ((place = first_equal(line, empty)) == BUCKETS) {
        line->passed++;
        line = next_of(line, piece);
    }
    line->ids[place] = id;
    line->numbers[place] = number;
}

/* Prefetch the line at which a search begins, and the next one, to which many searches continue. */
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

/* Number of ids by which lines and rows are prefetched ahead of their use. */
#define AHEAD 16

/* Return the key of id i, which an earlier call wrote to keys (AHEAD,), and fetch the line of id i + AHEAD. */
INLINE uint64_t next_key(const int64_t *ids, ptrdiff_t i, ptrdiff_t n, uint64_t *keys, const struct index *index) {
    uint64_t *at = keys + (size_t)(i + AHEAD) % AHEAD, key = *at;
    if (i + AHEAD < n) fetch_line(*at = key_of(ids[i + AHEAD], index->salt), index);
    return key;
}

#endif
