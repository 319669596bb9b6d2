# SPDX-License-Identifier: Apache-2.0
"""Update rules, one algorithm a module, v2's and Fluid's beside each other; the lowest floor of `optim`."""
