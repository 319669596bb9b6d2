# SPDX-License-Identifier: Apache-2.0
"""Implements `python -m paddle_cluster`, which is equivalent to the command `paddle-cluster`."""

from paddle_cluster import leave, main

leave(main())
