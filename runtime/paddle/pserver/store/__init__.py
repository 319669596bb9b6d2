# SPDX-License-Identifier: Apache-2.0
"""The state of one server: parameters, optimizers, gradients and the update step. Depends on `transports`."""
