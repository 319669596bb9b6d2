# SPDX-License-Identifier: Apache-2.0
"""The node agent, and the code that it shares with the launcher and `paddle`: standard library, Python 3.8"""
