# SPDX-License-Identifier: Apache-2.0
"""The rows of `benchmarks.whole`: what users wait for, each compared with its rivals."""
