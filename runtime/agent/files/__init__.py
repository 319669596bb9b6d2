# SPDX-License-Identifier: Apache-2.0
"""Files of a job: trees on their way in, logs and output on their way back; on `link`."""
