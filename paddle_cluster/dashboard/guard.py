# SPDX-License-Identifier: Apache-2.0
"""Access control of the dashboard: the token in the path, the accepted host names, and the response headers.

Any process on this machine can connect to a port of 127.0.0.1, and any web page in the user's browser can make that
browser send requests there. Therefore, a request must contain the token. Its `Host` reveals a name that an attacker's
DNS maps to 127.0.0.1, and its `Origin` and `Sec-Fetch-Site` reveal a request from another page. No header permits other
pages to read a response.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from paddle_node.contract.classes import dataclass, regex

TOKEN_BYTES = 32
BODY_LIMIT = 4096  # maximum bytes of a POST
_NAMES = ("127.0.0.1", "localhost")
_OWN_FETCHES = ("", "none", "same-origin")
_LENGTH = regex("[0-9]{1,18}")

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer, refusals included."""


class Refused(Exception):
    """Raised when a request is rejected.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Request:
    """An HTTP request that passed the checks.

    Attributes:
        path: the path after the token, without a leading slash.
        query: parameter name -> its last value.
    """

    method: str
    path: str
    query: Mapping[str, str]


def new_token() -> str:
    """Return a new, unguessable access token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def admit(method: str, target: str, headers: Mapping[str, str], *, token: str, port: int) -> Request:
    """Check an HTTP request, and return it if it contains the token and is from the page itself.

    Args:
        target: the target in the request line.
        headers: headers by lower-case name.

    Raises:
        Refused: the token is missing, or the request is invalid.
    """
    hosts = {f"{name}:{port}" for name in _NAMES}
    if headers.get("host", "") not in hosts:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"requests for a different host name are refused; use http://127.0.0.1:{port}",
        )
    origin = headers.get("origin")
    if origin is not None and origin not in {f"http://{host}" for host in hosts}:
        raise Refused(HTTPStatus.FORBIDDEN, "requests from a different origin are refused")
    if headers.get("sec-fetch-site", "") not in _OWN_FETCHES:
        raise Refused(HTTPStatus.FORBIDDEN, "requests from a different site are refused")
    try:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=16))
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the address is malformed: {error}") from error
    given, slash, path = parts.path.removeprefix("/").partition("/")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()) or not slash:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "the address lacks its token: copy the whole address from the dashboard's terminal",
        )
    return Request(method, path, query)


def body_size(headers: Mapping[str, str]) -> int:
    """Return the size in bytes of a POST's body, which must be JSON, because forms on other pages cannot send JSON.

    Raises:
        Refused: the body is too long, or not JSON.
    """
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected a body of type application/json")
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
    if int(length) > BODY_LIMIT:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"expected a body of at most {BODY_LIMIT} bytes, got {length}",
        )
    return int(length)
