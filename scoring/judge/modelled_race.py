# SPDX-License-Identifier: MIT
"""A race of modelled times: what each rival launches runs again on the kernel's inputs, and the counters decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scoring.ipc.emulator import modelled_band, modelled_seconds
from scoring.ipc.requests import Load
from scoring.judge import rivals, timing
from scoring.judge.job import Contestant, Entrant
from scoring.judge.layout import equal_bits
from scoring.judge.modelled_run import ModelledRun
from scoring.judge.replay import Replayer
from scoring.judge.rivals import RivalFailed
from scoring.judge.worker_process import WorkerFailure
from scoring.record import Race, Status


def race(
    run: ModelledRun, seconds: float, entered: Sequence[Entrant], racing: Sequence[Contestant],
    failed: Mapping[str, tuple[Status, str]], replayer: Replayer, floor: float | None,
) -> Race:
    """The race of a kernel that was replayed by ``run`` and takes ``seconds``, against ``racing``.

    They are those that ``entered`` and have not ``failed`` yet. ``floor``: the roofline's seconds. Raises
    ``RivalFailed`` for a rival that is wrong, ends with an error, or is faster than the roofline.
    """
    assert run.twin is not None
    own = run.twin.memory.outputs()
    samples, same, declined = {run.contestant.name: [[seconds]]}, {}, dict(failed)
    bands = {run.contestant.name: modelled_band(run.counters)}
    for rival in racing:
        try:
            run.ask(Load(rival.name, rival.spec))
            verdict = run.replay(rival, replayer)
        except WorkerFailure as failure:
            if failure.status is not Status.UNSUPPORTED:
                raise RivalFailed(rival.name, failure.status, str(failure), not failure.alive) from failure
            declined[rival.name] = failure.status, str(failure)
            continue
        if not verdict.passed:
            raise RivalFailed(rival.name, verdict.status, verdict.message)
        modelled = modelled_seconds(run.counters)
        if faster := timing.beats_hardware(modelled or math.inf, floor):
            raise RivalFailed(rival.name, Status.TIMING_MISMATCH, faster)
        if modelled is None:
            declined[rival.name] = Status.UNSUPPORTED, verdict.message or "the model has no time for what it launches"
            continue
        samples[rival.name] = [[modelled]]
        bands[rival.name] = modelled_band(run.counters)
        same[rival.name] = equal_bits(own, run.twin.memory.outputs())
    note = "modelled times; intervals are the model's errors"
    return rivals.race(
        rivals.Turns(samples, same_bits=same), run.contestant.name, entered, declined, None, note, bands=bands)
