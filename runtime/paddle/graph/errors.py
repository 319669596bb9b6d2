# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in building or running a program; each message names the operator and the variables."""

from __future__ import annotations

from paddle.errors import ConfigError, PaddleError


class GraphError(ConfigError):
    """A program was built in a way that cannot work."""


class UnknownVariableError(GraphError):
    """A name was used that no variable of the block has."""


class BackwardError(GraphError):
    """Gradients of this program cannot be derived."""


class FeedError(ConfigError):
    """A fed value does not fit its variable, or a variable is neither fed nor computed."""


class NotInitialisedError(ConfigError):
    """A persistable variable has no value in the scope yet.

    Attributes:
        name: the variable.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ExecutionError(PaddleError):
    """An operator failed while a program ran.

    Attributes:
        op_type: type of the operator.
        position: its index in the block.
    """

    def __init__(self, op_type: str, position: int, message: str) -> None:
        super().__init__(message)
        self.op_type = op_type
        self.position = position
