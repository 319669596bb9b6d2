# SPDX-License-Identifier: Apache-2.0
"""The original's protobuf messages as classes, made from tables of their fields."""
