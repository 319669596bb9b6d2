# SPDX-License-Identifier: Apache-2.0
"""The files of a job: received trees, and collected logs and output; above `link`, beside `processes`."""
