# SPDX-License-Identifier: Apache-2.0
"""The dashboard: a page in a browser that shows all jobs of this user and stops them; above `control`, beside `job`."""
