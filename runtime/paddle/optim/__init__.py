# SPDX-License-Identifier: Apache-2.0
"""Update rules, shared by local training and the parameter server, so that both give the same numbers."""
