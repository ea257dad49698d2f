# SPDX-License-Identifier: MIT
"""``profile`` on a real device. No GPU is here: a script stands where ncu or rocprofv3 would and a CPU kernel where a
CUDA kernel would, so the call, its verdict, the files and the refusals are real, and the figures are not."""

from __future__ import annotations

import sys

import pytest

from backends.errors import BackendError
from scoring import cli
from scoring.judge import alone
from scoring.judge.seeds import SeedSource
from scoring.output import measured
from scoring.output.table import Style
from scoring.record import Status
from scoring.run import profiled
from scoring.run.select import SelectionError
from tests.backends.test_instruments import COUNTERS, RAW
from tests.scoring.harness import kernel_job, toy

NCU = """#!{python}
import subprocess, sys
words = sys.argv[1:]
if "--import" in words:
    print({raw!r})
    sys.exit(open(words[words.index("--import") + 1]).read() != "report")
if {refused!r}:
    print({refused!r})
    sys.exit(1)
code = subprocess.run(words[words.index({python!r}):]).returncode
open(words[words.index("--export") + 1], "w").write("report")
sys.exit(code)
"""
ROCPROFV3 = """#!{python}
import pathlib, subprocess, sys
words = sys.argv[1:]
code = subprocess.run(words[words.index("--") + 1:]).returncode
counter = words[words.index("--pmc") + 1]
folder = pathlib.Path(words[words.index("--output-directory") + 1])
if counter in ("MfmaUtil", "OccupancyPercent"):
    folder.mkdir()
    (folder / "launches_counter_collection.csv").write_text(
        {counters!r}.format(counter=counter, value=50, other=5, first=1, second=2, end=91000))
else:
    print("counter is unknown")
sys.exit(code)
"""


@pytest.fixture
def measure(cache, tmp_path, monkeypatch):
    def call(tool, kernel="honest", script="", keep=None, **values):
        if script:
            program = tmp_path / tool
            program.write_text(script.format(python=sys.executable, **values))
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        job = kernel_job(toy(cache, seed=3), kernel)
        with alone.prepared(job, job.cases[0], SeedSource(3)) as case:
            return profiled.measure(tool, job, case, keep)

    return call


def test_ncu_measures_a_checked_call(measure, tmp_path):
    keep = tmp_path / "kept.ncu-rep"
    verdict, launches = measure("ncu", script=NCU, raw=RAW, refused="", keep=keep)
    assert verdict.passed
    assert [launch["name"] for launch in launches] == ["void attend<128>(Params)", "merge(float *)"]
    assert keep.read_text() == "report"
    text = measured.report(measured.document("p", "cuda/k", "H100", "NVIDIA H100", "ncu", [
        {"name": "n=64", "status": "PASSED", "message": "", "launches": launches}]), Style(width=200))
    assert "measured by ncu" in text
    row = next(line for line in text.splitlines() if line.startswith("void attend"))
    for cell in ("556 µs", "50%", "1024 (12%)", "gmma 42%, long scoreboard 21%, wait 11%"):
        assert cell in row


def test_a_wrong_answer_is_told_beside_the_figures(measure):
    verdict, launches = measure("ncu", "nan", script=NCU, raw=RAW, refused="")
    assert verdict.status is Status.INCORRECT_NUMERICAL
    assert len(launches) == 2


def test_a_user_who_may_not_read_counters_is_told_how(measure):
    with pytest.raises(SelectionError, match="NVreg_RestrictProfilingToAdminUsers=0") as told:
        measure("ncu", script=NCU, raw="", refused="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    assert told.value.code == 4


def test_rocprofv3_counts_in_several_calls(measure, tmp_path):
    keep = tmp_path / "kept.csv"
    verdict, launches = measure("rocprofv3", script=ROCPROFV3, counters=COUNTERS, keep=keep)
    assert verdict.passed
    assert [(each["name"], each["tensor_active"], each["occupancy"], each["l2_hit"]) for each in launches] == [
        ("attend(Params)", 0.5, 0.5, None), ("merge", 0.05, 0.05, None)]
    assert "MfmaUtil" in keep.read_text()
    assert "OccupancyPercent" in keep.read_text()


@pytest.mark.slow
def test_rocprofv3_without_counters_is_no_table(measure):
    with pytest.raises(SelectionError, match="rocprofv3 counted nothing: no device") as told:
        measure("rocprofv3", script="#!{python}\nimport subprocess, sys\nw = sys.argv\n"
                                    "subprocess.run(w[w.index('--') + 1:])\nprint('no device')\n")
    assert told.value.code == 4


def test_torch_s_profiler_sees_no_kernel_on_a_cpu(measure, tmp_path):
    with pytest.raises(BackendError, match="saw no kernel"):
        measure("torch", keep=tmp_path / "trace.json")
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()


@pytest.mark.parametrize(("flags", "code", "words"), [
    (["--tool", "ncu"], 4, "--tool ncu measures on a real device, and no H100 here"),
    (["--tool", "torch", "--gpu", "L4"], 4, "--tool torch measures on a real device, and no L4 here"),
    (["--tool", "emulator", "--output", "x"], 2, "--output keeps a vendor's file"),
])
def test_no_device_is_one_sentence(monkeypatch, tmp_path, capsys, flags, code, words):
    if any(not device.emulated for device in cuda_devices()):
        pytest.skip("an NVIDIA GPU is here")
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path))
    assert cli.main(["profile", "--kernel", "flash_attention/mma_sync", *flags]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""


def cuda_devices():
    import backends

    return backends.get("cuda").probe().devices
