# SPDX-License-Identifier: Apache-2.0
"""The original's protobuf messages, as classes that are generated from tables of fields."""
