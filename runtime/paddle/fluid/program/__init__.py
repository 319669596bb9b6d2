# SPDX-License-Identifier: Apache-2.0
"""Programs and their parts, as layers write them and others rewrite them; the lowest floor of `fluid`."""
