# SPDX-License-Identifier: Apache-2.0
"""A job's files: received trees, and collected logs and output; above `link`, beside `processes`."""
