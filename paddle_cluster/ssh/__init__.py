# SPDX-License-Identifier: Apache-2.0
"""SSH logins, each of which provides a byte stream to an agent on another machine. Depends on `connection`.

fabric and paramiko are imported only here.
"""
