# SPDX-License-Identifier: MIT
"""Everything the judge may ask of a worker: one class per request, and how it crosses the socket.

A request is a JSON object ``{"do": NAME, "nonce": …, **fields}``, where NAME is the class's name in snake case. The
worker answers ``{"ok": true, "nonce": …, **reply}``; replies are claims, so the judge reads each value with
``wire.field``. Some requests carry one file descriptor, the memory of an arena.

Imports the standard library only, as both processes use it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class UnknownRequest(Exception):
    """A message that is no request: an unknown name, or fields that do not fit."""


@dataclass(frozen=True)
class Request:
    """Base of all requests. ``preparing``: it may take as long as a first call (``limits.first_call_seconds``)."""

    preparing: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """``PrepareChain`` is ``prepare_chain``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


# What a worker can load -----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class NativeSpec:
    """A C symbol of a shared library. ``preload``: libraries to load first, their symbols visible to all.

    ``parameters``: (name, "pointer" | "int" | "float" | "size_t") in the order of the C prototype.
    """

    library: str
    symbol: str
    parameters: tuple[tuple[str, str], ...] = ()
    preload: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """What the worker must be able to read."""
        return (self.library, *self.preload)


@dataclass(frozen=True)
class Extensions:
    """How a worker does ``load_inline`` for a GPU that is not here: ``backends._extensions.Extensions``, whose fields
    these are. ``shown``: what compilers call the submission."""

    shown: str
    language: str
    label: str
    device: tuple[tuple[str, ...], ...]
    compiled: str
    host: tuple[str, ...]
    link: str
    include: tuple[str, ...]
    reads: tuple[str, ...]
    version: str
    gpu: Mapping[str, Any]


@dataclass(frozen=True)
class PythonSpec:
    """``custom_kernel(data)`` of a Python file at ``path``, imported as ``module`` with ``sys_path`` searched first.

    ``partial`` names the outputs that a peer computes; all if empty. ``entries``: functions to call in place of
    ``custom_kernel``, each with the positions of ``data`` that it takes. ``stand_in``: ``cuda`` means the CPU
    (``ipc.stand_in``). ``gpus``: of a distributed task whose ranks have a GPU each; every one of them imports the file.
    ``extensions``: of a GPU that is emulated, or that code is only compiled for.
    """

    path: str
    module: str = "submission"
    sys_path: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()
    stand_in: bool = False
    gpus: bool = False
    extensions: Extensions | None = None

    def __post_init__(self) -> None:
        if isinstance(self.extensions, Mapping):          # as it comes from the wire
            object.__setattr__(self, "extensions", Extensions(**self.extensions))

    @property
    def files(self) -> tuple[str, ...]:
        """What the worker must be able to read."""
        return (self.path, *self.sys_path, *(self.extensions.reads if self.extensions else ()))


LoadSpec = NativeSpec | PythonSpec


# Setting up a worker --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Hello(Request):
    """Choose the device (torch's number, None for none). Reply: torch, python, pid."""

    device: int | None = None


@dataclass(frozen=True)
class LoadEmulator(Request):
    """Load the emulated device's library, before any kernel that needs it. ``modelled``: it has a model of time."""

    library: str
    options: Mapping[str, str]
    modelled: bool = True

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the worker's environment: the library is loaded before torch's if it is to know torch's tensors."""
        return {"LD_PRELOAD": self.library} if self.options.get("tensors") == "1" else {}

    @property
    def files(self) -> tuple[str, ...]:
        """What the worker must be able to read."""
        return (self.library,)


@dataclass(frozen=True)
class LoadChain(Request):
    """Load the commit chain's library, before any code under test is in the process."""

    library: str
    preload: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """What the worker must be able to read."""
        return (self.library, *self.preload)


@dataclass(frozen=True)
class Load(Request):
    """Load code under test as ``contestant``."""

    preparing = True
    contestant: str
    spec: LoadSpec


@dataclass(frozen=True)
class Built(Request):
    """What ``load_inline`` has compiled so far. Reply: built, a list of objects with name, failed, log and seconds."""

    contestant: str


@dataclass(frozen=True)
class LoadNullKernel(Request):
    """A contestant of the judge's, to measure what a chain costs by itself; ``flops`` keep the GPU's clocks up."""

    contestant: str
    copies: bool
    flops: float


# Memory ---------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class ShareWorkspace(Request):
    """Scratch memory that all slots share (one descriptor, or a device handle in ``arena``)."""

    arena: Mapping[str, Any]


