# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Data-parallel linear regression in plain numpy: each process has a share of the data; gradients circulate in a ring.

No MPI and no parameter server: the processes find each other through PADDLE_TRAINER_ENDPOINTS, which paddle.py sets.

    python paddle.py -p examples --entry=numpy_allreduce.py --mode=collective --nproc_per_node=2

Without paddle.py, it runs as one process with all the data, and finds the same weights.
"""

import argparse
import hmac
import os
import socket
import struct
import time

import numpy as np

CONNECT_S = 30.0
STEP_S = 60.0
HELLO = struct.Struct("!I32s")


class Ring:
    """The job's processes as a ring: each process sends to the next one and receives from the previous one."""

    def __init__(self, rank, endpoints, key):
        self.rank, self.size = rank, len(endpoints)
        self._key = key
        if self.size == 1:
            return
        with _listen(endpoints[rank]) as listener:
            self._next = self._connect(endpoints[(rank + 1) % self.size])
            self._before = self._accept(listener, (rank - 1) % self.size)

    def sum(self, array):
        """Return the sum of all processes' arrays (float64), bit for bit the same in every process.

        Each process sums one part of the array and passes it on: 2 (N - 1) messages of 1/N of the array.
        """
        parts = np.array_split(array.astype(np.float64).ravel(), self.size)
        for step in range(self.size - 1):  # afterwards, each process has one complete part
            mine, comes = (self.rank - step) % self.size, (self.rank - step - 1) % self.size
            parts[comes] = parts[comes] + self._exchange(parts[mine], len(parts[comes]))
        for step in range(self.size - 1):  # afterwards, each process has all parts
            mine, comes = (self.rank + 1 - step) % self.size, (self.rank - step) % self.size
            parts[comes] = self._exchange(parts[mine], len(parts[comes]))
        return np.concatenate(parts).reshape(array.shape)

    def _exchange(self, sent, count):
        # One process must start by receiving, or full buffers would cause a deadlock.
        if self.rank % 2 == 0:
            self._next.sendall(sent.tobytes())
        received = _receive(self._before, count * 8)
        if self.rank % 2 == 1:
            self._next.sendall(sent.tobytes())
        return np.frombuffer(received)

    def _connect(self, endpoint):
        deadline = time.monotonic() + CONNECT_S
        while True:
            try:
                peer = socket.create_connection(_address(endpoint), timeout=1.0)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{endpoint} did not answer within {CONNECT_S:g} s") from error
                time.sleep(0.05)  # the next process is not listening yet
        peer.settimeout(STEP_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(HELLO.pack(self.rank, self._proof(self.rank)))
        return peer

    def _accept(self, listener, expected):
        """Wait for the previous process; reject peers that do not know the job's key."""
        deadline = time.monotonic() + CONNECT_S
        while True:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            peer, _ = listener.accept()
            peer.settimeout(STEP_S)
            try:
                rank, proof = HELLO.unpack(_receive(peer, HELLO.size))
            except ConnectionError:
                peer.close()
                continue
            if rank == expected and hmac.compare_digest(proof, self._proof(rank)):
                return peer
            peer.close()

    def _proof(self, rank):
        return hmac.digest(self._key, b"ring %d" % rank, "sha256")


def _address(endpoint):
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def _listen(endpoint):
    host, port = _address(endpoint)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def _receive(peer, size):
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionError("the preceding process of the ring has exited")
        data += piece
    return bytes(data)


def make_data(samples, features):
    """Return the inputs (samples, features), the outputs (samples,) and the true weights (features,)."""
    random = np.random.default_rng(1)
    weights = random.normal(size=features)
    inputs = random.normal(size=(samples, features))
    return inputs, inputs @ weights + 0.1 * random.normal(size=samples), weights


def main():
    """Train by gradient descent and print the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.2)
    args = parser.parse_args()

    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "alone").split(",")
    ring = Ring(rank, endpoints, os.environ.get("PADDLE_JOB_KEY", "").encode())
    inputs, outputs, true = make_data(args.samples, args.features)
    mine_in, mine_out = inputs[rank :: ring.size], outputs[rank :: ring.size]

    weights = np.zeros(args.features)
    for step in range(args.steps):
        error = mine_in @ weights - mine_out
        summed = ring.sum(np.append(mine_in.T @ error, error @ error))
        weights -= args.lr * summed[:-1] / args.samples
        if rank == 0 and step % 20 == 0:
            print(f"step {step}, cost {summed[-1] / args.samples:.6f}")
    print(f"process {rank} of {ring.size}: {len(mine_in)} of {args.samples} samples")
    print("distance from the true weights", round(float(np.abs(weights - true).max()), 4))
    print("weights", *(f"{weight:.17g}" for weight in weights))
    if rank == 0:
        os.makedirs("output", exist_ok=True)
        np.savetxt("output/weights.txt", weights)


if __name__ == "__main__":
    main()
