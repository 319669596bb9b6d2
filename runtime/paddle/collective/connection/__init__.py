# SPDX-License-Identifier: Apache-2.0
"""How ranks get connections: a key proven and encrypted, the rendezvous of all, a mesh between nodes."""
