# SPDX-License-Identifier: Apache-2.0
"""The rows of `benchmarks.whole`: tasks that users wait for, each compared with its rivals."""
