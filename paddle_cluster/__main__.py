# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle_cluster`: the command `paddle-cluster`, by the Python that it is installed for."""

import sys

from paddle_cluster import main

sys.exit(main())
