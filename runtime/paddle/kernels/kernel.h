/* SPDX-License-Identifier: Apache-2.0
 *
 * What every kernel includes. A source is compiled once per speed level; KERNEL(name) gives a function the level's
 * suffix, so that all levels fit in one library: descend_one_v2, descend_one_v3, ...
 */
#ifndef PADDLE_KERNEL_H
#define PADDLE_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PADDLE_JOIN_(a, b) a##_##b
#define PADDLE_JOIN(a, b) PADDLE_JOIN_(a, b)
#define KERNEL(name) __attribute__((visibility("default"))) PADDLE_JOIN(name, LEVEL)

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(address) __builtin_prefetch((const void *)(address), 0, 3)
/* The same, into the second-level cache only, which supports more pending lines than the first level. */
#define PREFETCH_FAR(address) __builtin_prefetch((const void *)(address), 0, 2)

#endif
