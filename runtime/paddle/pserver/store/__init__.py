# SPDX-License-Identifier: Apache-2.0
"""What one server holds: parameters, optimizers, gradients, and the step that changes them; above `transports`."""
