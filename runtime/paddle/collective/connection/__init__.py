# SPDX-License-Identifier: Apache-2.0
"""Connections between ranks: the authenticated, encrypted handshake, the rendezvous, and the mesh between nodes."""
