# SPDX-License-Identifier: MIT
"""One case of one problem in one worker: slots of fresh inputs, and checked calls (``chain.rounds`` times them).

The judge's side only. Every call gets inputs that never existed before, outputs are poisoned before it, and what it
leaves is verified before its time counts. On an emulated device ``modelled_run`` runs what a call launched again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch

from scoring.ipc import arena, requests, wire
from scoring.ipc.chain_library import can_mix
from scoring.ipc.emulator import entries, explain
from scoring.ipc.template import UnsupportedData, describe_data
from scoring.judge import layout, problem_files
from scoring.judge.check import Verdict, verify
from scoring.judge.contest import Contest
from scoring.judge.replay import RecordFile
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerFailure, WorkerProcess
from scoring.problem import ProblemError
from scoring.record import Case, Status

if TYPE_CHECKING:
    from scoring.judge.job import Contestant, Job, Limits
    from scoring.problem import Problem

WORKSPACE_GUARD = 4096
SAID = 2000                  # characters of what an emulated runtime says of a call


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
        first_call_seconds: float | None = None, parameters: Sequence[tuple[str, str]] = (),
        limits: Limits | None = None,
    ):
        """``parameters`` are those of the C prototype where others than the contestant are called by it."""
        self.problem, self.case, self.worker, self.contestant = problem, case, worker, contestant
        self.seeds, self.torch_device, self.fp8, self.call_seconds = seeds, torch_device, fp8, call_seconds
        self.first_call_seconds = first_call_seconds or call_seconds      # it may compile, and try variants
        self.slots: list[Slot] = []
        self.claim = float("nan")    # seconds that the newest single call took, by the worker's clock
        self.findings: tuple[dict[str, Any], ...] = ()      # of the newest call, on an emulated device
        self.counters: tuple[dict[str, Any], ...] = ()
        self.seed = 0                # of the newest inputs, also when the slots are gone; 0 before the first
        self._arenas: list[arena.Arena] = []
        self.contest = None if problem.native else Contest(problem, case, torch_device, limits)
        self._noise = seeds.noise()
        self._workspace: arena.Arena | None = None
        self._workspace_bytes = 0
        self._examined = False       # whether what the problem's files make of the case has been checked
        self._parameters = contestant.parameters or tuple(parameters)
        if self._parameters:
            self._workspace_bytes = int(problem.bound("workspace_bytes", case.params))

    @classmethod
    def of(cls, job: Job, case: Case, worker: WorkerProcess, seeds: SeedSource) -> Self:
        """A case of ``job``, which has a contestant."""
        assert job.contestant is not None
        return cls(
            job.problem, case, worker, job.contestant, seeds, job.torch_device, job.target.fp8,
            job.limits.call_seconds, job.limits.first_call_seconds,
            next((r.contestant.parameters for r in job.rivals if r.contestant and r.contestant.parameters), ()),
            job.limits,
        )

    def __enter__(self) -> Self:
        if self._parameters:
            try:
                self._workspace = self._allocate(self._workspace_bytes + WORKSPACE_GUARD)
                self._workspace.block.fill_(0xFF)
                self.share(self._workspace, requests.ShareWorkspace)
            except BaseException:
                self._release()
                raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            if self.worker.alive:
                self.worker.request(requests.DropSlots(), self.call_seconds)
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
            seconds = self.call_seconds if index else self.first_call_seconds
            verdict = self.call_once(slot, self.contestant, seconds, nan=index % 2 == 0)
            best = min(best, self.claim)
            if not verdict.passed:
                break
        return verdict, best

    def call_once(
        self, slot: Slot, contestant: Contestant, seconds: float, nan: bool = True, record: RecordFile | None = None,
    ) -> Verdict:
        """One call of ``contestant`` on the inputs that are in the slot, within ``seconds``, verified.

        On an emulated device its launches go into ``record``.
        ``claim``, ``findings`` and ``counters`` are of this call then. Raises ``WorkerFailure``.
        """
        slot.memory.poison(nan)
        self.sync()
        call = requests.Call(contestant.name, slot.name, "beside" if record is not None else "")
        fds = [record.fd] if record is not None else []
        try:
            reply = self.worker.request(call, seconds, fds)
        except WorkerFailure as failure:
            if self.contest is None or not self.contest.learn(slot.memory.layout, failure):
                raise
            self._place(slot, *self._plan(slot.data))
            slot.memory.fill(slot.memory.private)
            slot.memory.poison(nan)
            self.sync()
            reply = self.worker.request(call, seconds, fds)
        self.claim = max(claimed(reply), 1e-7)
        verdict = self.verify_slot(slot, contestant)
        if verdict.passed and self.contest is not None and (note := self.contest.note(slot.memory.layout.kind)):
            verdict = replace(verdict, message="; ".join(filter(None, [verdict.message, note])))
        self.findings, self.counters = (entries(reply, name) for name in ("findings", "counters"))
        if not verdict.passed and isinstance(reply.get("said"), str) and reply["said"]:      # of a failed launch
            verdict = replace(verdict, message=f"{reply['said'][:SAID]}\n{verdict.message}")
        if self.findings:        # right numbers, too, can be luck
            status = Status.RUNTIME_ERROR if verdict.passed else verdict.status
            numbers = "" if verdict.passed else f"\n{verdict.message}"
            verdict = Verdict(status, explain(self.findings) + numbers, verdict.wrong)
        return verdict

    def add_slot(self) -> None:
        """One more slot, with inputs of its own, known to judge and worker."""
        seed, data, plan, tensors = self._fresh()
        block = self._allocate(plan.nbytes)
        memory = layout.SlotMemory(block, plan, self._noise)
        memory.fill(tensors)
        slot = Slot(f"slot{len(self.slots)}", memory, data, seed)
        self.slots.append(slot)
        self.share(block, partial(plan.request, slot.name))

    def add_blank_slot(self) -> None:
        """One more slot laid out like the first, with noise in it: for a contestant that reads nothing."""
        plan = self.slots[0].memory.layout
        block = self._allocate(plan.nbytes)
        slot = Slot(f"slot{len(self.slots)}", layout.SlotMemory(block, plan, self._noise))
        self.slots.append(slot)
        self.share(block, partial(plan.request, slot.name))

    def _fresh(self) -> tuple[int, Any, layout.SlotLayout, dict[str, torch.Tensor]]:
        """A seed, the data it makes, and how they lie in a slot."""
        self.seed = seed = self.seeds.next(self.problem.seed_bits)
        if self.contest is not None:
            data = self.contest.generate(seed, self.torch_device, self.fp8)
        else:
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
            self._place(slot, plan, tensors)
        slot.memory.fill(tensors, seal)
        return changed

    def _place(self, slot: Slot, plan: layout.SlotLayout, tensors: dict[str, torch.Tensor]) -> None:
        """Lay a slot out anew, in its own memory where that is enough, and tell the worker."""
        old = slot.memory.arena
        grown = plan.nbytes > old.block.numel()
        block = self._allocate(plan.nbytes) if grown else old
        slot.memory = layout.SlotMemory(block, plan, self._noise)
        slot.memory.private = tensors
        if grown:
            self.share(block, partial(plan.request, slot.name))
            self._arenas.remove(old)
            old.close()
        else:
            self.ask(plan.request(slot.name))

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
            if expectations is not None and not self._examined and self.problem.native:
                problem_files.check_expectations(self.problem, self.case.params, expectations)
            self._examined = True
            if again and self._room_for(expectations):
                slot.expected = expectations
        with self.contest.checking(slot.memory.layout) if self.contest is not None else contextlib.nullcontext():
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
        size: int = sum(part.nbytes for each in (*kept, *(expectations or ()))
                        for part in (each.values, each.bound, each.width) if part is not None)
        return size <= self._expected_bytes()

    def _expected_bytes(self) -> int:
        if self.torch_device.startswith("cuda"):
            return int(torch.cuda.get_device_properties(self.torch_device).total_memory) // 20
        return 1 << 29

    def _plan(self, data: Any) -> tuple[layout.SlotLayout, dict[str, torch.Tensor]]:
        """Placement of ``data`` and of the outputs it calls for."""
        if self.contest is not None:
            return self.contest.plan(data)
        if not self._examined:
            problem_files.check_data(self.problem, self.case.params, data)
        outputs = self.problem.bound("outputs", self.case.params)
        positions = {position: name for name, position in self.problem.binding.DATA_OUTPUTS.items()}
        try:
            template, tensors = describe_data(data, positions)
        except UnsupportedData as error:
            raise problem_files.unsupported(self.problem, error) from error
        values = self.problem.bound("arguments", self.case.params, data)
        arguments = self._arguments(values, tensors, outputs) if self._parameters else []
        updated = self._updated(values, tensors)
        return layout.lay_out(
            tensors, outputs, template, arguments, self._redrawn(values, tensors), updated), tensors

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
        for parameter, kind in self._parameters:
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

    def share(self, block: arena.Arena, request: Callable[[Mapping[str, Any]], requests.Request]) -> None:
        """Hand memory of ours over: ``request`` makes the request of what exports it. Raises ``WorkerFailure``."""
        self.ask(request(block.export), [block.fd] if block.fd is not None else [])

    def ask(self, request: requests.Request, fds: Sequence[int] = ()) -> dict[str, Any]:
        """Raises ``WorkerFailure``."""
        seconds = self.first_call_seconds if request.preparing else self.call_seconds
        return self.worker.request(request, seconds, fds)

    def sync(self) -> None:
        if self.torch_device.startswith("cuda"):
            torch.cuda.synchronize()


def claimed(reply: Mapping[str, Any]) -> float:
    """The claimed seconds of a reply; NaN, which nothing accepts, if there is no number."""
    try:
        return wire.field(dict(reply), "seconds", float)
    except wire.WireError:           # absent, no number, or one that no float can hold
        return float("nan")
