# SPDX-License-Identifier: Apache-2.0
"""Formats text for people: sizes, tables, complete lines, output events. A lowest layer, independent of `system`."""
