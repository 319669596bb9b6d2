/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over dense blocks and over the bytes of a message. Between two numpy calls, a large array is evicted from the
 * caches; these loops perform all operations on a block while it is in the first-level cache.
 */
#include "kernel.h"

#include <sys/socket.h>
#include <sys/uio.h>

/* A float32 is NaN or infinite if all exponent bits are set. Adding one to the exponent then carries into the sign bit,
 * which was cleared before; no other exponent carries:
 *
 *     sign | exponent, 8 bits | fraction, 23 bits        0 11111111 f..f  +  0 00000001 0..0  =  1 00000000 f..f
 */
#define STRANGE(bits) (((bits) & 0x7FFFFFFFu) + 0x00800000u)
#define SIGN 0x80000000u

/* Elements of a block; even, so that 64-bit words do not cross block boundaries. */
#define BLOCK 4096

INLINE uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE uint64_t word_at(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Add the sum of n 64-bit words, at any address, to total; set sign bits of `seen` if one of their float32 is NaN or
 * infinite. */
static void inspect(const char *words, ptrdiff_t n, uint64_t *total, uint64_t *seen) {
    /* No carry from the lower float of a word reaches the upper one, since a sum is at most 0x807FFFFF. */
    uint64_t sum = 0, strange = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t word = word_at(words + 8 * i);
        sum += word;
        strange |= (word & 0x7FFFFFFF7FFFFFFFu) + 0x0080000000800000u;
    }
    *total += sum;
    *seen |= strange & 0x8000000080000000u;
}

void KERNEL(inspect)(const char *words, ptrdiff_t n, uint64_t *total, uint64_t *seen) {
    inspect(words, n, total, seen);
}

INLINE uint64_t sum_of(const float *floats, ptrdiff_t n) {
    uint64_t sum = 0;
    for (ptrdiff_t i = 0; i + 1 < n; i += 2) sum += word_at((const char *)(floats + i));
    return sum;
}

/* out = w − η(g + h), or w − ηg without h, all (n,). If total is not NULL, it becomes the sum of the 64-bit words of
 * out. Returns whether g + h contains NaN or infinity. */
int KERNEL(descend)(const float *w, const float *g, const float *h, float eta, float *restrict out, ptrdiff_t n,
                    uint64_t *total) {
    uint32_t seen = 0;
    uint64_t sum = 0;
    for (ptrdiff_t start = 0; start < n; start += BLOCK) {
        ptrdiff_t stop = start + BLOCK < n ? start + BLOCK : n;
        if (h)
            for (ptrdiff_t i = start; i < stop; i++) {
                float step = g[i] + h[i];
                seen |= STRANGE(bits_of(step));
                out[i] = w[i] - eta * step;
            }
        else
            for (ptrdiff_t i = start; i < stop; i++) {
                seen |= STRANGE(bits_of(g[i]));
                out[i] = w[i] - eta * g[i];
            }
        if (total) sum += sum_of(out + start, stop - start);
    }
    if (total) *total = sum;
    return (seen & SIGN) != 0;
}

/* The state of an array that is being received. */
struct arrival {
    int64_t got;    /* received bytes of the array */
    int64_t more;   /* received bytes after the array */
    int64_t looked; /* number of inspected words, and the results: */
    uint64_t total, seen;
};

/* Maximum number of bytes that one call receives, so that they are still in the cache when they are inspected. */
#define RECEIVED (128 << 10)

/* Inspect the received whole words that were not inspected yet. */
static void look(const char *array, struct arrival *a) {
    inspect(array + 8 * a->looked, a->got / 8 - a->looked, &a->total, &a->seen);
    a->looked = a->got / 8;
}

void KERNEL(look)(const char *array, struct arrival *a) { look(array, a); }

/* Receive available bytes of an array of `size` bytes, a multiple of 8, and then of the `room` bytes after it, from a
 * non-blocking socket. If `got` is below `size`, no more bytes were available or the connection has ended; a further
 * call distinguishes these cases. */
void KERNEL(receive)(int descriptor, char *array, int64_t size, char *tail, int64_t room, struct arrival *a) {
    a->more = 0;
    for (;;) {
        look(array, a);
        if (a->got >= size) return;
        int64_t left = size - a->got, count;
        if (left > RECEIVED) {
            count = recv(descriptor, array + a->got, RECEIVED, 0);
        } else { /* receive the last piece together with the bytes after it */
            struct iovec ends[2] = {{array + a->got, (size_t)left}, {tail, (size_t)room}};
            count = readv(descriptor, ends, 2);
        }
        if (count <= 0) return;
        a->more = count > left ? count - left : 0;
        a->got += count - a->more;
    }
}
