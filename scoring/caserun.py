# SPDX-License-Identifier: MIT
"""One case of one problem in one worker: slots of fresh inputs, and checked calls (``chain.rounds`` times them).

The judge's side only. Every call gets inputs that never existed before, outputs are poisoned before it, and what it
leaves is verified before its time counts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from scoring import arena, emulation, layout, wire
from scoring.chain.library import can_mix
from scoring.check import Verdict, verify
from scoring.model import Case, Status
from scoring.problem import ProblemError
from scoring.session import WorkerFailure, WorkerProcess

if TYPE_CHECKING:
    from scoring.problem import Problem

WORKSPACE_GUARD = 4096
PREPARING = ("load", "capture", "arm")      # requests that may take as long as a first call


@dataclass(frozen=True)
class Contestant:
    """What a worker can load and call. ``load`` is the ``load`` request; a native one needs the C prototype's
    ``parameters`` to bind its arguments; ``partial`` names the outputs a peer promises (all if empty)."""

    name: str
    load: Mapping[str, Any]
    parameters: tuple[tuple[str, str], ...] = ()     # (name, "pointer" | "int" | "float" | "size_t")
    partial: tuple[str, ...] = ()


class SeedSource:
    """Seeds that never repeat, derived by a hash from a base and a label, so that the two reproduce all of them."""

    def __init__(self, base: int, label: str = ""):
        self.base = base
        self.label = label
        self._count = 0
        self._labels: Counter[str] = Counter()

    def of(self, case: Case) -> SeedSource:
        """A source for one case: the same seeds whichever cases came before, others if the case occurs again."""
        label = f"{case.group}/{case.name}"
        self._labels[label] += 1
        return SeedSource(self.base, f"{label}#{self._labels[label]}")

    def next(self) -> int:
        """The next seed, below 2**31 so that every generator takes it."""
        self._count += 1
        digest = hashlib.blake2b(f"{self.base}/{self.label}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 33


@dataclass
class Slot:
    name: str
    memory: layout.SlotMemory
    data: Any = None
    seed: int = 0
    expected: Sequence[Any] | None = None        # of ``data``, while several contestants answer it


class CaseRun:
    """A case prepared in a worker. Use as a context manager: leaving it frees all its memory on both sides."""

    def __init__(
        self, problem: Problem, case: Case, worker: WorkerProcess, contestant: Contestant, seeds: SeedSource,
        torch_device: str, fp8: str, call_seconds: float,
        first_call_seconds: float | None = None,
    ):
        self.problem, self.case, self.worker, self.contestant = problem, case, worker, contestant
        self.seeds, self.torch_device, self.fp8, self.call_seconds = seeds, torch_device, fp8, call_seconds
        self.first_call_seconds = first_call_seconds or call_seconds      # it may compile, and try variants
        self.slots: list[Slot] = []
        self.findings: tuple[dict[str, Any], ...] = ()      # of the newest call, on an emulated device
        self.counters: tuple[dict[str, Any], ...] = ()
        self.seed = 0                # of the newest inputs, also when the slots are gone; 0 before the first
        self._arenas: list[arena.Arena] = []
        self._shapes: dict[str, Mapping[str, tuple[tuple[int, ...], str]]] = {}
        self._generator = torch.Generator(device=torch_device).manual_seed(seeds.next())
        self._workspace: arena.Arena | None = None
        self._workspace_bytes = 0
        self._bound = bool(contestant.parameters)
        if self._bound:
            self._workspace_bytes = int(problem.binding.workspace_bytes(case.params))

    def __enter__(self) -> CaseRun:
        if self._bound:
            try:
                self._workspace = self._allocate(self._workspace_bytes + WORKSPACE_GUARD)
                self._workspace.block.fill_(0xFF)
                self.share("workspace", self._workspace)
            except BaseException:
                self._release()
                raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            if self.worker.alive:
                self.worker.request("drop_slots", self.call_seconds)
        except WorkerFailure:
            self.worker.close()      # it keeps no memory of ours once it is gone
        finally:
            self._release()

    def _release(self) -> None:
        self._workspace = None
        self.slots.clear()
        for block in self._arenas:
            block.close()
        self._arenas.clear()

    @property
    def bytes_per_slot(self) -> int:
        return self.slots[0].memory.layout.nbytes

    def check(self, calls: int = 2) -> tuple[Verdict, float]:
        """``calls`` single calls on fresh inputs, each verified; the verdict and the shortest claimed seconds.

        Raises ``WorkerFailure``.
        """
        if not self.slots:
            self.add_slot()
        slot, best, verdict = self.slots[0], float("inf"), Verdict(Status.PASSED)
        for index in range(calls):
            self.refresh(slot)
            slot.memory.poison(nan=index % 2 == 0)
            self.sync()
            seconds = self.call_seconds if index else self.first_call_seconds
            reply = self.worker.request("call", seconds, contestant=self.contestant.name, slot=slot.name)
            best = min(best, max(claimed(reply), 1e-7))
            verdict = self.verify_slot(slot, self.contestant)
            self.findings, self.counters = (emulation.entries(reply, name) for name in ("findings", "counters"))
            if self.findings:        # right numbers, too, can be luck
                status = Status.RUNTIME_ERROR if verdict.passed else verdict.status
                numbers = "" if verdict.passed else f"\n{verdict.message}"
                verdict = Verdict(status, emulation.explain(self.findings) + numbers)
            if not verdict.passed:
                break
        return verdict, best

    def add_slot(self) -> None:
        """One more slot, with inputs of its own, known to judge and worker."""
        seed, data, plan, tensors = self._fresh()
        block = self._allocate(plan.nbytes)
        memory = layout.SlotMemory(block, plan, self._generator)
        memory.fill(tensors)
        slot = Slot(f"slot{len(self.slots)}", memory, data, seed)
        self.slots.append(slot)
        self.share("slot", block, slot=slot.name, **plan.message())

    def add_blank_slot(self) -> None:
        """One more slot laid out like the first, with noise in it: for a contestant that reads nothing."""
        plan = self.slots[0].memory.layout
        block = self._allocate(plan.nbytes)
        slot = Slot(f"slot{len(self.slots)}", layout.SlotMemory(block, plan, self._generator))
        self.slots.append(slot)
        self.share("slot", block, slot=slot.name, **plan.message())

    def _fresh(self) -> tuple[int, Any, layout.Plan, dict[str, torch.Tensor]]:
        """A seed, the data it makes, and how they lie in a slot."""
        self.seed = seed = self.seeds.next()
        data = self.problem.generate(self.case, seed, self.torch_device, self.fp8)
        return seed, data, *self._plan(data)

    def refresh(self, slot: Slot, seal: Callable[[torch.Tensor], None] | None = None) -> bool:
        """Fresh inputs in ``slot``; whether shapes or plain values differ from before, so that the worker was told.

        ``seal`` makes the bytes of all inputs unreadable before the worker can see them.
        """
        slot.seed, slot.data, plan, tensors = self._fresh()
        slot.expected = None
        changed = plan != slot.memory.layout
        if changed:
            old = slot.memory.arena
            grown = plan.nbytes > old.block.numel()
            block = self._allocate(plan.nbytes) if grown else old
            slot.memory = layout.SlotMemory(block, plan, self._generator)
            if grown:
                self.share("slot", block, slot=slot.name, **plan.message())
                self._arenas.remove(old)
                old.close()
            else:
                self.ask("slot", slot=slot.name, **plan.message())
        slot.memory.fill(tensors, seal)
        return changed

    def verify_slot(
        self, slot: Slot, contestant: Contestant, outputs: Sequence[torch.Tensor] | None = None, again: bool = False,
    ) -> Verdict:
        """Judge a slot's outputs (or the private copies of them, ``outputs``) and all that must be untouched.

        ``again``: others answer the same inputs. What is expected is then kept, as far as there is room, until the next
        ``refresh``; nobody else may have changed the inputs since the last one.
        """
        expectations = slot.expected if again else None
        if expectations is None:
            expectations = self.problem.expectations(slot.data)
            if again and self._room_for(expectations):
                slot.expected = expectations
        verdict = verify(
            self.problem, slot.memory, slot.data, expectations, contestant.partial, given=outputs,
            case=self.case.params)
        if verdict.passed and self._workspace is not None:
            guard = self._workspace.block[self._workspace_bytes :]
            if not bool((guard == 0xFF).all()):
                return Verdict(Status.MUTATED_INPUT, "wrote beyond the end of its workspace")
        return verdict

    def _room_for(self, expectations: Sequence[Any] | None) -> bool:
        """Whether one more slot's expectations may be kept: a twentieth of the memory holds all of them."""
        kept = [each for slot in self.slots for each in slot.expected or ()]
        size: int = sum(each.values.nbytes + each.bound.nbytes for each in (*kept, *(expectations or ())))
        return size <= self._expected_bytes()

    def _expected_bytes(self) -> int:
        if self.torch_device.startswith("cuda"):
            return int(torch.cuda.get_device_properties(self.torch_device).total_memory) // 20
        return 1 << 29

    def _plan(self, data: Any) -> tuple[layout.Plan, dict[str, torch.Tensor]]:
        """Placement of ``data`` and of the outputs it calls for."""
        if self.problem.native:
            binding = self.problem.binding
            outputs = binding.outputs(self.case.params)
            positions = {position: name for name, position in binding.DATA_OUTPUTS.items()}
            template, tensors = layout.describe(data, positions)
            values = binding.arguments(self.case.params, data)
            arguments = self._arguments(values, tensors, outputs) if self._bound else []
            updated = self._updated(values, tensors)
            return layout.plan(
                tensors, outputs, template, arguments, self._redrawn(values, tensors), updated), tensors
        template, tensors = layout.describe(data)
        return layout.plan(tensors, self._foreign_outputs(data, template, tensors), template), tensors

    def _redrawn(self, values: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
        """Names of the tensors that the binding calls ``FRESH``; raises ``ProblemError`` if one cannot be mixed."""
        names = {tensor.data_ptr(): name for name, tensor in tensors.items()}
        redrawn = []
        for parameter in getattr(self.problem.binding, "FRESH", ()):
            value = values.get(parameter)
            if not isinstance(value, torch.Tensor) or value.data_ptr() not in names or not can_mix(value):
                raise ProblemError(
                    f"{self.problem.path}/binding.py: FRESH names {parameter!r}, which is no dense tensor of"
                    " generate_input with elements of 1, 2 or 4 bytes")
            redrawn.append(names[value.data_ptr()])
        return tuple(redrawn)

    def _updated(self, values: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> list[layout.Update]:
        """What the binding's ``UPDATED`` lets a call rewrite; raises ``ProblemError`` for no tensor of the data."""
        names = {id(tensor): name for name, tensor in tensors.items()}
        updates = []
        for parameter, (part, output) in getattr(self.problem.binding, "UPDATED", lambda case: {})(
                self.case.params).items():
            if id(values.get(parameter)) not in names:
                raise ProblemError(
                    f"{self.problem.path}/binding.py: UPDATED names {parameter!r}, no tensor of generate_input")
            updates.append(layout.Update(names[id(values[parameter])], part, output))
        return updates

    def _arguments(
        self, values: Mapping[str, Any], tensors: dict[str, torch.Tensor], outputs: Mapping[str, Any]
    ) -> list[tuple[str, Any]]:
        """(kind, value) for every parameter of the C prototype, in its order."""
        names = {id(tensor): name for name, tensor in tensors.items()}
        arguments: list[tuple[str, Any]] = []
        for parameter, kind in self.contestant.parameters:
            if parameter in outputs:
                arguments.append(("tensor", parameter))
            elif parameter in ("queue", "workspace"):
                arguments.append((parameter, None))
            elif parameter == "workspace_bytes":
                arguments.append(("size_t", self._workspace_bytes))
            elif isinstance(value := values[parameter], torch.Tensor):
                name = names.get(id(value))
                if name is None:
                    name = parameter
                    tensors[name] = value
                arguments.append(("tensor", name))
            else:
                arguments.append((kind, repr(value) if isinstance(value, float) else value))   # JSON has no infinities
        return arguments

    def _foreign_outputs(
        self, data: Any, template: Any, tensors: Mapping[str, torch.Tensor]
    ) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shapes and dtypes of a foreign problem's outputs, learnt from its reference on a copy of the data.

        Once per kind of data: what has the same shapes and plain values has outputs of the same shapes.
        """
        kind = repr((template, [(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()]))
        if kind not in self._shapes:
            from scoring.contestants import build

            copy = build(template, {name: tensor.clone() for name, tensor in tensors.items()})
            result = self.problem.expected_output(copy)
            results = list(result) if isinstance(result, tuple | list) else [result]
            if not all(isinstance(item, torch.Tensor) for item in results):
                raise layout.UnsupportedData("ref_kernel returned something that is no tensor or tuple of tensors")
            self._shapes[kind] = {
                f"output{index}": (tuple(item.shape), str(item.dtype).removeprefix("torch."))
                for index, item in enumerate(results)
            }
        return self._shapes[kind]

    def _allocate(self, nbytes: int) -> arena.Arena:
        if self.torch_device.startswith("cuda"):
            block = arena.create_device(nbytes, torch.device(self.torch_device).index or 0)
            self._arenas.append(block)
            return block
        return self.share_host(nbytes)

    def share_host(self, nbytes: int) -> arena.Arena:
        """Host memory for as long as this case; ``share`` tells the worker."""
        block = arena.create_host(nbytes)
        self._arenas.append(block)
        return block

    def share(self, do: str, block: arena.Arena, **fields: Any) -> None:
        """Hand memory of ours over with a request. Raises ``WorkerFailure``."""
        fds = [block.fd] if block.fd is not None else []
        self.ask(do, fds, arena=block.export, **fields)

    def ask(self, do: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        seconds = self.first_call_seconds if do in PREPARING else self.call_seconds
        return self.worker.request(do, seconds, fds, **fields)

    def sync(self) -> None:
        if self.torch_device.startswith("cuda"):
            torch.cuda.synchronize()


def claimed(reply: Mapping[str, Any]) -> float:
    """The claimed seconds of a reply; NaN, which nothing accepts, if there is no number."""
    try:
        return wire.field(dict(reply), "seconds", float)
    except wire.WireError:           # absent, no number, or one that no float can hold
        return float("nan")
