# SPDX-License-Identifier: Apache-2.0
"""The files of a job: trees on their way in, logs and output on their way out; above `link`, beside `processes`."""
