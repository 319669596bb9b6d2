# SPDX-License-Identifier: Apache-2.0
"""Role makers of fleet: they determine a process's role and index, and the addresses of all processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError

_T = TypeVar("_T")
_ID = "PADDLE_TRAINER_ID"
_PORTS = ("6174",)  # when PADDLE_PORT is not set


class Role:
    """The role of a process in a job: worker or server."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """Base class of role makers, which know the processes of a job and their roles; `fleet.init` takes one.

    Attributes:
        is_collective: whether the job has no servers, so that workers exchange gradients among themselves.
    """

    is_collective = False

    def __init__(self) -> None:
        """Create a role maker without processes; `generate_role` determines them."""
        self._role: int = Role.WORKER
        self._current_id = 0
        self._worker_num = 0
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []

    def generate_role(self) -> None:
        """Determine the role of this process; called by `fleet.init`."""

    def is_worker(self) -> bool:
        """Return whether this process trains."""
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Return whether this process serves parameters."""
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Return whether this is worker 0."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """Return the number of workers."""
        return self._worker_num

    def server_num(self) -> int:
        """Return the number of servers."""
        return len(self._server_endpoints)

    def worker_index(self) -> int:
        """Return this worker's index, which counts from 0."""
        return self._current_id

    def server_index(self) -> int:
        """Return this server's index, which counts from 0."""
        return self._current_id

    def get_trainer_endpoints(self) -> list[str]:
        """Return the "ip:port" of each worker, in order; only for jobs without servers."""
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """Return the "ip:port" of each server, in order."""
        return self._server_endpoints


class UserDefinedRoleMaker(RoleMakerBase):
    """A role maker for a job with servers whose roles and addresses are set by the script."""

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        """Set the number of this process among those with its role, and the sizes of the job.

        Raises:
            FluidError: the role is unknown, a number is out of range, or there is no server or worker.
        """
        super().__init__()
        if role not in (Role.WORKER, Role.SERVER):
            raise FluidError(f"role: expected Role.WORKER or Role.SERVER, got {role!r}")
        self._role, self._worker_num = role, worker_num
        self._server_endpoints = list(server_endpoints or ())
        if worker_num < 1:
            raise FluidError(f"worker_num: expected 1 or more, got {worker_num!r}")
        if not self._server_endpoints:
            raise FluidError("server_endpoints: expected a list of 'ip:port', got an empty list")
        self._current_id = _checked(current_id, worker_num if role == Role.WORKER else self.server_num())


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A role maker for a job without servers whose roles and addresses are set by the script."""

    is_collective = True

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        """Set this worker's number, and "ip:port" of all workers.

        Raises:
            FluidError: there are no workers, or none with this number.
        """
        super().__init__()
        self._worker_endpoints = list(worker_endpoints or ())
        if not self._worker_endpoints:
            raise FluidError("worker_endpoints: expected a list of 'ip:port', got an empty list")
        self._worker_num = len(self._worker_endpoints)
        self._current_id = _checked(current_id, self._worker_num)


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads roles from the environment variables that `paddle.py --mode=fluid` and `paddle.distributed.launch` set.

    With servers: TRAINING_ROLE, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ID, POD_IP or PADDLE_CURRENT_ENDPOINT, and
    PADDLE_PSERVERS_IP_PORT_LIST, or PADDLE_PSERVERS and PADDLE_PORT (one port, or one for each host). Without servers:
    PADDLE_TRAINER_ENDPOINTS.
    """

    def __init__(self, is_collective: bool = False) -> None:
        """Create a role maker; `generate_role` reads the environment."""
        super().__init__()
        self.is_collective = is_collective

    def generate_role(self) -> None:
        """Determine the role from the environment variables.

        Raises:
            FluidError: a variable is missing, or none of the servers has this process's address.
        """
        said = JobEnvironment.read()
        if self.is_collective:
            self._worker_endpoints = _listed("PADDLE_TRAINER_ENDPOINTS", said.trainer_endpoints)
            self._worker_num = len(self._worker_endpoints)
            self._current_id = _own_number(said, self._worker_num)
            return
        self._server_endpoints = _listed("PADDLE_PSERVERS_IP_PORT_LIST", said.endpoints or _joined(said))
        self._worker_num = _present("PADDLE_TRAINERS_NUM", said.num_trainers)
        if _present("TRAINING_ROLE", said.role or said.training_role) == "PSERVER":
            self._role = Role.SERVER
            mine = said.current_endpoint or f"{said.pod_ip}:{(said.server_ports or _PORTS)[0]}"
            if mine not in self._server_endpoints:
                raise FluidError(
                    f"address {mine} of this server (PADDLE_CURRENT_ENDPOINT, or POD_IP and PADDLE_PORT) is not among "
                    f"the servers {', '.join(self._server_endpoints)}"
                )
            self._current_id = self._server_endpoints.index(mine)
        else:
            self._current_id = _own_number(said, self._worker_num)


class MPISymetricRoleMaker(RoleMakerBase):
    """The original's role maker for MPI jobs, in which each node is a worker and a server; not supported."""

    def __init__(self) -> None:
        """Raise FluidError: this role maker is not supported.

        Raises:
            FluidError: always; its text names the replacement.
        """
        raise FluidError(
            "MPISymetricRoleMaker is not available: start the script with `paddle.py "
            "--mode=fluid --engine=openmpi`, and use PaddleCloudRoleMaker"
        )


def _own_number(said: JobEnvironment, count: int) -> int:
    number = said.trainer_id if count == 1 and said.trainer_id is None else _present(_ID, said.trainer_id)
    return _checked(number or 0, count, f"environment variable {_ID}")


def _checked(number: int, count: int, name: str = "current_id") -> int:
    if not 0 <= number < count:
        raise FluidError(
            f"{name}: expected 0 to {count - 1} for {count} processes of this role, got {number!r}"
        )
    return number


def _joined(said: JobEnvironment) -> list[str]:
    """Return "host:port" of each server of PADDLE_PSERVERS."""
    hosts, ports = said.server_hosts, said.server_ports or _PORTS
    if len(ports) == 1:
        ports *= len(hosts)
    elif len(ports) != len(hosts):
        raise FluidError(
            f"environment variable PADDLE_PORT: expected one port, or one for each of the {len(hosts)} hosts in "
            f"PADDLE_PSERVERS, got {len(ports)}: {','.join(ports)}"
        )
    return [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]


def _listed(name: str, found: Sequence[str]) -> list[str]:
    return list(_present(name, found or None))


def _present(name: str, found: _T | None) -> _T:
    if found is None or found == "":
        raise FluidError(
            f"environment variable {name} is missing: start the script with `paddle.py "
            "--mode=fluid` or `python -m paddle.distributed.launch`, or pass a "
            "UserDefinedRoleMaker to fleet.init"
        )
    return found
