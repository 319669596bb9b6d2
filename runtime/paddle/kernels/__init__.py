# SPDX-License-Identifier: Apache-2.0
"""Kernels in C, compiled when the project is set up and loaded by ctypes; each also has a plain numpy form.

To add a kernel:

1. Write it in a `NAME.c` of this folder, as a function `KERNEL(name)` with `#include "kernel.h"`. Every source is
   compiled once for each speed level, and the loader picks the functions of the processor's level. Use plain loops, or
   GCC's vector extensions, but no intrinsics: one source serves all processors, and all systems with glibc 2.17 or
   newer (`mathematics.h`). No call allocates, keeps state or checks its arguments.
2. Write its Python wrapper next to the code that uses it: `KERNELS = library.Kernels(name="pnf")` declares the
   arguments. `KERNELS.loaded` is the object with the functions, or None where the plain form must be used. The wrapper
   checks dtypes, contiguity and sizes (`library.address` checks the first two), since C checks nothing.
3. Write a test that compares both forms bit by bit: `tests/runtime/kernels`.

Products and sums are never contracted or reordered by the compiler, so both forms compute in the order of the source.
`python -m paddle.kernels.build` compiles what has changed.
"""
