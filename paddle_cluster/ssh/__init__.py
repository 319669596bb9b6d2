# SPDX-License-Identifier: Apache-2.0
"""SSH clients: logins that provide byte streams to agents on other machines. Depends on `connection`.

fabric and paramiko are imported only here.
"""
