# SPDX-License-Identifier: MIT
"""``new``: what it writes is judged right as it stands, in a folder of problems of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import backends
from backends.source import KernelSource
from scoring import cli
from scoring.popcorn.task import load_task
from scoring.record import ExitCode
from tests.scoring.harness import ROOT


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """A command on a folder of one's own, empty at first: (exit code, stdout, stderr)."""
    (tmp_path / "config.yaml").write_text(
        "paths: {problems: problems, kernels: kernels}\n"
        "timing: {min_rounds: 2, max_rounds: 2, seconds: 0.2, processes: 1}\n")
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["--config", str(tmp_path / "config.yaml"), *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert "internal error" not in err
        return code, out, err

    return call


@pytest.mark.toolchain("cpu")
def test_a_new_problem_passes_audit_and_run(verb, tmp_path):
    code, out, _err = verb("new", "problem", "mine")
    assert code == 0
    assert "run --problem mine --backend cpu" in out
    assert not load_task(tmp_path / "problems" / "mine").warnings
    code, out, _err = verb("audit", "--problem", "mine")
    assert (code, "0 judged wrongly" in out) == (0, True), out
    code, out, _err = verb("run", "--problem", "mine", "--backend", "cpu", "--json")
    assert code == 0
    record = json.loads(out)
    assert (record["status"], len(record["cases"]), record["score"] is not None) == ("PASSED", 5, True)
    assert verb("new", "problem", "mine")[0] == ExitCode.USAGE


def test_a_new_kernel_of_a_new_problem_is_the_example_for_every_backend(verb, tmp_path):
    assert verb("new", "problem", "mine")[0] == 0
    for name in backends.names():
        code, out, _err = verb("new", "kernel", "mine/fast", "--backend", name, "--json")
        assert code == 0
        (path,) = map(Path, json.loads(out)["files"])
        source = KernelSource.read(path, tmp_path)
        assert (source.problem, source.variant, source.language) == ("mine", "fast", backends.get(name).language)
        assert "scale * b[i]" in source.text


@pytest.mark.toolchain("rocm")
@pytest.mark.device("rocm")
def test_the_example_for_the_mi300x_is_right(verb):
    if not backends.get("rocm").probe().can_compile:
        pytest.skip("no compiler for gfx942")
    assert verb("new", "problem", "mine")[0] == 0
    assert verb("new", "kernel", "mine/fast", "--backend", "rocm")[0] == 0
    code, out, _err = verb("run", "--kernel", "mine/fast", "--backend", "rocm", "--mode", "test", "--case", "n=1000")
    assert (code, "1 passed" in out) == (0, True), out


@pytest.mark.toolchain("cuda")
def test_the_example_for_cuda_compiles(verb):
    if not backends.get("cuda").probe().can_compile:
        pytest.skip("no nvcc")
    assert verb("new", "problem", "mine")[0] == 0
    assert verb("new", "kernel", "mine/fast", "--backend", "cuda")[0] == 0
    code, out, _err = verb("build", "--kernel", "mine/fast", "--backend", "cuda", "--gpu", "L4")
    assert (code, "1 compiled" in out) == (0, True), out


def test_a_kernel_of_another_problem_starts_from_the_shortest_one_or_says_that_it_does_nothing(verb, tmp_path):
    assert verb("new", "problem", "mine")[0] == 0
    header = tmp_path / "problems" / "mine" / "kernel.h"
    header.write_text(header.read_text().replace("int n,", "int n, int rows,"))
    code, _out, _err = verb("new", "kernel", "mine/stub", "--backend", "cuda")
    assert code == 0
    text = (tmp_path / "kernels" / "cuda" / "mine" / "stub.cu").read_text()
    assert "return kUnsupportedShape;" in text
    assert "int rows" in text
    assert verb("new", "kernel", "mine/copy", "--backend", "cpu")[0] == 0
    text = (tmp_path / "kernels" / "cpu" / "mine" / "copy.cpp").read_text()
    assert "//!KERNEL summary copy, started from naive" in text
    assert verb("new", "kernel", "mine/other", "--backend", "cpu", "--like", "naive")[0] == 0


@pytest.mark.parametrize(("arguments", "words"), [
    (("problem", "Mine"), "small letters"),
    (("problem", "class"), "small letters"),
    (("problem", "mine", "--backend", "cpu"), "takes no --backend"),
    (("kernel", "fast", "--backend", "cpu"), "PROBLEM/NAME"),
    (("kernel", "gone/fast", "--backend", "cpu"), "unknown problem"),
    (("kernel", "toy/fast"), "needs one --backend"),
    (("kernel", "toy/fast", "--backend", "cpu", "--like", "gone"), "no cpu kernel of toy is called"),
])
def test_a_name_that_cannot_be_is_a_usage_error(arguments, words, capsys):
    try:
        code = cli.main(["--config", str(ROOT / "tests" / "data" / "config.yaml"), "new", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == ExitCode.USAGE
    assert words in capsys.readouterr().err
