# SPDX-License-Identifier: Apache-2.0
"""SSH logins: each provides a byte stream to an agent on another machine; above `connection`.

fabric and paramiko are imported only here.
"""
