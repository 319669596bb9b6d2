# SPDX-License-Identifier: Apache-2.0
"""Update rules (optimizers), one algorithm per module, with the variants of v2 and Fluid. The lowest layer of `optim`.

All modules of this folder are loaded automatically and register themselves in `rules.table`.
"""

import pkgutil
from importlib import import_module

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
