# SPDX-License-Identifier: Apache-2.0
"""Starts the agent from modules in memory, so that nothing is installed on a node.

The launcher's command line runs this module with `exec` and calls `boot`. It imports only modules that the interpreter
has already loaded or built in.
"""

import gc
import marshal
import sys
import zlib

RAW = -15  # zlib's parameter for data without a header and a checksum, which SSH has already verified
START_FAILED = 70  # also every failed agent's exit code, distinct from an old Python's

TYPE_CHECKING = False  # of `typing`, which takes time to import
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any
else:
    ModuleSpec = type(sys.__spec__)


class MemoryImporter:
    """An import finder and loader for modules received over the connection; tracebacks can show their source.

    Args:
        magic: the magic number of the interpreter that compiled the code.
        modules: name -> (source, code) of the modules that the agent's greeting needs; a package is listed under the
            name of its file, `paddle_node.agent.link.__init__`.
    """

    def __init__(self, magic: bytes, modules: "dict[str, tuple[bytes, bytes]]") -> None:
        bytecode = sys.modules.get("_frozen_importlib_external")
        self.magic = getattr(bytecode, "MAGIC_NUMBER", b"")
        self._code_fits = self.magic == magic
        self._modules = modules
        self._parts: "dict[str, tuple[memoryview, int]]" = {}

    def add(self, rest: memoryview) -> None:
        """Add all other modules as packed parts; an import unpacks the part that has its module.

        Args:
            rest: the names of each part's modules, its packed size and its unpacked size, followed by the parts.
        """
        index = marshal.loads(rest)  # noqa: S302 - it comes with the command that runs us
        at = len(rest) - sum(packed for _, packed, _ in index)
        for names, packed, unpacked in index:
            self._parts.update(dict.fromkeys(names, (rest[at : at + packed], unpacked)))
            at += packed

    def everything(self) -> "dict[str, tuple[bytes, bytes]]":
        """Return the source and code of all modules by name, unpacked."""
        for name in self._parts:
            self._unpack(name)
        return self._modules

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Find a received module, as `importlib.abc.MetaPathFinder.find_spec` does; None for any other name."""
        if fullname != "paddle_node" and not fullname.startswith("paddle_node."):
            return None
        name = self._sent_as(fullname)
        if not name:
            return None
        loader: "Any" = self  # not derived from importlib.abc.Loader, which takes time to import
        return ModuleSpec(fullname, loader, origin="<sent>", is_package=name != fullname)

    def create_module(self, spec: object) -> None:
        """Return None, so that the import system creates the module (`importlib.abc.Loader`)."""

    def exec_module(self, module: "ModuleType") -> None:
        """Execute a received module's code in its namespace (`importlib.abc.Loader`)."""
        name = self._sent_as(module.__name__)
        source, code = self._modules[name]
        if code and self._code_fits:
            body = marshal.loads(code) if isinstance(code, bytes) else code  # noqa: S302 - as above
        else:
            body = compile(source, name.replace(".", "/") + ".py", "exec", dont_inherit=True)
        exec(body, vars(module))  # noqa: S102 - how a module is imported

    def get_source(self, fullname: str) -> str:
        """Return a module's source as text, which tracebacks print (`importlib.abc.InspectLoader`)."""
        return self._modules[self._sent_as(fullname)][0].decode()

    def _sent_as(self, fullname: str) -> str:
        for name in (fullname, fullname + ".__init__"):
            if name in self._modules or name in self._parts:
                self._unpack(name)
                return name
        return ""

    def _unpack(self, name: str) -> None:
        if name not in self._modules:
            packed, size = self._parts[name]
            self._modules.update(marshal.loads(zlib.decompress(packed, RAW, size)))  # noqa: S302 - as above


def boot(magic: bytes, first: "dict[str, tuple[bytes, bytes]]", nonce: str) -> None:
    """Import the agent from memory and run it until the launcher releases it.

    If `paddle_node.agent.reconnect` was also sent, an agent is already running on this node and takes over this
    connection.
    """
    gc.disable()  # until the agent proper has imported everything: imports create no garbage
    importer = MemoryImporter(magic, first)
    sys.meta_path.insert(0, importer)
    try:
        if "paddle_node.agent.reconnect" in first:
            from paddle_node.agent.reconnect import reconnect

            code = reconnect(nonce, 0, 1)
        else:
            code = _serve(magic, nonce, importer)
    except Exception:  # noqa: BLE001 - the last resort of a process: the launcher shows what is on stderr
        import traceback

        traceback.print_exc()
        code = START_FAILED
    _leave(code)


def stay(magic: bytes, modules: "dict[str, tuple[bytes, bytes]]", settings: "dict[str, Any]") -> None:
    """Run a resident agent, which `paddle_node.agent.offer` starts after a job has ended, until its time is up."""
    gc.disable()
    sys.meta_path.insert(0, MemoryImporter(magic, modules))
    try:
        from paddle_node.agent.resident import wait

        wait(settings)
    finally:
        _leave(0)  # its output has no reader


def _leave(code: int) -> None:
    """Exit without the interpreter's normal shutdown, which takes half as long as its start."""
    import os  # loaded with the greeting

    try:  # noqa: SIM105 - contextlib takes time to import
        sys.stderr.flush()
    except OSError:
        pass  # the login that started it all has ended
    os._exit(code)


def _serve(magic: bytes, nonce: str, importer: MemoryImporter) -> int:
    from paddle_node.linux import proc

    if not proc.stat("self"):
        sys.stderr.write(
            "/proc is not mounted, but the agent needs it to find processes: mount -t proc proc /proc\n"
        )
        return START_FAILED
    from paddle_node.agent.greeting import greet

    received = greet(nonce, importer.magic.hex(), importer.add, 0, 1)
    if received is None:
        return 0
    from paddle_node.agent.guard import STAYS, guard

    if b'"resident":{' not in received:
        return guard(received)
    from paddle_node.agent.offer import Offer

    offer = Offer(received)
    code = guard(offer.received, offer.listener)
    if code != STAYS:
        return code
    offer.begin(magic, importer.everything())  # which may hold the code of another Python
    return 0
