# SPDX-License-Identifier: Apache-2.0
"""What operators are made of, under all families: the registry, shapes, sequences, sparse rows, compiled loops."""
