/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory management of an index of growing tables: its pieces grow one at a time, by about a fifth, and are split in
 * two when they contain some thousands of ids. Each step therefore moves at most one piece or one chunk of memory,
 * however large the index is.
 *
 * Lines are allocated in chunks of memory, from the beginning, in huge pages once there are 16 MB of them: with 4 kB
 * pages, a TLB miss would take as long as the cache miss for the line. A piece that grows abandons its old lines.
 * Pieces grow in turn, so after a while most of the oldest chunk is abandoned; its remaining lines are moved when too
 * much memory is abandoned.
 *
 * One chunk without live lines is retained, because the next one is needed soon, and new memory must be cleared.
 *
 *     chunk   | left | left | piece 7 | left |     | piece 3 | left | piece 9 |     | piece 7 | free ..
 */
#define _GNU_SOURCE
#include "index.h"
#include "mathematics.h"

#include <stdlib.h>
#include <sys/mman.h>

OLDEST(exp2);

#define HUGE_PAGE ((int64_t)2 << 20)
#define LEAST_CHUNK ((int64_t)16 << 10)

/* The load of a piece after growing is between these, depending on its segment, so that neighbors grow at different
 * times. */
#define LOW_LOAD 0.74
#define HIGH_LOAD 0.81
/* Maximum number of ids in a piece before it is split; pieces of later segments are split earlier, the last at half of
 * it. */
#define MOST_IDS 16384.0
/* Maximum number of directory entries per piece, however the ids were chosen; beyond it, pieces are not split. */
#define MOST_ENTRIES 16
/* Abandoned memory is at most this fraction of the lines in use, in addition to one chunk. */
#define MOST_LEFT 8

static double part_of(const struct index *index, const struct piece *piece) {
    return ldexp((double)((piece - index->directory) >> (index->bits - SEGMENT_BITS)), -SEGMENT_BITS);
}

static uint32_t roomy(const struct index *index, const struct piece *piece, int64_t ids) {
    double load = LOW_LOAD + (HIGH_LOAD - LOW_LOAD) * part_of(index, piece);
    return (uint32_t)((double)ids / load / BUCKETS) + 1;
}