@dataclass(frozen=True)
class ShareSlot(Request):
    """A new slot, or a known one with other shapes or plain values; without ``arena`` it stays in its old memory.

    ``tensors``: where each tensor lies (``judge.layout.SlotLayout.request``). ``data``: a template
    (``ipc.template``). ``sealed``: the bytes where all inputs begin and end. ``form``: how the outputs are nested in
    what a call returns (``ipc.template.Answer``), None where only their order counts. ``ranks``: of a distributed
    task, whose data and outputs are tuples with one item per rank; 0 of any other.
    """

    slot: str
    tensors: tuple[Mapping[str, Any], ...]
    outputs: tuple[str, ...]
    arguments: tuple[tuple[str, Any], ...]
    data: Any
    sealed: tuple[int, int]
    arena: Mapping[str, Any] | None = None
    form: Any = None
    ranks: int = 0


@dataclass(frozen=True)
class ShareDoorbells(Request):
    """Host memory at which the device waits for the keys of a chain."""

    arena: Mapping[str, Any]


@dataclass(frozen=True)
class DropSlots(Request):
    """Forget slots, graphs and results, so that the judge can free the memory."""


# Calls ----------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Call(Request):
    """One call. Reply: seconds; on an emulated device also findings and counters.

    ``record`` is for an emulated device: what is launched is written to the file that comes with the request
    (``worker.replay`` reads it), besides being run ("beside") or in place of that ("instead").
    """

    contestant: str
    slot: str
    record: str = ""


@dataclass(frozen=True)
class RunRecord(Request):
    """Run recorded launches again (``worker.replay``). Reply: findings, counters; where it could not be done also
    ``refused``, the reason, and ``failed``, whether a kernel failed.

    Three files come with it: the record, the slot's memory and the workspace. ``tensors``: name, offset and bytes of
    each in the slot.
    """

    OCCUPIED: ClassVar[str] = "something else lies at an address of the record"

    slot_bytes: int
    workspace_bytes: int
    tensors: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Capture(Request):
    """Record one call per slot into a graph."""

    preparing = True
    contestant: str
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Replay(Request):
    """Replay the captured graph once. Reply: seconds. ``slots`` are those of the capture."""

    contestant: str
    slots: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep(Request):
    """One call per slot, back to back. Reply: seconds of all calls."""

    contestant: str
    slots: tuple[str, ...]


# The commit chain -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class PrepareChain(Request):
    """Get ready for a chain over ``slots``. Reply: captured.

    ``fresh``: the tensors that every link draws anew. ``doorbells``: the chain waits at them for its keys.
    ``unsealed``: nobody has sealed the inputs (calibration).
    """

    preparing = True
    contestant: str
    slots: tuple[str, ...]
    fresh: tuple[str, ...] = ()
    doorbells: bool = False
    unsealed: bool = False


@dataclass(frozen=True)
class LaunchChain(Request):
    """Start the prepared chain, which waits at the doorbells; the reply comes when it is over."""


@dataclass(frozen=True)
class UnsealChain(Request):
    """Make the inputs of the prepared chain readable. ``secret`` is hexadecimal."""

    secret: str


@dataclass(frozen=True)
class RunChain(Request):
    """Run the links of the prepared chain from ``secret`` on; with ``seal``, make its inputs readable first.

    Reply: digest; without a GPU also seconds.
    """

    secret: str
    seal: str | None = None


REQUESTS: Mapping[str, type[Request]] = {kind.name(): kind for kind in Request.__subclasses__()}
_SPECS: Mapping[str, type[NativeSpec | PythonSpec]] = {"native": NativeSpec, "python": PythonSpec}


def encode(request: Request) -> dict[str, Any]:
    """The JSON object of a request, without its nonce; fields that are None are left out."""
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    if isinstance(request, Load):
        kind = next(name for name, spec in _SPECS.items() if isinstance(request.spec, spec))
        fields["spec"] = {"kind": kind, **dataclasses.asdict(request.spec)}
    return {"do": request.name(), **{name: value for name, value in fields.items() if value is not None}}


def decode(message: Mapping[str, Any]) -> Request:
    """The request that a message is. Raises ``UnknownRequest``."""
    kind = REQUESTS.get(str(message.get("do")))
    if kind is None:
        raise UnknownRequest(f"unknown request {message.get('do')!r}")
    fields = {name: value for name, value in message.items() if name not in ("do", "nonce")}
    try:
        if kind is Load:
            spec = dict(fields["spec"])
            fields["spec"] = _SPECS[spec.pop("kind")](**spec)
        return kind(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownRequest(f"request {kind.name()!r} does not fit: {error}") from error
