# SPDX-License-Identifier: MIT
"""``run --sanitize``: what a tool's reports do to a record, which flags go with it, and where nothing can be looked at.

compute-sanitizer needs a CUDA device. A script takes its place: it runs what it is told to watch and writes reports.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from scoring import cli
from scoring.judge.score import score
from scoring.record import Record, Status
from scoring.run.sanitized import examined
from tests.backends.test_instruments import DEAD, MEMCHECK, NOTHING
from tests.scoring.harness import SETTINGS, kernel_job, toy

SCRIPT = """#!{python}
import subprocess, sys
words = sys.argv[1:]
tool, log = (words[words.index(flag) + 1] for flag in ("--tool", "--log-file"))
code = subprocess.run(words[words.index({python!r}):]).returncode if {watch} else 1
text = {texts!r}.get(tool, {nothing!r})
open(log, "w").write(text)
sys.exit(99 if "Invalid" in text else code)
"""


def look(cache, folder, kernel, tools, texts, watch=True) -> Record:
    program = folder / "compute-sanitizer"
    program.write_text(SCRIPT.format(python=sys.executable, texts=texts, nothing=NOTHING, watch=watch))
    program.chmod(0o755)
    job = kernel_job(toy(cache, seed=3), kernel)
    job = replace(job, cases=job.cases[:1], sanitizers=tools)
    return Record.from_json(examined(job, score(job), lambda text: None, program).to_json())


def test_a_clean_kernel_passes_and_the_record_says_what_looked(cache, tmp_path):
    record = look(cache, tmp_path, "honest", ("memcheck", "initcheck"), {})
    assert record.status is Status.PASSED
    assert "memcheck, initcheck: nothing found" in record.cases[0].message
    assert record.cases[0].findings == ()
    assert record.facts.checks == "memcheck,initcheck"
    assert record.isolation == "process"          # that call had no sandbox


def test_findings_fail_a_kernel_whose_numbers_are_right(cache, tmp_path):
    record = look(cache, tmp_path, "honest", ("memcheck", "synccheck"), {"memcheck": MEMCHECK})
    assert record.status is Status.RUNTIME_ERROR
    (case,) = record.cases
    assert case.message.startswith("3 reports of compute-sanitizer\n========= Invalid __global__ write of size 4 bytes")
    assert "synccheck: nothing found" in case.message
    assert [(finding["check"], finding["times"]) for finding in case.findings] == [("memcheck", 2), ("memcheck", 1)]


def test_wrong_numbers_stay_wrong_beside_findings(cache, tmp_path):
    record = look(cache, tmp_path, "nan", ("memcheck",), {"memcheck": MEMCHECK})
    assert record.status is Status.RUNTIME_ERROR
    assert "got nan" in record.cases[0].message
    quiet = look(cache, tmp_path, "nan", ("memcheck",), {})
    assert quiet.status is Status.INCORRECT_NUMERICAL


def test_a_crash_under_the_tool_is_told(cache, tmp_path):
    record = look(cache, tmp_path, "segfault", ("memcheck",), {})
    assert record.status is Status.RUNTIME_ERROR
    assert "memcheck: " in record.cases[0].message


def test_a_tool_that_could_not_look_is_no_pass(cache, tmp_path):
    record = look(cache, tmp_path, "honest", ("memcheck",), {"memcheck": DEAD}, watch=False)
    assert record.status is Status.RUNTIME_ERROR
    assert "process didn't terminate successfully" in record.cases[0].message
    assert "nothing found" not in record.cases[0].message


@pytest.mark.parametrize(("flags", "code", "words"), [
    (["--backend", "cpu", "--sanitize", "memcheck"], 4, "--sanitize needs a CUDA device"),
    (["--sanitize", "mem"], 2, "no tool 'mem'; there are memcheck, racecheck, synccheck, initcheck"),
    (["--sanitize", "memcheck", "--mode", "benchmark"], 2, "leave out --mode benchmark"),
    (["--sanitize", "memcheck", "--checks", "all", "--isolation", "landlock"], 2, "--isolation landlock, --checks"),
    (["--sanitize", "memcheck", "--host", "me@there"], 2, "--sanitize goes without --host"),
])
def test_what_cannot_be_meant_is_one_sentence(tmp_path, monkeypatch, capsys, flags, code, words):
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path))
    try:
        found = cli.main(["--config", str(SETTINGS), "run", *flags])
    except SystemExit as stop:       # argparse
        found = stop.code
    said = capsys.readouterr()
    assert (found, said.out) == (code, "")
    assert words in said.err
