/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the rows of growing tables that are on disk: paddle/pserver/sparse/disk_rows.py.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Return how many of ascending slots (n,), from number i on, are neighbors. */
INLINE ptrdiff_t run_of(const uint32_t *slots, ptrdiff_t i, ptrdiff_t n) {
    ptrdiff_t end = i + 1;
    while (end < n && slots[end] == slots[end - 1] + 1) end++;
    return end - i;
}

/* Read rows of `size` bytes at slots (n,), ascending, to out (n, size); return errno, 0 if all were read, or -1 if the file
 * is too short. The kernel is asked for all of them first, so that a disk works on many at a time. */
int64_t KERNEL(disk_read)(int64_t fd, const uint32_t *slots, ptrdiff_t n, int64_t size, char *out) {
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i += count) {
        count = run_of(slots, i, n);
        if (count < n) posix_fadvise((int)fd, size * (off_t)slots[i], size * count, POSIX_FADV_WILLNEED);
    }
    for (ptrdiff_t i = 0; i < n; i += count) {
        count = run_of(slots, i, n);
        int64_t left = size * count, at = size * (int64_t)slots[i];
        while (left) {
            ssize_t done = pread((int)fd, out, (size_t)left, at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : -1;
            out += done, at += done, left -= done;
        }
    }
    return 0;
}
