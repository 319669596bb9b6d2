# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle for cluster training: `import paddle.v2 as paddle`.

Importing this package alone is cheap: no numpy, no zmq, no cupy.
"""

from paddle.version import __version__

__all__ = ["__version__"]
