# SPDX-License-Identifier: Apache-2.0
"""Private keys of the user: each file is read once, however many nodes it opens."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko
from paramiko.ssh_exception import PasswordRequiredException, SSHException


class KeyRing:
    """Key files by path, as they were when first asked for; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, paramiko.PKey | SSHException] = {}

    def keys(self, paths: Sequence[Path]) -> Iterator[paramiko.PKey | SSHException]:
        """The key of each file, with its certificate if one lies beside it, or why there is none."""
        for path in paths:
            with self._lock:  # an RSA key takes long to check: once, not once for each thread that waits
                if path not in self._loaded:
                    self._loaded[path] = _load(path)
            yield self._loaded[path]


def _load(path: Path) -> paramiko.PKey | SSHException:
    try:
        return paramiko.PKey.from_path(path)
    except TypeError:  # what the crypto library raises for want of a passphrase
        return PasswordRequiredException("Private key file is encrypted")
    except (ValueError, OSError, paramiko.UnknownKeyType) as error:
        return SSHException(f"{path} is no private key that can be used: {error}")
    except SSHException as error:
        return error
