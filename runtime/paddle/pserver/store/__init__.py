# SPDX-License-Identifier: Apache-2.0
"""The content of one server: parameters, optimizers, gradients, and the step that changes them; above `transports`."""
