# SPDX-License-Identifier: Apache-2.0
"""Side-by-side measurements: every module here runs as `python -m benchmarks.<name>` from the repository's root."""
