# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle_cluster`: the command `paddle-cluster`, run by the Python for which it is installed."""

import sys

from paddle_cluster import main

sys.exit(main())
