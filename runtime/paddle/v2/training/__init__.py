# SPDX-License-Identifier: Apache-2.0
"""Training and inference at work: what is fed, the machine that runs, updates, measures; above `layer`."""
