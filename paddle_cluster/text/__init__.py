# SPDX-License-Identifier: Apache-2.0
"""Plain text for people: sizes, tables, complete lines, output events; the lowest layer, beside `system`."""
