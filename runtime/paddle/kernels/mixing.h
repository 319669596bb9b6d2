/* SPDX-License-Identifier: Apache-2.0
 *
 * splitmix64's mixer and stream: see paddle/pserver/sparse/mixing.py.
 */
#ifndef PADDLE_MIXING_H
#define PADDLE_MIXING_H

#include "kernel.h"

#define GAMMA 0x9E3779B97F4A7C15u
#define ABSENT 0xFFFFFFFFu /* number of an id that is not there */

INLINE uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
