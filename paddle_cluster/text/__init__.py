# SPDX-License-Identifier: Apache-2.0
"""Plain text for people: sizes, tables, whole lines, what there is to show; the lowest floor, beside `system`."""
