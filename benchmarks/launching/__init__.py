# SPDX-License-Identifier: Apache-2.0
"""The measurements of benchmarks.launch, one module per question, each compared with common tools."""
