# SPDX-License-Identifier: Apache-2.0
"""Programs and their parts, which layers build and transpilers rewrite. The lowest layer of `fluid`."""
