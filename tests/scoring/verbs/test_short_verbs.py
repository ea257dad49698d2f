# SPDX-License-Identifier: MIT
"""``compare``, ``completion`` and ``--version``: what they stand for; what a run does is tested where it is done."""

from __future__ import annotations

import re
import subprocess

import pytest

import backends
from backends.source import KernelSource, kernels
from scoring import __version__, cli
from scoring.record import ExitCode, Status
from scoring.verbs import compare
from scoring.verbs.run import exit_code
from tests.scoring.harness import ROOT
from tests.scoring.records import record, unavailable


def test_compare_is_a_run_against_rivals(monkeypatch):
    seen = []
    monkeypatch.setattr(compare, "execute", lambda options: seen.append(options) or ExitCode.OK)
    words = ["compare", "fp8_gemm/mine[TILE=64,X=1]", "mma_sync", "b.cu", "--case", "m=64,*", "--seconds", "3",
             "--gpu", "H100", "--json", "--calls", "7"]
    assert cli.main(words) == 0
    (options,) = seen
    assert (options.verb, options.kernel, options.against) == ("run", ["fp8_gemm/mine"], ["mma_sync", "b.cu"])
    assert options.define == [("TILE", "64"), ("X", "1")]
    assert (options.case, options.seconds, options.gpu, options.calls) == (["m=64,*"], 3.0, "H100", 7)
    assert options.json
    assert options.problem is None
    assert cli.main(["compare", "a.py", "b.py", "--problem", "fp8_gemm"]) == 0
    assert (seen[1].submission, seen[1].problem, seen[1].kernel) == ("a.py", ["fp8_gemm"], None)


def test_compare_says_what_is_no_kernel(capsys):
    assert cli.main(["compare", "mine[TILE", "other"]) == ExitCode.USAGE
    assert "KERNEL[NAME=VALUE,…] is expected" in capsys.readouterr().err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"warpwave {__version__}\n"


def test_a_shell_completes_verbs_flags_and_choices(capsys):
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    name = re.search(r"^complete .*-F (\w+) warpwave", script, re.MULTILINE)[1]
    question = f"COMP_WORDS=(warpwave run --mode ''); COMP_CWORD=3; {name}; echo ${{COMPREPLY[@]}}"
    found = subprocess.run(["bash", "-c", f"{script}\n{question}"], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["test", "benchmark", "leaderboard"]


@pytest.mark.parametrize("columns", ["80", "100", "160"])
def test_list_is_as_wide_as_columns_says(monkeypatch, capsys, columns):
    """Through a pipe as well, and nothing is left out for it: tunables take several lines."""
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= int(columns)
    assert "left out" not in text
    for source in (KernelSource.read(path, ROOT) for name in backends.names()
                   for path in kernels(ROOT, backends.get(name).language)):
        assert all(f"{name}={','.join(values)}" in text for name, values in source.tunables.items())


@pytest.mark.parametrize(("records", "required", "build_only", "code"), [
    ([record(), record()], False, False, 0),
    ([record(), unavailable()], False, False, 0),
    ([unavailable()], False, False, 4),                                # nothing was judged: that is no pass
    ([unavailable(), unavailable()], False, False, 4),
    ([record(), unavailable()], True, False, 4),                       # asked for by name
    ([unavailable()], True, True, 0),                                  # build compiles, whatever is here
    ([record(status=Status.RUNTIME_ERROR), unavailable()], True, False, 1),
])
def test_what_a_run_comes_to(records, required, build_only, code):
    assert exit_code(records, required, build_only) == code
