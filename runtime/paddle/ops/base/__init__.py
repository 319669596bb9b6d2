# SPDX-License-Identifier: Apache-2.0
"""The shared foundation of all operator families: registry, shapes, sequences, sparse rows, compiled loops."""
