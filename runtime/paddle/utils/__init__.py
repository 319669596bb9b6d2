# SPDX-License-Identifier: Apache-2.0
"""Tools of the original for configuration files and their parameters: show, draw, merge."""
