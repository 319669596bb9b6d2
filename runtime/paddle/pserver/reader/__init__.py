# SPDX-License-Identifier: Apache-2.0
"""Who looks at a job from outside and takes no part in training; above `client`."""
