# SPDX-License-Identifier: MIT
"""What several processes' rounds come to, and what the judge notices of others on its machine."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from scoring.judge import busy, worker_process
from scoring.judge.busy import Load
from scoring.judge.check import Verdict
from scoring.judge.rounds import Rounds
from scoring.judge.score import score
from scoring.judge.timed import Timed, pooled
from scoring.judge.timing import WARM_TURNS, TimingOptions
from scoring.record import Mode, Status
from tests.scoring.harness import kernel_job, toy

TWO = TimingOptions(processes=2, min_rounds=4, max_rounds=4, seconds=1.0)
FACTS = {"slots": 4, "request": "sweep", "rounds": 3, "clock": "claim within the judge's bound", "claim": 1e-3,
         "chain": {"links": 4, "chains": 3, "bound": 1e-3, "overhead": 1e-4, "resolution": 1e-6, "captured": False,
                   "doorbells": False, "unseal": 1e-4, "unseal_alone": 1e-4}}


def part(own: float, load: Load | None = None, **others: float) -> Timed:
    """A process in which the kernel took ``own`` seconds, and others theirs, in three rounds each."""
    samples = {"own": [own] * 3, **{name: [seconds] * 3 for name, seconds in others.items()}}
    return Timed(Verdict(Status.PASSED), 7, samples, "wall_cold/2", FACTS, [{"mhz": own * 1e6}], load or Load(1.0),
                 samples, 5, [tuple(samples)] * 3, dict.fromkeys(others, True))


def test_the_time_is_the_median_over_processes():
    found = pooled([part(1.0e-3), part(1.4e-3), part(1.1e-3)])
    assert found.stats["own"].median == pytest.approx(1.1e-3)
    assert found.stats["own"].processes == pytest.approx((1.0e-3, 1.4e-3, 1.1e-3))
    assert found.environment["processes"] == 3
    assert found.environment["rounds"] == 9
    assert found.environment["chain"]["chains"] == 9
    assert found.environment["mhz"] == {"min": 1000.0, "median": 1100.0, "max": 1400.0}
    assert found.turns is None


def test_who_failed_in_one_process_has_no_time():
    found = pooled([part(1e-3, a=2e-3, b=3e-3), part(1e-3, b=3e-3)])
    assert set(found.stats) == {"own", "b"}
    assert found.turns is not None
    assert set(found.turns.samples) == {"own", "b"}
    assert found.turns.order == [(0, 1)] * 6
    assert found.turns.same_bits == {"b": True}


def test_one_process_that_the_clock_did_not_confirm_says_so_for_all():
    doubtful = replace(part(1e-3), environment={**FACTS, "clock": "judge", "claim": 2e-3}, confirmed=False)
    found = pooled([part(1e-3), doubtful])
    assert found.environment["clock"] == "judge"
    assert found.environment["claim"] == pytest.approx(1.5e-3)
    assert not found.confirmed


def test_a_kernel_is_timed_in_several_fresh_workers(cache, monkeypatch):
    started, real = [], worker_process.WorkerProcess

    class Counted(real):  # type: ignore[misc,valid-type]
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            started.append(self.pid)

    monkeypatch.setattr(worker_process, "WorkerProcess", Counted)
    told: list[int] = []
    time = Rounds.time
    monkeypatch.setattr(Rounds, "time", lambda self: (told.append(self.run.worker.pid), time(self))[1])
    options = replace(TWO, warm=True)
    record = score(replace(kernel_job(toy(cache), "honest", mode=Mode.BENCHMARK), timing=options))
    assert record.status is Status.PASSED, record.message
    assert len(started) == 4, "two that calibrate, two that time"
    assert told == [started[2]] * 2 + [started[3]] * 2, "each of them both cases"
    for result in record.cases[2:]:
        assert result.stats is not None
        assert len(result.stats.processes) == result.environment["processes"] == 2
        assert result.environment["machine"]["busy"] in (True, False)
        assert result.warm is not None
        assert result.warm.runs == 2 * WARM_TURNS, "and beside that, calls that repeat one slot"
        assert 0 < result.warm.median < 100 * result.stats.median
    assert record.cases[0].warm is None, "a test has no time"
    seeds = [result.seed for result in record.cases]
    assert len(set(seeds)) == len(seeds)


def test_calls_that_repeat_a_slot_are_pooled():
    found = pooled([replace(part(1e-3), warm=(1e-4, 3e-4)), replace(part(1e-3), warm=(2e-4,))])
    assert found.warm is not None
    assert (found.warm.median, found.warm.runs) == (pytest.approx(2e-4), 3)
    assert pooled([part(1e-3)]).warm is None


def test_what_fails_in_a_later_process_fails(cache, monkeypatch):
    real = Rounds.time

    def time(self: Rounds) -> Timed:
        wrong = self.process == 1 and self.run.case.name == "n=4096"
        return Timed(Verdict(Status.INCORRECT_NUMERICAL, "late"), 9) if wrong else real(self)

    monkeypatch.setattr(Rounds, "time", time)
    record = score(replace(kernel_job(toy(cache), "honest", mode=Mode.BENCHMARK), timing=TWO))
    assert [result.status for result in record.cases[2:]] == [Status.INCORRECT_NUMERICAL, Status.PASSED]
    assert record.cases[2].message == "late"
    assert record.score is None


# Others on the machine ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("load", "is_busy"), [
    (Load(10.0, 0.5, 0.0, 20.0, 1.0), False), (Load(10.0, 1.5, 0.0, 20.0, 1.0), True),
    (Load(10.0, 0.5, 0.5, 20.0, 1.0), True), (Load(10.0, None, 0.1, 20.0, 1e6), False),
    (Load(10.0, average=1e6), True), (Load(10.0, average=0.0), False), (Load(), False),
])
def test_when_a_machine_is_busy(load, is_busy):
    assert load.busy is is_busy
    assert load.facts()["busy"] is is_busy


def test_spans_add_up():
    both = busy.together([Load(1.0, 0.5, 0.0, 2.0, 3.0), Load(3.0, 0.5, 0.2, 6.0, 1.0)])
    assert dataclasses.astuple(both) == (4.0, 1.0, 0.2, 8.0, 3.0)
    assert both.pressure == pytest.approx(0.25)
    assert both.steal == pytest.approx(0.025)
    assert busy.together([Load(1.0, 0.5), Load(1.0)]).pressure is None
    assert not busy.together([]).busy


def test_what_linux_tells_is_read(tmp_path, monkeypatch):
    pressure, stat = tmp_path / "cpu", tmp_path / "stat"
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    stat.write_text("cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 2 3\n")
    monkeypatch.setattr(busy, "_PSI", pressure)
    monkeypatch.setattr(busy, "_STAT", stat)
    watch = busy.Watch()
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1250000\nfull avg10=0.00 total=0\n")
    stat.write_text("cpu  150 0 100 730 0 0 0 120 0 0\ncpu0 1 2 3\n")
    load = watch.so_far()
    assert load.waited == pytest.approx(0.25)
    assert load.steal == pytest.approx(0.2)
    for file in (pressure, stat):
        file.write_text("nothing of use")
    load = busy.Watch().so_far()
    assert (load.waited, load.stolen) == (None, None)
    assert "pressure" not in load.facts()
