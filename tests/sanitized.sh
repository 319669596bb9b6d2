#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the kernels' tests with every access and operation in C checked: sh tests/sanitized.sh [pytest arguments]
#
# The library is compiled with AddressSanitizer and UndefinedBehaviorSanitizer in a copy of the tree: needs gcc or clang.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && tar -c --exclude=built --exclude=__pycache__ runtime tests paddle_cluster pyproject.toml) | tar -x -C "$copy"

cd "$copy"
PYTHONPATH=runtime "$root/.venv/bin/python" -P - <<'END'
from paddle.kernels import build, library

built = library.FOLDER / library.BUILT
built.mkdir()
checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
build.build(build.Compiler(("cc",)), library.target(), built, checks)
END
[ $# -gt 0 ] || set -- tests/runtime/kernels
export OPENBLAS_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 # Python itself keeps memory to its end
LD_PRELOAD=$(cc -print-file-name=libasan.so) "$root/.venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
