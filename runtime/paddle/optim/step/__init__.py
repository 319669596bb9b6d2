# SPDX-License-Identifier: Apache-2.0
"""One step of each of Fluid's update rules, in place on arrays.

Letters as in `optim.rule`: w value, g gradient, η rate. All arrays of a call have one shape. Where Fluid's
formula differs from v2's rule of the same name (where ε stands, what the first gradient weighs), this is
Fluid's.
"""