/* Map memory aligned to its page size; NULL if there is none. */
static char *mapped(int64_t size) {
    int64_t more = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *memory = mmap(NULL, (size_t)(size + more), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (!more) return memory;
    int64_t before = -(int64_t)(uintptr_t)memory & (HUGE_PAGE - 1);
    if (before) munmap(memory, (size_t)before);
    munmap(memory + before + size, (size_t)(more - before));
    madvise(memory + before, (size_t)size, MADV_HUGEPAGE);
    return memory + before;
}

static void end_chunk(struct index *index, struct chunk *chunk) {
    munmap(chunk->memory, (size_t)chunk->size);
    index->size -= chunk->size;
    *chunk = (struct chunk){0};
}

static int has_spare(const struct index *index) {
    const struct chunk *spare = index->chunks + index->spare;
    return index->num_chunks && index->spare != index->current && spare->memory && !spare->live;
}

/* Begin a chunk with room for `bytes`; return whether there is memory for it. */
static int begin_chunk(struct index *index, int64_t bytes) {
    int64_t number = 0, size = index->live / 8, page = size >= HUGE_PAGE ? HUGE_PAGE : LEAST_CHUNK;
    if (size > HUGE_PAGE) size = index->live / 512;
    if (size < bytes) size = bytes;
    size = (size < page ? page : size) + page - 1 & -page;
    struct chunk *spare = index->chunks + index->spare, *current = index->chunks + index->current;
    if (index->num_chunks && current->memory && !current->live) end_chunk(index, current);
    if (has_spare(index)) {
        if (spare->size >= size) {
            spare->used = 0;
            index->current = index->spare;
            return 1;
        }
        end_chunk(index, spare);
    }
    while (number < index->num_chunks && index->chunks[number].memory) number++;
    if (number == index->num_chunks) {
        int64_t count = 2 * number + 8;
        struct chunk *chunks = realloc(index->chunks, (size_t)count * sizeof *chunks);
        if (!chunks) return 0;
        memset(chunks + number, 0, (size_t)(count - number) * sizeof *chunks);
        index->chunks = chunks;
        index->num_chunks = count;
    }
    char *memory = mapped(size);
    if (!memory) return 0;
    index->chunks[number] = (struct chunk){memory, size, 0, 0};
    index->current = number;
    index->size += size;
    return 1;
}

/* Give a piece, whose depth is set, empty lines; return 0 if there is no memory. */
static int give_lines(struct index *index, struct piece *piece, uint32_t count, int64_t empty) {
    int64_t bytes = (int64_t)count * (int64_t)sizeof(struct line);
    struct chunk *chunk = index->chunks + index->current;
    if (index->num_chunks && !chunk->live) chunk->used = 0; /* all its lines were abandoned */
    if (!index->num_chunks || chunk->used + bytes > chunk->size) {
        if (!begin_chunk(index, bytes)) return 0;
        chunk = index->chunks + index->current;
    }
    struct line *lines = (struct line *)(chunk->memory + chunk->used);
    *piece = (struct piece){lines, count, 0, (int32_t)index->current, piece->depth};
    chunk->used += bytes;
    chunk->live += bytes;
    index->live += bytes;
    for (uint32_t at = 0; at < count; at++) {
        for (unsigned k = 0; k < BUCKETS; k++) lines[at].ids[k] = empty;
        memset(lines[at].numbers, 0, sizeof lines[at].numbers);
        lines[at].passed = 0;
    }
    return 1;
}

static void leave_lines(struct index *index, const struct piece *piece) {
    int64_t bytes = (int64_t)piece->count * (int64_t)sizeof(struct line);
    struct chunk *chunk = index->chunks + piece->chunk;
    chunk->live -= bytes;
    index->live -= bytes;
    if (chunk->live || piece->chunk == index->current) return;
    if (has_spare(index))
        end_chunk(index, chunk);
    else
        index->spare = piece->chunk;
}

/* Write a piece to all its directory entries, beginning with the first. */
static void publish(struct index *index, struct piece *entry, struct piece piece) {
    for (int64_t k = 0; k < (int64_t)1 << (index->bits - piece.depth); k++) entry[k] = piece;
}

/* Insert the contents of lines into a piece or, if there are two, into the one that the next bit of the key selects.
 * Home lines keep their order, so old and new lines are both traversed sequentially. */
static void move(const struct index *index, const struct piece *old, int64_t empty, struct piece *pieces, int two) {
    for (uint32_t at = 0; at < old->count; at++)
        for (unsigned place = 0; place < BUCKETS; place++) {
            int64_t id = old->lines[at].ids[place];
            if (id == empty) continue;
            uint64_t key = key_of(id, index->salt);
            int half = two && key << old->depth >> 63;
            put_in(id, old->lines[at].numbers[place], home_of(key, pieces + half), pieces + half, empty);
            pieces[half].held++;
        }
}

static int resize(struct index *index, struct piece *piece, uint32_t count) {
    struct piece old = *piece, fresh = {.depth = old.depth};
    int64_t empty = empty_of(piece, index);
    if (!give_lines(index, &fresh, count, empty)) return 0;
    move(index, &old, empty, &fresh, 0);
    publish(index, piece, fresh);
    leave_lines(index, &old);
    return 1;
}

/* Double the directory, which then uses one more bit of the key. */
static int double_directory(struct index *index) {
    int64_t entries = (int64_t)1 << index->bits;
    struct piece *directory = malloc(2 * (size_t)entries * sizeof *directory);
    if (!directory) return 0;
    for (int64_t k = 0; k < entries; k++) directory[2 * k] = directory[2 * k + 1] = index->directory[k];
    free(index->directory);
    index->directory = directory;
    index->bits++;
    return 1;
}

/* Split a piece: the upper half of its keys moves to a new piece. */
static int split(struct index *index, struct piece *piece) {
    int64_t number = piece - index->directory;
    if (piece->depth == index->bits) {
        if (!double_directory(index)) return 0;
        number *= 2;
    }
    struct piece *entries[2] = {index->directory + number}, old = *entries[0], halves[2] = {{0}, {0}};
    int64_t empty = empty_of(entries[0], index), upper = 0;
    entries[1] = entries[0] + ((int64_t)1 << (index->bits - old.depth - 1));
    for (uint32_t at = 0; at < old.count; at++)
        for (unsigned place = 0; place < BUCKETS; place++) {
            int64_t id = old.lines[at].ids[place];
            upper += id != empty && key_of(id, index->salt) << old.depth >> 63;
        }
    halves[0].depth = halves[1].depth = old.depth + 1;
    if (!give_lines(index, &halves[0], roomy(index, entries[0], old.held - upper + 1), empty)) return 0;
    if (!give_lines(index, &halves[1], roomy(index, entries[1], upper + 1), empty)) {
        leave_lines(index, &halves[0]);
        return 0;
    }
    move(index, &old, empty, halves, 1);
    publish(index, entries[0], halves[0]);
    publish(index, entries[1], halves[1]);
    leave_lines(index, &old);
    index->pieces++;
    return 1;
}

/* The number of abandoned bytes, without those of the spare chunk. */
static int64_t left_of(const struct index *index) {
    const struct chunk *current = index->chunks + index->current;
    int64_t spare = has_spare(index) ? index->chunks[index->spare].size : 0;
    return index->size - index->live - (current->size - current->used) - spare;
}

/* If too much memory is abandoned, move the live lines of one chunk to the current one; pieces that are about to grow
 * do grow. */
static void settle(struct index *index) {
    const struct chunk *current = index->chunks + index->current, *least = NULL;
    if (left_of(index) <= index->live / MOST_LEFT + LEAST_CHUNK) return;
    for (const struct chunk *each = index->chunks; each < index->chunks + index->num_chunks; each++)
        if (each != current && each->live && (!least || each->live * least->size < least->live * each->size))
            least = each;
    if (!least) return;
    int32_t number = (int32_t)(least - index->chunks);
    for (int64_t at = 0; at < (int64_t)1 << index->bits;) {
        struct piece *piece = index->directory + at;
        at += (int64_t)1 << (index->bits - piece->depth);
        if (piece->chunk != number) continue;
        uint32_t wanted = roomy(index, piece, (int64_t)piece->held + 1);
        if (!resize(index, piece, wanted > piece->count + piece->count / 16 ? wanted : piece->count)) return;
    }
}

int KERNEL(index_make_room)(struct index *index, uint64_t key) {
    struct piece *piece = piece_of(key, index);
    while (!has_room(piece)) {
        int64_t ids = (int64_t)piece->held + 1;
        int is_large = (double)ids > MOST_IDS * exp2(-part_of(index, piece));
        if (is_large && (piece->depth < index->bits || (int64_t)2 << index->bits <= MOST_ENTRIES * index->pieces)) {
            if (!split(index, piece)) return 0;
        } else if (!resize(index, piece, roomy(index, piece, ids)))
            return 0;
        settle(index);
        piece = piece_of(key, index);
    }
    return 1;
}

/* Empty a segment and reduce its memory. Returns 0, without a change, if there is no memory for the new lines. */
int64_t KERNEL(index_clear)(struct index *index, int64_t segment) {
    int64_t shift = index->bits - SEGMENT_BITS;
    struct piece *piece = index->directory + (segment << shift), *end = piece + ((int64_t)1 << shift);
    for (; piece < end; piece += (int64_t)1 << (index->bits - piece->depth)) {
        struct piece old = *piece, fresh = {.depth = old.depth};
        if (!give_lines(index, &fresh, 1, empty_of(piece, index))) return 0;
        publish(index, piece, fresh);
        leave_lines(index, &old);
    }
    settle(index);
    return 1;
}

void KERNEL(index_free)(struct index *index) {
    for (int64_t k = 0; k < index->num_chunks; k++)
        if (index->chunks[k].memory) munmap(index->chunks[k].memory, (size_t)index->chunks[k].size);
    free(index->chunks);
    free(index->directory);
    free(index);
}

/* Return the address of an empty index, or 0 if there is no memory. */
uintptr_t KERNEL(index_new)(const uint64_t salt[2]) {
    struct index *index = calloc(1, sizeof *index);
    if (!index) return 0;
    memcpy(index->salt, salt, sizeof index->salt);
    index->bits = SEGMENT_BITS;
    index->pieces = (int64_t)1 << SEGMENT_BITS;
    index->directory = calloc((size_t)index->pieces, sizeof *index->directory);
    for (int64_t k = 0; index->directory && k < index->pieces; k++) {
        index->directory[k].depth = SEGMENT_BITS;
        if (!give_lines(index, index->directory + k, 1, k == 0)) break;
        if (k + 1 == index->pieces) return (uintptr_t)index;
    }
    PADDLE_JOIN(index_free, LEVEL)(index);
    return 0;
}

/* Write the number of ids, and the bytes of lines and directory, to out (2,). */
void KERNEL(index_facts)(const struct index *index, int64_t *out) {
    out[0] = 0;
    for (int64_t at = 0; at < (int64_t)1 << index->bits; at += (int64_t)1 << (index->bits - index->directory[at].depth))
        out[0] += index->directory[at].held;
    out[1] = index->live + (int64_t)sizeof *index->directory * ((int64_t)1 << index->bits);
}
