/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the C math library, bound to their oldest symbol versions. exp, exp2 and log got new versions in glibc
 * 2.29 with different error reporting; with these, a library compiled on a new system would not load on older nodes. */
#ifndef PADDLE_MATHEMATICS_H
#define PADDLE_MATHEMATICS_H

#include <math.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define OLDEST(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLDEST(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#else
#define OLDEST(name) _Static_assert(1, #name)
#endif

#endif
