/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the rows of growing tables that are on disk: paddle/pserver/sparse/disk_file.py.
 *
 *     slot    | id: int64 | floats: (parts, part) | checksum: uint32 |
 *
 * The checksum is CRC-32C of salt, tick, id and floats. Salt and tick are stored in memory only, so that an outdated
 * slot is detected like a damaged one.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

enum { ID_BYTES = 8, CHECKSUM_BYTES = 4, GAP = 2048, TOO_SHORT = -1, NOWAIT = 8 };

/* Rows of n slots: row number order[i] of the arrays is in slot slots[order[i]]; these slots are in ascending order. */
struct slots {
    int64_t fd, n, parts, part_bytes;
    const uint32_t *slots;
    const int64_t *order;
    int64_t *ids;
    const uint32_t *ticks;
    char *rows;         /* (parts, n, part) */
    uint8_t *damaged;   /* (n,), when reading */
    int64_t *left;      /* (n,), work space for reading */
    char *buffer;       /* (room,), at least one slot */
    int64_t room, salt;
    const uint32_t *table; /* (256,), the CRC-32C table for processors without the instruction */
    int64_t finds_ids;  /* whether reading returns the ids; otherwise it compares them */
    int64_t failed;     /* set to the slot of an error */
    int64_t num_damaged;
};

INLINE int64_t size_of(const struct slots *s) { return ID_BYTES + s->parts * s->part_bytes + CHECKSUM_BYTES; }

INLINE uint32_t slot_at(const struct slots *s, ptrdiff_t i) { return s->slots[s->order[i]]; }

INLINE uint32_t extended(uint32_t crc, const char *data, int64_t n, const uint32_t *table) {
#ifdef __SSE4_2__
    (void)table;
    uint64_t word, wide = crc;
    for (; n >= 8; n -= 8, data += 8) {
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; n; n--, data++) crc = _mm_crc32_u8(crc, (uint8_t)*data);
#else
    for (; n; n--, data++) crc = table[(crc ^ (uint8_t)*data) & 255] ^ crc >> 8;
#endif
    return crc;
}

INLINE uint32_t checksum(const struct slots *s, int64_t row, const char *slot) {
    uint32_t head[2] = {(uint32_t)s->salt, s->ticks[row]};
    uint32_t crc = extended(~0u, (const char *)head, sizeof head, s->table);
    return ~extended(crc, slot, size_of(s) - CHECKSUM_BYTES, s->table);
}

/* Verify the checksum of a slot and copy its row. */
static void unpack(struct slots *s, int64_t row, const char *slot) {
    int64_t id;
    uint32_t stored;
    memcpy(&id, slot, ID_BYTES);
    memcpy(&stored, slot + size_of(s) - CHECKSUM_BYTES, CHECKSUM_BYTES);
    s->damaged[row] = stored != checksum(s, row, slot) || (!s->finds_ids && id != s->ids[row]);
    s->num_damaged += s->damaged[row];
    if (s->finds_ids) s->ids[row] = id;
    for (int64_t part = 0; part < s->parts; part++)
        memcpy(s->rows + (part * s->n + row) * s->part_bytes, slot + ID_BYTES + part * s->part_bytes, (size_t)s->part_bytes);
}

static void pack(struct slots *s, int64_t row, char *slot) {
    memcpy(slot, s->ids + row, ID_BYTES);
    for (int64_t part = 0; part < s->parts; part++)
        memcpy(slot + ID_BYTES + part * s->part_bytes, s->rows + (part * s->n + row) * s->part_bytes, (size_t)s->part_bytes);
    uint32_t crc = checksum(s, row, slot);
    memcpy(slot + size_of(s) - CHECKSUM_BYTES, &crc, CHECKSUM_BYTES);
}

/* Return how many of n positions (NULL: first, first + 1, ..) have adjacent or nearly adjacent slots, which are read
 * together. */
