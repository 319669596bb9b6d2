# SPDX-License-Identifier: Apache-2.0
"""The command line: words, options, help and exit codes; the highest floor."""
