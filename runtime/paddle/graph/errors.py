# SPDX-License-Identifier: Apache-2.0
"""Errors in building or running a program. Messages name the operator and the variables."""

from __future__ import annotations

from paddle.errors import ConfigError, PaddleError


class GraphError(ConfigError):
    """Raised when a program is invalid, for example because a name is used for two different variables."""


class UnknownVariableError(GraphError):
    """Raised when a block has no variable of the given name."""


class BackwardError(GraphError):
    """Raised when the gradients of a program cannot be computed."""


class FeedError(ConfigError):
    """Raised when a fed value does not match its variable, or a variable is neither fed nor computed."""


class NotInitializedError(ConfigError):
    """Raised when a persistable variable has no value in the scope yet.

    Attributes:
        name: the name of the variable.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ExecutionError(PaddleError):
    """Raised when an operator failed while a program was running.

    Attributes:
        op_type: the type of the operator.
        position: its index in the block.
    """

    def __init__(self, op_type: str, position: int, message: str) -> None:
        super().__init__(message)
        self.op_type = op_type
        self.position = position


class FedShapeError(ExecutionError):
    """Raised when an operator does not accept the shapes of fed values."""
