/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over dense blocks and over the bytes of a message. Between two calls of numpy a large array drives everything
 * that those need out of the caches; here what happens to a block happens in the nearest cache.
 */
#include "kernel.h"

#include <sys/socket.h>
#include <sys/uio.h>

/* A float32 is NaN or infinite if its exponent is all ones. Adding one to such an exponent, and to no other, reaches
 * the sign bit above it, which was cleared before:
 *
 *     sign | exponent, 8 bits | fraction, 23 bits        0 11111111 f..f  +  0 00000001 0..0  =  1 00000000 f..f
 */
#define STRANGE(bits) (((bits) & 0x7FFFFFFFu) + 0x00800000u)
#define SIGN 0x80000000u

/* Elements of a block; even, so that 64-bit words do not lie across blocks. */
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

/* Add the sum of n 64-bit words, at any address, to *total; set sign bits of *seen if a float32 in them is NaN or
 * infinite. */
static void inspect(const char *words, ptrdiff_t n, uint64_t *total, uint64_t *seen) {
    /* Nothing gets from the lower float of a word into the upper one, since a sum is 0x807FFFFF at most. */
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

/* out = w − η(g + h), or w − ηg without an h, all (n,). *total becomes the sum of out's whole 64-bit words if it is
 * asked for. Returns whether g + h has a NaN or an infinity. */
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

/* What is known of an array that arrives. */
struct arrival {
    int64_t got;    /* bytes of it that are here */
    int64_t more;   /* bytes received of what follows it */
    int64_t looked; /* words that were inspected, with these findings: */
    uint64_t total, seen;
};

/* Bytes that one call receives: few enough that they are still in the cache when they are inspected. */
#define RECEIVED (128 << 10)

/* Inspect whole words that are here and were not yet. */
static void look(const char *array, struct arrival *a) {
    inspect(array + 8 * a->looked, a->got / 8 - a->looked, &a->total, &a->seen);
    a->looked = a->got / 8;
}

void KERNEL(look)(const char *array, struct arrival *a) { look(array, a); }

/* Receive what is there of an array of `size` bytes, a multiple of 8, and then of the `room` bytes behind it, from a
 * socket that does not block. With `got` below `size` nothing more came, or the connection is over: receiving once more
 * tells which. */
void KERNEL(receive)(int descriptor, char *array, int64_t size, char *tail, int64_t room, struct arrival *a) {
    a->more = 0;
    for (;;) {
        look(array, a);
        if (a->got >= size) return;
        int64_t left = size - a->got, count;
        if (left > RECEIVED) {
            count = recv(descriptor, array + a->got, RECEIVED, 0);
        } else { /* the last piece comes together with what follows it */
            struct iovec ends[2] = {{array + a->got, (size_t)left}, {tail, (size_t)room}};
            count = readv(descriptor, ends, 2);
        }
        if (count <= 0) return;
        a->more = count > left ? count - left : 0;
        a->got += count - a->more;
    }
}
