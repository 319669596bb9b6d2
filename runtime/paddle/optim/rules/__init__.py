# SPDX-License-Identifier: Apache-2.0
"""Update rules, one algorithm a module, v2's and Fluid's beside each other; the lowest floor of `optim`.

A module in this folder is loaded without being named anywhere; `rules.table` is what they enter.
"""

import pkgutil
from importlib import import_module

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
