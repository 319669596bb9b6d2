# SPDX-License-Identifier: Apache-2.0
"""The parameter server and its client.

Importing this package loads nothing: `client` and `server` are imported by whoever needs one.
"""
