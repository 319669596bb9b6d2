# SPDX-License-Identifier: Apache-2.0
"""The node agent, and the code that it shares with the launcher and `paddle`; requires Python 3.8 or newer."""
