# SPDX-License-Identifier: MIT
"""benchmarks/race.py: kernels by name and file, cases, bits on the CPU, and one sentence where there is no GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scoring.problem import Problem, discover
from scoring.record import Case
from scoring.run.select import SelectionError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import race
import race_cases

ROOT = Path(__file__).resolve().parents[1]


def test_a_kernel_is_named_as_by_against():
    source, values = race.find("fp8_gemm/wgmma_tma[EARLY_START=0]")
    assert (source.language, source.problem, values) == ("cuda", "fp8_gemm", {"EARLY_START": "0"})
    assert race.find("cpu/fp8_gemm/naive")[0].language == "cpu"
    assert race.find("wgmma_tma", "flash_attention")[0].problem == "flash_attention"
    ladder, _ = race.find(str(ROOT / "workbench/kernels/cuda/fp8_gemm/3_tma.cu"), "fp8_gemm")
    assert (ladder.root, ladder.problem) == (ROOT / "workbench", "fp8_gemm")
    with pytest.raises(SelectionError, match="no file"):
        race.find("fp8_gemm/nowhere")


def test_a_shape_is_text():
    assert race_cases.shape("m=1,lens=ragged") == {"m": 1, "lens": "ragged"}
    for wrong in ("", "m", "m=", "=1", "m=1,,k=2"):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            race_cases.shape(wrong)


@pytest.mark.parametrize(("verb", "problem"), [(v, p) for v, cases in race_cases.CASES.items() for p in cases])
def test_cases_have_the_parameters_of_the_problem(verb, problem):
    listed = Problem(discover(ROOT / "problems")[problem]).cases[0].params
    for params in race_cases.CASES[verb][problem]:
        assert params.keys() == listed.keys()
        assert all(isinstance(params[name], type(value)) for name, value in listed.items())


def test_cases_are_filtered_by_name():
    build = SimpleNamespace(problem=SimpleNamespace(name="fp8_gemm", benchmarks=(Case({"m": 1}), Case({"m": 2}))))
    (case,) = race.cases_of(build, SimpleNamespace(verb="bits", shape=None, case=["m=2"]))
    assert case.name == "m=2"
    assert len(race.cases_of(build, SimpleNamespace(verb="plans", shape=None, case=["m=64,*"]))) == 6


def test_builds_of_one_kernel_give_the_same_bits_and_a_wrong_one_is_told(tmp_path, capsys):
    wrong = tmp_path / "wrong.cpp"
    text = (ROOT / "kernels/cpu/fp8_gemm/naive.cpp").read_text()
    wrong.write_text(text.replace("    return kOk;", "    static_cast<uint16_t*>(c)[0] ^= 0x4000;\n    return kOk;"))
    command = ["bits", "cpu/fp8_gemm/naive", "cpu/fp8_gemm/naive", "--shape", "m=3,n=5,k=128"]
    assert race.main(command) == 0
    assert capsys.readouterr().out.count("right, the same bits") == 2
    assert race.main([*command[:2], str(wrong), "--problem", "fp8_gemm", *command[3:]]) == 1
    out = capsys.readouterr().out
    assert "WRONG: " in out
    assert "other bits than cpu/fp8_gemm/naive" in out


def test_one_call_made_on_the_cpu(capsys):
    assert race.main(["once", "cpu/mla_decode/naive", "--shape", "batch=1,sq=1,hq=1,sk=65,lens=uniform,causal=0"]) == 0
    assert capsys.readouterr().out.endswith(": right\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [
    ["energy", "fp8_gemm/wgmma_tma"], ["bits", "fp8_gemm/wgmma_tma"], ["probe", "workbench/probes/wgmma_rates.cu"],
])
def test_without_a_gpu_it_says_so_before_it_compiles(words, monkeypatch, capsys):
    monkeypatch.setattr(race, "load", lambda *_arguments: pytest.fail("compiled"))
    with pytest.raises(SystemExit) as caught:
        race.main(words)
    assert caught.value.code == 4
    err = capsys.readouterr().err
    assert err.startswith("no NVIDIA GPU here")
    assert err.count("\n") == 1


def test_usage_is_told_in_one_line(capsys):
    assert race.main(["bits", "cpu/fp8_gemm/naive", "cpu/mla_decode/naive"]) == 2
    assert capsys.readouterr().err == "error: kernels of several problems: name those of one\n"
