/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the index of growing tables; those for a whole batch are in table.c.
 */
#include "index.h"

/* Write the number of each id (n,), or ABSENT, to out (n,). */
void KERNEL(index_find)(const struct index *index, const int64_t *ids, ptrdiff_t n, uint32_t *out) {
    uint64_t keys[AHEAD] = {0};
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        uint64_t key = next_key(ids, i, n, keys, index);
        if (i >= 0) out[i] = number_of(ids[i], key, index);
    }
}

/* Insert ids (n,), which are new and distinct, with their numbers (n,); return how many were inserted before memory ran
 * out. */
int64_t KERNEL(index_insert)(struct index *index, const int64_t *ids, const uint32_t *numbers, ptrdiff_t n) {
    uint64_t keys[AHEAD] = {0};
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        uint64_t key = next_key(ids, i, n, keys, index);
        if (i < 0) continue;
        struct piece *piece = piece_of(key, index);
        if (UNLIKELY(!has_room(piece))) {
            if (!PADDLE_JOIN(index_make_room, LEVEL)(index, key)) return i;
            piece = piece_of(key, index);
        }
        put_in(ids[i], numbers[i], home_of(key, piece), piece, empty_of(piece, index));
        piece->held++;
    }
    return n;
}

/* Change the numbers of ids (n,); return how many of the ids do not exist; these are ignored. */
int64_t KERNEL(index_put)(const struct index *index, const int64_t *ids, const uint32_t *numbers, ptrdiff_t n) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t key = key_of(ids[i], index->salt);
        const struct piece *piece = piece_of(key, index);
        unsigned place;
        struct line *line = search(ids[i], home_of(key, piece), piece, &place);
        if (place == BUCKETS)
            absent++;
        else
            line->numbers[place] = numbers[i];
    }
    return absent;
}

/* Remove ids (n,); return how many of them did not exist. */
int64_t KERNEL(index_remove)(struct index *index, const int64_t *ids, ptrdiff_t n) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t key = key_of(ids[i], index->salt);
        struct piece *piece = piece_of(key, index);
        unsigned place;
        struct line *home = home_of(key, piece), *line = search(ids[i], home, piece, &place);
        if (place == BUCKETS) {
            absent++;
            continue;
        }
        for (; home != line; home = next_of(home, piece)) home->passed--; /* one overflow less */
        line->ids[place] = empty_of(piece, index);
        piece->held--;
    }
    return absent;
}

/* Return the number of ids of a segment; if arrays are given, write its ids and numbers to them, in any order. */
int64_t KERNEL(index_segment)(const struct index *index, int64_t segment, int64_t *ids, uint32_t *numbers) {
    int64_t found = 0, shift = index->bits - SEGMENT_BITS;
    const struct piece *piece = index->directory + (segment << shift), *end = piece + ((int64_t)1 << shift);
    for (; piece < end; piece += (int64_t)1 << (index->bits - piece->depth)) {
        int64_t empty = empty_of(piece, index);
        if (!ids) found += piece->held;
        for (uint32_t at = 0; ids && at < piece->count; at++)
            for (unsigned place = 0; place < BUCKETS; place++)
                if (piece->lines[at].ids[place] != empty) {
                    ids[found] = piece->lines[at].ids[place];
                    numbers[found++] = piece->lines[at].numbers[place];
                }
    }
    return found;
}
