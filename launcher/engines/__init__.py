# SPDX-License-Identifier: Apache-2.0
"""The ways to get agents started on nodes, one module each."""
