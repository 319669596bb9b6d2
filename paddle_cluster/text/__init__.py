# SPDX-License-Identifier: Apache-2.0
"""Formats text for people: sizes, tables, complete lines, output events. Imports no other folder of the launcher."""
