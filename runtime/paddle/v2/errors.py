# SPDX-License-Identifier: Apache-2.0
"""Errors of the v2 interface, each of which is also the built-in exception that v2 scripts catch."""

from __future__ import annotations

from paddle.errors import ConfigError, MissingNameError, ModelFileError, NotAvailableError, PaddleError
from paddle_node.contract.classes import regex


class UsageError(ConfigError):
    """Raised when a layer, parameter or argument has an invalid value."""


class UsageTypeError(PaddleError, TypeError):
    """Raised when an argument has the wrong type."""


class TrainingError(PaddleError):
    """Raised when training cannot continue, because a cost is not finite or there is no data."""


_OF_PYTHON_2 = regex(
    r"has no attribute '(?:has_key|iteritems|itervalues|iterkeys|izip|imap|maxint)'"
    r"|name '(?:xrange|unicode|raw_input|basestring|long|reduce|unichr|execfile|file|cmp)' is not defined"
    r"|No module named '(?:cPickle|Queue|StringIO|cStringIO|ConfigParser|urllib2)'"
)


def python2_hint(error: Exception, file: str) -> str:
    """Return a hint, starting with ". ", on how to convert a Python 2 `file`; empty if `error` has another cause."""
    if not isinstance(error, SyntaxError) and not _OF_PYTHON_2.search(str(error)):
        return ""
    return f". `2to3 -w -n {file}` converts most of a Python 2 script to Python 3"


__all__ = [
    "MissingNameError", "ModelFileError", "NotAvailableError", "TrainingError", "UsageError", "UsageTypeError",
    "python2_hint",
]  # fmt: skip
