/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the buckets of an index of growing tables; those of a whole batch are in table.c.
 */
#include "index.h"

/* Write the number of each id (n,), or ABSENT, to out (n,). */
void KERNEL(index_find)(const struct index *index, const int64_t *ids, ptrdiff_t n, uint32_t *out) {
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n) fetch_line(ids[i + AHEAD], index);
        if (i >= 0) out[i] = number_of(ids[i], index);
    }
}

/* Add ids (n,), none of them there and none twice, with their numbers (n,); return how many there was memory for. */
int64_t KERNEL(index_insert)(struct index *index, const int64_t *ids, const uint32_t *numbers, ptrdiff_t n) {
    for (ptrdiff_t i = -AHEAD; i < n; i++) {
        if (i + AHEAD < n) fetch_line(ids[i + AHEAD], index);
        if (i < 0) continue;
        uint64_t mixed = mix((uint64_t)ids[i]);
        struct piece *piece = piece_of(mixed, index);
        if (UNLIKELY(!has_room(piece))) {
            if (!PADDLE_JOIN(index_make_room, LEVEL)(index, mixed)) return i;
            piece = piece_of(mixed, index);
        }
        put_in(ids[i], numbers[i], home_of(mixed, piece), piece, empty_of(piece, index));
        piece->held++;
    }
    return n;
}

/* Change the numbers of ids (n,); return how many of them are not there, of which nothing is changed. */
int64_t KERNEL(index_put)(const struct index *index, const int64_t *ids, const uint32_t *numbers, ptrdiff_t n) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        const struct piece *piece = piece_of(mixed, index);
        unsigned place;
        struct line *line = search(ids[i], home_of(mixed, piece), piece, &place);
        if (place == BUCKETS)
            absent++;
        else
            line->numbers[place] = numbers[i];
    }
    return absent;
}

/* Remove ids (n,); return how many of them are not there. */
int64_t KERNEL(index_remove)(struct index *index, const int64_t *ids, ptrdiff_t n) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        struct piece *piece = piece_of(mixed, index);
        unsigned place;
        struct line *home = home_of(mixed, piece), *line = search(ids[i], home, piece, &place);
        if (place == BUCKETS) {
            absent++;
            continue;
        }
        for (; home != line; home = next_of(home, piece)) home->passed--; /* nobody is sent on for its sake any more */
        line->ids[place] = empty_of(piece, index);
        piece->held--;
    }
    return absent;
}

/* Lines between one that `index_segment` reads and the next. */
#define STRIDE 64

/* Return how many ids a segment holds; if there are arrays for them, write ids and numbers there. They come from all over
 * the segment, not in the order of lines: an index that is filled in that order would have them crowded into few lines. */
int64_t KERNEL(index_segment)(const struct index *index, int64_t segment, int64_t *ids, uint32_t *numbers) {
    int64_t found = 0, shift = index->bits - SEGMENT_BITS;
    const struct piece *first = index->directory + (segment << shift), *end = first + ((int64_t)1 << shift);
    for (uint32_t turn = 0; turn < (ids ? STRIDE : 1); turn++)
        for (const struct piece *piece = first; piece < end; piece += (int64_t)1 << (index->bits - piece->depth)) {
            int64_t empty = empty_of(piece, index);
            if (!ids) found += piece->held;
            for (uint32_t at = turn; ids && at < piece->count; at += STRIDE)
                for (unsigned place = 0; place < BUCKETS; place++)
                    if (piece->lines[at].ids[place] != empty) {
                        ids[found] = piece->lines[at].ids[place];
                        numbers[found++] = piece->lines[at].numbers[place];
                    }
        }
    return found;
}
