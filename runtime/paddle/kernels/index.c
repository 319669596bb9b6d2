/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the buckets of an index of growing tables; those of a whole batch are in table.c.
 */
#include "index.h"

/* Write the number of each id (n,), or ABSENT, to out (n,). */
void KERNEL(index_find)(const int64_t *ids, ptrdiff_t n, const struct piece *directory, int64_t bits, uint32_t *out) {
    uint64_t mixed[TOGETHER];
    for (ptrdiff_t start = 0; start < n; start += TOGETHER, ids += TOGETHER, out += TOGETHER) {
        int count = n - start < TOGETHER ? (int)(n - start) : TOGETHER;
        for (int k = 0; k < count; k++) fetch_line(mixed[k] = mix((uint64_t)ids[k]), directory, bits);
        for (int k = 0; k < count; k++) out[k] = number_of(ids[k], mixed[k], directory, bits);
    }
}

/* Add ids (n,), none of them there and none twice, with their numbers (n,), and count them for their pieces. Every
 * piece has room: its count stays below its number of buckets. */
void KERNEL(index_insert)(const int64_t *ids, const uint32_t *numbers, ptrdiff_t n, const struct piece *directory,
                          int64_t bits, int64_t *counts) {
    uint64_t mixed[TOGETHER];
    for (ptrdiff_t start = 0; start < n; start += TOGETHER, ids += TOGETHER, numbers += TOGETHER) {
        int count = n - start < TOGETHER ? (int)(n - start) : TOGETHER;
        for (int k = 0; k < count; k++) fetch_line(mixed[k] = mix((uint64_t)ids[k]), directory, bits);
        for (int k = 0; k < count; k++) {
            int64_t piece = piece_of(mixed[k], directory, bits);
            const struct piece *its = directory + piece;
            put_in(ids[k], numbers[k], home_of(mixed[k], its), its, empty_of(piece));
            counts[piece]++;
        }
    }
}

/* Change the numbers of ids (n,); return how many of them are not there, of which nothing is changed. */
int64_t KERNEL(index_put)(const int64_t *ids, const uint32_t *numbers, ptrdiff_t n, const struct piece *directory,
                          int64_t bits) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        const struct piece *piece = directory + (mixed >> (64 - bits));
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
int64_t KERNEL(index_remove)(const int64_t *ids, ptrdiff_t n, const struct piece *directory, int64_t bits,
                             int64_t *counts) {
    int64_t absent = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t mixed = mix((uint64_t)ids[i]);
        int64_t number = piece_of(mixed, directory, bits);
        const struct piece *piece = directory + number;
        unsigned place;
        struct line *home = home_of(mixed, piece), *line = search(ids[i], home, piece, &place);
        if (place == BUCKETS) {
            absent++;
            continue;
        }
        for (; home != line; home = next_of(home, piece)) home->passed--; /* nobody is sent on for its sake any more */
        line->ids[place] = empty_of(number);
        counts[number]--;
    }
    return absent;
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
