# SPDX-License-Identifier: Apache-2.0
"""What benchmarks.launch measures, one module a question, each beside the tools that people use today."""
