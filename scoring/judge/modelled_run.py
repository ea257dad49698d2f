# SPDX-License-Identifier: MIT
"""A case on an emulated device whose time counts: what a call launched runs again on inputs that no worker has seen.

The judge makes these inputs, verifies the outputs and takes the counters; ``replay`` has the process that counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scoring.ipc import arena, requests
from scoring.ipc.emulator import explain
from scoring.judge import layout
from scoring.judge.case_run import CaseRun, Slot
from scoring.judge.check import Verdict
from scoring.judge.job import Contestant
from scoring.judge.replay import RecordFile, Replayer
from scoring.record import Status


class ModelledRun(CaseRun):
    """A case with a ``twin``: a slot in memory that no worker ever gets. None until the first replay, and where no
    inputs can be made that are laid out alike."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.twin: Slot | None = None
        self._twin_workspace: arena.Arena | None = None

    def _release(self) -> None:
        self._twin_workspace = self.twin = None
        super()._release()

    def replay(self, contestant: Contestant, replayer: Replayer) -> Verdict:
        """Have what a call of ``contestant`` launches run again on inputs that no worker has seen, and verify that.

        ``findings`` and ``counters`` are of the launches then, and the verdict is about them alone. A Python file's own
        call is verified before: if only that is right, the verdict says so and there are no counters.
        Raises ``WorkerFailure``.
        """
        runs_anyway = not contestant.parameters        # a Python file may look at what its kernels made
        if not self.slots:
            self.add_slot()
        slot = self.slots[0]
        if not runs_anyway:
            self._make_twin(slot)
        with RecordFile() as file:
            if runs_anyway:
                slot.memory.fill(slot.memory.private)
                verdict = self.call_once(slot, contestant, self.first_call_seconds, record=file)
                self.counters = ()
                if not verdict.passed:
                    return verdict
                self._make_twin(slot)
            else:
                self.worker.request(
                    requests.Call(contestant.name, slot.name, "instead"), self.first_call_seconds, [file.fd])
            record = file.read()
        twin = self.twin
        if twin is None:
            return replace(verdict, message="no modelled time: shapes or plain values of the inputs change with them")
        twin.memory.fill(twin.memory.private)
        twin.memory.poison(nan=False)
        if self._twin_workspace is not None:
            self._twin_workspace.block.fill_(0xFF)
        found = replayer.replay(
            record, twin.memory.arena, self._named(twin), self._twin_workspace, self._workspace_bytes)
        self.findings = found.findings
        again = Verdict(Status.RUNTIME_ERROR, found.refused) if found.refused else self.verify_slot(twin, contestant)
        if again.passed and found.findings:
            again = Verdict(Status.RUNTIME_ERROR, explain(found.findings))
        if again.passed:
            self.counters = found.counters
            return again if not runs_anyway else verdict
        if runs_anyway or (found.refused and not found.failed):
            why = "its launches alone, on other inputs, do not give what the call gave"
            self.findings = ()
            return Verdict(Status.PASSED, f"no modelled time: {found.refused or f'{why} ({again.message})'}")
        return again

    def _make_twin(self, slot: Slot) -> None:
        """A slot laid out like ``slot``, with inputs of its own, in memory that no worker ever gets."""
        if self.twin is not None:
            return
        for _try in range(32):
            seed, data, plan, tensors = self._fresh()
            if plan == slot.memory.layout:
                break
            if self._parameters:              # no kernel looks at the inputs while it is recorded: noise will do
                self._place(slot, plan, tensors)
                break
        else:
            return
        memory = layout.SlotMemory(self._allocate(plan.nbytes), plan, self._noise)
        memory.private = tensors
        self.twin = Slot("twin", memory, data, seed)
        if self._workspace is not None:
            self._twin_workspace = self._allocate(self._workspace_bytes)

    def _named(self, slot: Slot) -> list[tuple[str, int, int]]:
        """Name, offset and bytes of a slot's tensors, under the names of the C prototype where there is one."""
        plan = slot.memory.layout
        names = {value: name for (name, _kind), (kind, value) in zip(self._parameters, plan.arguments, strict=False)
                 if kind == "tensor"}
        return [(names.get(spec.name, spec.name), spec.offset, spec.nbytes) for spec in (*plan.inputs, *plan.outputs)]
