# SPDX-License-Identifier: MIT
"""What a kernel file expects stands beside what was measured on that GPU, and beside nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scoring import cli
from scoring.output import expectations, html, terminal
from scoring.output.table import Style
from scoring.record import Evidence, Facts, Record, Status
from scoring.store.store import Store
from tests.scoring.records import record, stats, unavailable

LINES = ("m=64,* 1-3us@H200", "m=64,* 80-120us@L4", "m=64,* 3-5TFLOP/s@H200", "m=64,* 2-3TFLOP/s/SM@H200",
         "m=1,* 5us@H200")


def timed(**changes: object) -> Record:
    """One case on an H200: 2 µs, 4 TFLOP/s."""
    made = record(cases=1)
    result = replace(made.cases[0], stats=stats(2e-6), flops=8e6, bytes_moved=1e6)
    return replace(made, cases=(result,), facts=replace(made.facts, expect=LINES), **changes)


def measured(*records: Record) -> list[str]:
    made = timed()
    return [row.measured for row in expectations.rows(made.problem, made.kernel, LINES, records)]


def test_a_measurement_answers_in_the_unit_of_the_expectation_and_on_its_gpu_alone() -> None:
    assert measured(timed()) == ["2.00 µs", "", "4 TFLOP/s", "", ""]
    assert measured(replace(timed(), gpu="L4")) == ["", "2.00 µs", "", "", ""]
    assert not any(measured())


@pytest.mark.parametrize("changes", [
    {"evidence": Evidence.MODELLED}, {"kernel": "cuda/other"}, {"facts": Facts(emulated=True)}], ids=str)
def test_models_emulators_and_other_kernels_answer_nothing(changes: dict[str, object]) -> None:
    assert not any(measured(replace(timed(), **changes)))


def test_the_newest_measurement_answers() -> None:
    newer = timed()
    newer = replace(newer, cases=(replace(newer.cases[0], stats=stats(5e-6)),))
    assert measured(newer, timed())[0] == "5.00 µs"


def test_an_emulated_gpu_is_another_one() -> None:
    made = timed()
    assert "1-3us on H200" not in terminal.table([made], width=300)
    emulated = replace(made, facts=replace(made.facts, emulated=True))
    assert "1-3us on H200" in terminal.table([emulated], width=300)


def test_run_without_the_gpu_shows_the_expectation_beside_an_empty_cell() -> None:
    idle = replace(unavailable(), facts=Facts(expect=("* 45-65TFLOP/s@H100",)))
    text = terminal.table([idle, idle], width=300)
    (line,) = [line for line in text.splitlines() if "45-65TFLOP/s" in line]
    assert line.split()[-2:] == ["45-65TFLOP/s", "*"], "nothing between the figure and the case"
    assert "Expected" not in terminal.table([replace(idle, facts=Facts())], width=300)
    assert expectations.table([], Style()) == ""


def test_the_report_has_a_table_of_them() -> None:
    made = timed()
    page = html.page([made])
    assert 'id="expected"' in page
    assert ">80-120us<" in page
    assert 'id="expected"' not in html.page([replace(made, facts=replace(made.facts, expect=()))])


def test_list_shows_the_figure_and_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Path(__file__).resolve().parents[3] / "workbench/config.yaml"
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.sqlite"))
    command = ["--config", str(config), "list", "--problem", "flash_attention"]

    def cells() -> list[str]:
        assert cli.main(command) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "150-250us" in line]
        return line.split()

    assert cells()[:4] == ["flash_attention", "cuda/3_wmma_both", "L4", "150-250us"]
    assert cells()[4].startswith("batch=1,"), "nothing measured"
    made = record(cases=1)
    case = replace(made.cases[0].case, params={
        "batch": 1, "sq": 512, "sk": 512, "hq": 8, "hk": 8, "dim": 64, "causal": 0, "half": 0})
    result = replace(made.cases[0], case=case, stats=stats(2e-4))
    Store(tmp_path / "records.sqlite").add(replace(
        made, problem="flash_attention", kernel="cuda/3_wmma_both", gpu="L4", cases=(result,), status=Status.PASSED))
    assert cells()[4:6] == ["200", "µs"]
