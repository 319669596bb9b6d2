# SPDX-License-Identifier: Apache-2.0
"""The dashboard: a web page that shows and can stop this user's jobs; above `control`, beside `job`."""