static ptrdiff_t span_of(const struct slots *s, const int64_t *positions, ptrdiff_t first, ptrdiff_t n, int64_t gap) {
    int64_t size = size_of(s), start = 0, end = 0;
    for (ptrdiff_t i = first; i < n; i++) {
        int64_t at = size * slot_at(s, positions ? positions[i] : i);
        if (i == first)
            start = at;
        else if (at - end > gap || at + size - start > s->room)
            return i - first;
        end = at + size;
    }
    return n - first;
}

/* Read bytes that are in the page cache; return whether they were. glibc 2.17 has no function for this call. */
static int fetch_cached(int64_t fd, char *to, int64_t size, int64_t at) {
#ifdef SYS_preadv2
    struct iovec where = {to, (size_t)size};
    return syscall(SYS_preadv2, (long)fd, &where, 1L, (long)at, 0L, (long)NOWAIT) == size;
#else
    return 0;
#endif
}

static int64_t fetch_bytes(int64_t fd, char *to, int64_t left, int64_t at) {
    while (left) {
        ssize_t done = pread((int)fd, to, (size_t)left, at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done ? errno : TOO_SHORT;
        to += done, at += done, left -= done;
    }
    return 0;
}

/* Read the slots at n positions. Those that are not in the page cache are written to `left`; returns their number. */
static ptrdiff_t read_cached(struct slots *s) {
    ptrdiff_t left = 0, count;
    int64_t size = size_of(s);
    for (ptrdiff_t i = 0; i < s->n; i += count) {
        count = span_of(s, NULL, i, s->n, GAP);
        int64_t start = size * slot_at(s, i), end = size * (slot_at(s, i + count - 1) + (int64_t)1);
        int found = fetch_cached(s->fd, s->buffer, end - start, start);
        for (ptrdiff_t k = i; k < i + count; k++)
            if (found)
                unpack(s, s->order[k], s->buffer + size * slot_at(s, k) - start);
            else
                s->left[left++] = k;
    }
    return left;
}

/* Read rows and verify them: `damaged` marks those with a wrong id or checksum. Returns errno, 0 if all were read, or
 * -1 if the file is too short. Rows in the page cache take one system call per span of slots; the kernel is asked to
 * read all others before the first of them is read, so that a disk processes many requests at a time. */
int64_t KERNEL(disk_read)(struct slots *s) {
    int64_t size = size_of(s);
    ptrdiff_t left = read_cached(s), count;
    for (int is_second = 0; is_second < 2; is_second++)
        for (ptrdiff_t i = 0; i < left; i += count) {
            count = span_of(s, s->left, i, left, GAP);
            int64_t start = size * slot_at(s, s->left[i]);
            int64_t end = size * (slot_at(s, s->left[i + count - 1]) + (int64_t)1);
            if (!is_second) {
                posix_fadvise((int)s->fd, start, end - start, POSIX_FADV_WILLNEED);
                continue;
            }
            int has_failed = fetch_bytes(s->fd, s->buffer, end - start, start) != 0;
            for (ptrdiff_t k = i; k < i + count; k++) { /* one by one after an error, which may be in the gaps */
                int64_t at = size * (int64_t)slot_at(s, s->left[k]);
                s->failed = slot_at(s, s->left[k]);
                int64_t why = has_failed ? fetch_bytes(s->fd, s->buffer + at - start, size, at) : 0;
                if (why) return why;
                unpack(s, s->order[s->left[k]], s->buffer + at - start);
            }
        }
    return 0;
}

/* Write rows, adjacent slots with one system call. Returns errno, or 0 if all were written. */
int64_t KERNEL(disk_write)(struct slots *s) {
    int64_t size = size_of(s);
    ptrdiff_t count;
    for (ptrdiff_t i = 0; i < s->n; i += count) {
        count = span_of(s, NULL, i, s->n, 0);
        for (ptrdiff_t k = 0; k < count; k++) pack(s, s->order[i + k], s->buffer + k * size);
        const char *from = s->buffer;
        int64_t left = size * count, at = size * slot_at(s, i);
        s->failed = slot_at(s, i);
        while (left) {
            ssize_t done = pwrite((int)s->fd, from, (size_t)left, at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : EIO;
            from += done, at += done, left -= done;
        }
    }
    return 0;
}
