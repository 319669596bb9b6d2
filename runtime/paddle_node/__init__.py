# SPDX-License-Identifier: Apache-2.0
"""What both ends of a connection share, and what nodes get beside `paddle`: standard library, Python 3.8"""
