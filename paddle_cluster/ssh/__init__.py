# SPDX-License-Identifier: Apache-2.0
"""Logins: a byte stream to an agent on another machine; above `connection`.

Nothing else imports fabric and paramiko.
"""
