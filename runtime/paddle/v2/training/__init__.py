# SPDX-License-Identifier: Apache-2.0
"""Training and inference: feeding, running, updating and measuring. Depends on `layer`."""
