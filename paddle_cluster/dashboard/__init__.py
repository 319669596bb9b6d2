# SPDX-License-Identifier: Apache-2.0
"""The dashboard: a web page that shows this user's jobs and can stop them. Depends on `control`, but not on `job`."""
