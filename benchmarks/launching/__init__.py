# SPDX-License-Identifier: Apache-2.0
"""What benchmarks.launch measures, one module per question, each compared with today's common tools."""
