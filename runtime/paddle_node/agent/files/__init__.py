# SPDX-License-Identifier: Apache-2.0
"""A job's files: received trees, and collected logs and output. Depends on `link`, but not on `processes`."""
