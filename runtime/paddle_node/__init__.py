# SPDX-License-Identifier: Apache-2.0
"""The node agent, and code that it shares with the launcher and `paddle`; needs only Python 3.8."""
