# SPDX-License-Identifier: MIT
"""One case of one problem in one worker: slots of fresh inputs, checked calls, and timed rounds.

The judge's side only. Every call gets inputs that never existed before, outputs are poisoned before it, and what it
leaves is verified before its time counts.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from scoring import arena, emulation, layout, timing, wire
from scoring.check import Verdict, verify
from scoring.model import Case, Stats, Status
from scoring.session import WorkerFailure, WorkerProcess

if TYPE_CHECKING:
    from scoring.problem import Problem

WORKSPACE_GUARD = 4096
# Seconds a request may take besides the claimed interval: round trip, wake-up, launch, and the GPU changing from the
# judge's context to the worker's. Measured on an H200: 0.5 to 1 ms; 0.4 ms overruled nearly all rounds.
CALL_SLACK = 2e-3
COPY_BANDWIDTH = 2e9            # bytes/s, a lower bound of how fast a submission's outputs are put in place


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


@dataclass(frozen=True)
class Timed:
    """Outcome of timing: statistics per contestant that stayed correct, and the circumstances."""

    verdict: Verdict
    seed: int
    stats: Mapping[str, Stats] = field(default_factory=dict)
    protocol: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)


class CaseRun:
    """A case prepared in a worker. Use as a context manager: leaving it frees all its memory on both sides."""

    def __init__(
        self, problem: Problem, case: Case, worker: WorkerProcess, contestant: Contestant, seeds: SeedSource,
        torch_device: str, fp8: str, call_seconds: float,
    ):
        self.problem, self.case, self.worker, self.contestant = problem, case, worker, contestant
        self.seeds, self.torch_device, self.fp8, self.call_seconds = seeds, torch_device, fp8, call_seconds
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
                self._send("workspace", self._workspace)
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
            self._refresh(slot)
            slot.memory.poison(nan=index % 2 == 0)
            self._sync()
            reply = self._ask("call", contestant=self.contestant.name, slot=slot.name)
            best = min(best, max(_seconds(reply), 1e-7))
            verdict = self._verify(slot, self.contestant)
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
        self._send("slot", block, slot=slot.name, **plan.message())

    def time(
        self, peers: Sequence[Contestant], slots: int, options: timing.TimingOptions,
        sample_environment: Callable[[], Mapping[str, Any]],
    ) -> Timed:
        """Timed rounds over ``slots`` slots, contestants taking turns; every output of every round is verified.

        Raises ``WorkerFailure`` for the contestant itself; a peer that fails is left out and named in the environment.
        """
        while len(self.slots) < slots:
            self.add_slot()
        names = [slot.name for slot in self.slots]
        runners, notes = {self.contestant.name: self.contestant}, {}
        request, protocol = self._protocol(names, options)
        for peer in peers:
            try:
                self._prepare_peer(peer, names, request)
                runners[peer.name] = peer
            except WorkerFailure as failure:
                if not failure.alive:
                    raise
                notes[peer.name] = str(failure).splitlines()[-1]
        samples: dict[str, list[float]] = {name: [] for name in runners}
        readings: list[Mapping[str, Any]] = []
        overruled, started, turn = 0, time.monotonic(), 0
        while True:
            changed = [self._refresh(slot) for slot in self.slots]
            order = list(runners)
            if request == "replay" and any(changed):      # a graph repeats the plain values it was captured with
                for name in order:
                    self._ask("capture", contestant=name, slots=list(names))
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                verdict, seed, seconds, trusted = self._round(runners[name], names, request, nan=turn % 2 == 0)
                if verdict.passed and seconds is not None:
                    samples[name].append(seconds / len(names))
                    overruled += not trusted
                elif name == self.contestant.name:
                    return Timed(verdict, seed)
                else:
                    notes[name] = verdict.message
                    del runners[name], samples[name]
            readings.append(sample_environment())
            turn += 1
            if timing.finished(samples[self.contestant.name], time.monotonic() - started, options):
                break
        environment = {
            "slots": len(names), "rounds": turn, "request": request, "judge_clock_rounds": overruled,
            **_summary(readings), **({"peer_notes": notes} if notes else {}),
        }
        stats = {name: timing.statistics(values) for name, values in samples.items() if values}
        return Timed(Verdict(Status.PASSED), self.seed, stats, protocol, environment)

    def _round(
        self, contestant: Contestant, names: Sequence[str], request: str, nan: bool
    ) -> tuple[Verdict, int, float | None, bool]:
        for slot in self.slots:
            slot.memory.poison(nan)
        self._sync()
        begin = time.perf_counter()
        reply = self.worker.request(request, 2 * self.call_seconds, contestant=contestant.name, slots=list(names))
        wall = time.perf_counter() - begin
        outputs = sum(spec.nbytes for spec in self.slots[0].memory.layout.outputs) * len(self.slots)
        slack = CALL_SLACK + (0.0 if contestant.parameters else outputs / COPY_BANDWIDTH)
        claim = _seconds(reply)
        seconds = timing.accept(claim, wall, slack)
        for slot in self.slots:
            verdict = self._verify(slot, contestant)
            if not verdict.passed:
                return verdict, slot.seed, None, True
        if seconds is None:
            message = f"claimed {claim * 1e6:.6g} µs for an interval inside {wall * 1e6:.6g} µs of the judge's clock"
            return Verdict(Status.TIMING_MISMATCH, message), self.slots[0].seed, None, True
        return Verdict(Status.PASSED), 0, seconds, seconds == claim

    def _protocol(self, names: Sequence[str], options: timing.TimingOptions) -> tuple[str, str]:
        """(request, protocol): a captured graph; plain launches if those are asked for or a capture is refused."""
        if not self.torch_device.startswith("cuda"):
            return "sweep", timing.WALL
        if options.protocol == timing.EVENT:
            return "sweep", timing.EVENT
        try:
            self._ask("capture", contestant=self.contestant.name, slots=list(names))
            return "replay", timing.GRAPH
        except WorkerFailure as failure:
            if not failure.alive:
                raise
            return "sweep", timing.EVENT

    def _prepare_peer(self, peer: Contestant, names: Sequence[str], request: str) -> None:
        self._ask("load", contestant=peer.name, **peer.load)
        self._ask("call", contestant=peer.name, slot="slot0")
        if request == "replay":
            self._ask("capture", contestant=peer.name, slots=list(names))

    def _fresh(self) -> tuple[int, Any, layout.Plan, dict[str, torch.Tensor]]:
        """A seed, the data it makes, and how they lie in a slot."""
        self.seed = seed = self.seeds.next()
        data = self.problem.generate(self.case, seed, self.torch_device, self.fp8)
        return seed, data, *self._plan(data)

    def _refresh(self, slot: Slot) -> bool:
        """Fresh inputs in ``slot``; whether shapes or plain values differ from before, so that the worker was told."""
        slot.seed, slot.data, plan, tensors = self._fresh()
        changed = plan != slot.memory.layout
        if changed:
            old = slot.memory.arena
            grown = plan.nbytes > old.block.numel()
            block = self._allocate(plan.nbytes) if grown else old
            slot.memory = layout.SlotMemory(block, plan, self._generator)
            if grown:
                self._send("slot", block, slot=slot.name, **plan.message())
                self._arenas.remove(old)
                old.close()
            else:
                self._ask("slot", slot=slot.name, **plan.message())
        slot.memory.fill(tensors)
        return changed

    def _verify(self, slot: Slot, contestant: Contestant) -> Verdict:
        expectations = self.problem.expectations(slot.data)
        verdict = verify(self.problem, slot.memory, slot.data, expectations, contestant.partial)
        if verdict.passed and self._workspace is not None:
            guard = self._workspace.block[self._workspace_bytes :]
            if not bool((guard == 0xFF).all()):
                return Verdict(Status.MUTATED_INPUT, "wrote beyond the end of its workspace")
        return verdict

    def _plan(self, data: Any) -> tuple[layout.Plan, dict[str, torch.Tensor]]:
        """Placement of ``data`` and of the outputs it calls for."""
        if self.problem.native:
            binding = self.problem.binding
            outputs = binding.outputs(self.case.params)
            positions = {position: name for name, position in binding.DATA_OUTPUTS.items()}
            template, tensors = layout.describe(data, positions)
            arguments: list[tuple[str, Any]] = []
            if self._bound:
                arguments = self._arguments(binding.arguments(self.case.params, data), tensors, outputs)
            return layout.plan(tensors, outputs, template, arguments), tensors
        template, tensors = layout.describe(data)
        return layout.plan(tensors, self._foreign_outputs(data, template, tensors), template), tensors

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
        else:
            block = arena.create_host(nbytes)
        self._arenas.append(block)
        return block

    def _send(self, do: str, block: arena.Arena, **fields: Any) -> None:
        fds = [block.fd] if block.fd is not None else []
        self._ask(do, fds, arena=block.export, **fields)

    def _ask(self, do: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        return self.worker.request(do, self.call_seconds, fds, **fields)

    def _sync(self) -> None:
        if self.torch_device.startswith("cuda"):
            torch.cuda.synchronize()


def _seconds(reply: Mapping[str, Any]) -> float:
    """The claimed seconds of a reply; NaN, which nothing accepts, if there is no number."""
    try:
        return wire.field(dict(reply), "seconds", float)
    except wire.WireError:           # absent, no number, or one that no float can hold
        return float("nan")


def _summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Range of every numeric reading, union of every list; the circumstances of a measurement in a few figures."""
    summary: dict[str, Any] = {}
    for key in {key for reading in readings for key in reading}:
        values = [reading[key] for reading in readings if key in reading]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            ordered = sorted(values)
            summary[key] = {"min": ordered[0], "median": ordered[len(ordered) // 2], "max": ordered[-1]}
        elif all(isinstance(value, list | tuple) for value in values):
            summary[key] = sorted({item for value in values for item in value})
        else:
            summary[key] = values[-1]
    return summary
