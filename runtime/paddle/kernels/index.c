/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the buckets of an index of growing tables: paddle/pserver/sparse/index.py.
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
#include "mixing.h"

#define BUCKETS 5
#define AHEAD 32

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
INLINE void fetch(int64_t id, const struct piece *directory, int64_t bits) {
    uint64_t mixed = mix((uint64_t)id);
    const struct line *home = home_of(mixed, directory + (mixed >> (64 - bits)));
    PREFETCH(home);
    PREFETCH(home + 1);
}

/* Write the number of each id (n,), or ABSENT, to out (n,); return how many are absent. */
int64_t KERNEL(index_find)(const int64_t *ids, ptrdiff_t n, const struct piece *directory, int64_t bits, uint32_t *out) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n && i < AHEAD; i++) fetch(ids[i], directory, bits);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i + AHEAD < n) fetch(ids[i + AHEAD], directory, bits);
        uint64_t mixed = mix((uint64_t)ids[i]);
        const struct piece *piece = directory + (mixed >> (64 - bits));
        unsigned place;
        const struct line *line = search(ids[i], home_of(mixed, piece), piece, &place);
        out[i] = place == BUCKETS ? ABSENT : line->numbers[place];
        absent += place == BUCKETS;
    }
    return absent;
}

/* Add ids (n,), none of them there and none twice, with their numbers (n,), and count them for their pieces. Every
 * piece has room: its count stays below its number of buckets. */
void KERNEL(index_insert)(const int64_t *ids, const uint32_t *numbers, ptrdiff_t n, const struct piece *directory,
                          int64_t bits, int64_t *counts) {
    for (ptrdiff_t i = 0; i < n && i < AHEAD; i++) fetch(ids[i], directory, bits);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i + AHEAD < n) fetch(ids[i + AHEAD], directory, bits);
        uint64_t mixed = mix((uint64_t)ids[i]);
        int64_t number = piece_of(mixed, directory, bits);
        const struct piece *piece = directory + number;
        put_in(ids[i], numbers[i], home_of(mixed, piece), piece, empty_of(number));
        counts[number]++;
    }
}

/* Change the numbers of ids (n,) that are all there. */
void KERNEL(index_put)(const int64_t *ids, const uint32_t *numbers, ptrdiff_t n, const struct piece *directory,
                       int64_t bits) {
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        const struct piece *piece = directory + (mixed >> (64 - bits));
        unsigned place;
        search(ids[i], home_of(mixed, piece), piece, &place)->numbers[place] = numbers[i];
    }
}

/* Remove ids (n,) that are all there. */
void KERNEL(index_remove)(const int64_t *ids, ptrdiff_t n, const struct piece *directory, int64_t bits,
                          int64_t *counts) {
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        int64_t number = piece_of(mixed, directory, bits);
        const struct piece *piece = directory + number;
        unsigned place;
        struct line *home = home_of(mixed, piece), *line = search(ids[i], home, piece, &place);
        for (; home != line; home = next_of(home, piece)) home->passed--; /* nobody is sent on for its sake any more */
        line->ids[place] = empty_of(number);
        counts[number]--;
    }
}

/* Make all buckets of lines empty. */
static void clear(struct line *lines, int64_t count, int64_t empty) {
    for (int64_t at = 0; at < count; at++) {
        for (unsigned k = 0; k < BUCKETS; k++) lines[at].ids[k] = empty;
        memset(lines[at].numbers, 0, sizeof lines[at].numbers);
        lines[at].passed = 0;
    }
}

void KERNEL(index_clear)(struct line *lines, int64_t count, int64_t empty) { clear(lines, count, empty); }

/* Copy what pieces (n,) hold to new lines, as many as `counts` (n,) says, at addresses (n,). Homes keep their order,
 * so old and new lines are both gone through. */
void KERNEL(index_grow)(const int64_t *pieces, struct line *const *addresses, const int64_t *counts, ptrdiff_t n,
                        struct piece *directory, int64_t bits) {
    for (ptrdiff_t k = 0; k < n; k++) {
        int64_t number = pieces[k], empty = empty_of(number);
        struct piece old = directory[number], fresh = {addresses[k], counts[k], old.depth};
        clear(fresh.lines, fresh.count, empty);
        for (int64_t entry = number; entry < number + ((int64_t)1 << (bits - old.depth)); entry++)
            directory[entry] = fresh;
        for (int64_t at = 0; at < old.count; at++)
            for (unsigned place = 0; place < BUCKETS; place++) {
                int64_t id = old.lines[at].ids[place];
                if (id == empty) continue;
                put_in(id, old.lines[at].numbers[place], home_of(mix((uint64_t)id), &fresh), &fresh, empty);
            }
    }
}

/* Write the piece of each id (n,) to out (n,). */
void KERNEL(index_pieces)(const int64_t *ids, ptrdiff_t n, const struct piece *directory, int64_t bits, int64_t *out) {
    for (ptrdiff_t i = 0; i < n; i++) out[i] = piece_of(mix((uint64_t)ids[i]), directory, bits);
}

/* Write the ids and numbers of one piece to arrays that are long enough; return how many there are. */
int64_t KERNEL(index_entries)(const struct piece *piece, int64_t empty, int64_t *ids, uint32_t *numbers) {
    int64_t found = 0;
    for (int64_t at = 0; at < piece->count; at++)
        for (unsigned place = 0; place < BUCKETS; place++)
            if (piece->lines[at].ids[place] != empty) {
                ids[found] = piece->lines[at].ids[place];
                numbers[found++] = piece->lines[at].numbers[place];
            }
    return found;
}

/* Find equal ids: the distinct ones in order of their first appearance, and where each appears.
 *
 *     ids: (n,)
 *     first, distinct: (n,); their first m entries become the position of each distinct id's first appearance, and it
 *     order: (n,); becomes all positions, those of one distinct id together and ascending
 *     starts: (n + 2,), all 0; distinct id k is at order[starts[k] : starts[k + 1]]
 *     heads: (size,), a power of 2 and at least 2n, all -1, and which (n,): for this function's use
 *
 * Returns m. A small table of the batch's own, at most half full: a bucket has the number of a distinct id, and the id
 * itself is looked up where it first appears. Then a counting sort by that number.
 *
 *     ids  7 2 7 9 2        first  0 1 3        order  0 2 | 1 4 | 3        starts  0   2   4   5
 */
int64_t KERNEL(index_group)(const int64_t *ids, ptrdiff_t n, int64_t *first, int64_t *distinct, int64_t *order,
                            int64_t *starts, int32_t *heads, int64_t size, int32_t *which) {
    int32_t found = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        int64_t bucket = (int64_t)(mix((uint64_t)ids[i]) & (uint64_t)(size - 1));
        while (heads[bucket] >= 0 && distinct[heads[bucket]] != ids[i]) bucket = (bucket + 1) & (size - 1);
        if (heads[bucket] < 0) {
            heads[bucket] = found;
            first[found] = i;
            distinct[found++] = ids[i];
        }
        which[i] = heads[bucket];
        starts[which[i] + 2]++;
    }
    for (int32_t k = 0; k < found; k++) starts[k + 2] += starts[k + 1];
    /* starts[k + 1] is where k begins, and moves on to where it ends as its positions are written. */
    for (ptrdiff_t i = 0; i < n; i++) order[starts[which[i] + 1]++] = i;
    return found;
}
