# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""A client of `paddle.py serve`: it looks up rows over HTTP, with only numpy and the standard library.

python paddle.py serve --servers=10.0.0.1:7164 --tables=user
python examples/lookup_rows.py http://127.0.0.1:8500 user 7 -3
"""

import os
import sys
import urllib.request

import numpy as np


def look_up(address, table, ids):
    """Return the rows (n, width) float32 of ids (n,), and their age in seconds; raise HTTPError 503 if too old."""
    headers = {"Content-Type": "application/octet-stream"}
    if token := os.environ.get("PADDLE_SERVE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    body = np.asarray(ids, "<i8").tobytes()
    request = urllib.request.Request(f"{address}/tables/{table}/rows", body, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
        shape = [int(n) for n in answer.headers["X-Shape"].split(",")]
        return np.frombuffer(answer.read(), "<f4").reshape(shape), float(answer.headers["X-Age-S"])


if __name__ == "__main__":
    rows, age_s = look_up(sys.argv[1], sys.argv[2], [int(word) for word in sys.argv[3:]])
    for one, row in zip(sys.argv[3:], rows, strict=True):
        print(one, *row)
    print(f"at most {age_s:.1f} s old")
