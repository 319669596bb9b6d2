/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of MultiSlot text, in one pass over its bytes; the plain form needs a dozen passes.
 */
#include "kernel.h"

#define MOST_DIGITS 19 /* this many digits fit into a uint64 */

enum { DIGITS_ONLY = 1, EXACT = 2, NEGATIVE = 4 };

/* Read a token that begins at `at`; return its end. `size` bytes of text end in a blank. */
INLINE ptrdiff_t read_token(const uint8_t *text, ptrdiff_t at, uint64_t *whole, int16_t *behind, uint8_t *kind) {
    ptrdiff_t begin = at, point = -1, digits;
    uint64_t value = 0;
    int is_odd = 0, is_signed = text[at] == '-' || text[at] == '+';
    for (at += is_signed; text[at] > ' '; at++) {
        uint8_t digit = (uint8_t)(text[at] - '0');
        if (LIKELY(digit < 10)) {
            value = value * 10 + digit;
        } else if (text[at] == '.' && point < 0) {
            point = at;
        } else {
            is_odd = 1;
        }
    }
    digits = at - begin - is_signed - (point >= 0);
    *whole = value;
    *behind = (int16_t)(point < 0 ? -1 : at - point - 1);
    *kind = 0;
    if (LIKELY(!is_odd && digits > 0 && digits <= MOST_DIGITS)) {
        *kind = (uint8_t)(EXACT | (point < 0 && !is_signed ? DIGITS_ONLY : 0) | (text[begin] == '-' ? NEGATIVE : 0));
    }
    return at;
}

/* Read the tokens of text (size,), which is empty or ends in a newline; return their number. For each token, write its
 * first and last place to starts and ends, its digits without the point to whole, the number of decimals (-1: no point)
 * to behind, and the kind. For each line, write the number of tokens before its end to line_ends. whole and behind are
 * meaningless for tokens that are not EXACT.
 *
 *     text  "2 -1.5 7\n"     whole 2 15 7     behind -1 1 -1     line_ends 3 */
ptrdiff_t KERNEL(text_tokens)(const uint8_t *text, ptrdiff_t size, int64_t *restrict starts, int64_t *restrict ends,
                              uint64_t *restrict whole, int16_t *restrict behind, uint8_t *restrict kinds,
                              int64_t *restrict line_ends) {
    ptrdiff_t count = 0;
    for (ptrdiff_t at = 0; at < size; at++) {
        if (text[at] == '\n') *line_ends++ = count;
        if (text[at] <= ' ') continue;
        starts[count] = at;
        /* The blank after a token is the next byte to be looked at, since it may be a newline. */
        at = read_token(text, at, whole + count, behind + count, kinds + count) - 1;
        ends[count++] = at + 1;
    }
    return count;
}
