# SPDX-License-Identifier: Apache-2.0
"""Benchmarks. Run a module from the root of the repository: `python -m benchmarks.<name>`."""
