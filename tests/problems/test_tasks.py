# SPDX-License-Identifier: MIT
"""task.yml: GPU MODE's format by the plainest reading of it, and the shapes people will compare."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.problems.folders import ALL, GEMMS, ROOT, problem

KEYS = {"files", "lang", "config", "description", "tests", "benchmarks", "test_timeout", "benchmark_timeout",
        "ranked_timeout", "ranking_by"}
PARAMETERS = {
    "fp8_gemm": ["m", "n", "k", "seed"],
    "amd_fp8_mm": ["m", "n", "k", "seed"],
    "flash_attention": ["batch", "sq", "sk", "hq", "hk", "dim", "causal", "half", "seed"],
    "flash_attention_bwd": ["batch", "sq", "sk", "hq", "hk", "dim", "causal", "half", "seed"],
    "flash_attention_fp8": ["batch", "sq", "sk", "hq", "hk", "dim", "causal", "scales", "rotated", "outliers", "seed"],
    "flash_attention_varlen": ["batch", "tq", "tk", "lens", "hq", "hk", "dim", "causal", "half", "seed"],
    "hadamard_quantize": ["batch", "tokens", "heads", "dim", "rotated", "scales", "outliers", "seed"],
    "linear_cross_entropy": ["tokens", "hidden", "vocab", "ignored", "smoothing", "seed"],
    "mla_decode": ["batch", "sq", "hq", "sk", "lens", "causal", "seed"],
    "mla_decode_fp8": ["batch", "sq", "hq", "sk", "lens", "causal", "seed"],
    "amd_mla_decode": ["batchsize", "dim", "dq", "prefill", "seed"],
    "amd_moe": ["dhidden", "dexpert", "nroutedexperts", "nsharedexperts", "nexpertspertoken", "bs", "seqlen", "seed"],
}
CHALLENGE = [(n, k) for n, k in (
    (1536, 7168), (3072, 1536), (576, 7168), (7168, 256), (7168, 2048), (4608, 7168), (7168, 2304), (512, 7168),
    (4096, 512))]


def task(name: str) -> Any:
    return yaml.safe_load((ROOT / "problems" / name / "task.yml").read_text())


def shapes(cases: list[dict[str, int]]) -> list[tuple[int, ...]]:
    return [(case["m"], case["n"], case["k"]) for case in cases]


@pytest.mark.parametrize("name", ALL)
def test_keys_files_and_settings(name: str) -> None:
    loaded = task(name)
    assert set(loaded) == KEYS
    assert loaded["lang"] == "py"
    assert loaded["config"] == {"main": "eval.py"}
    assert loaded["ranking_by"] == "geom"
    sources = {entry["name"]: entry["source"] for entry in loaded["files"]}
    assert sources.pop("submission.py") == "@SUBMISSION@"
    assert sources.pop("eval.py") == "../../submissions/eval.py"
    assert {"task.py", "utils.py", "reference.py"} <= set(sources)
    for source in sources.values():
        assert (ROOT / "problems" / name / source).is_file()


@pytest.mark.parametrize("name", ALL)
def test_what_is_staged_imports_nothing_else_of_ours(name: str) -> None:
    staged = {entry["name"].removesuffix(".py"): entry["source"] for entry in task(name)["files"]}
    ours = {path.stem for path in (ROOT / "problems").rglob("*.py")}
    for module in set(staged) - {"submission", "eval"}:
        text = (ROOT / "problems" / name / staged[module]).read_text()
        imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
        assert imported & ours <= set(staged)


@pytest.mark.parametrize("name", ALL)
def test_cases_survive_the_case_file_grammar_and_are_distinct(name: str) -> None:
    loaded = task(name)
    for group in ("tests", "benchmarks"):
        for case in loaded[group]:
            assert [key for key in case if key != "steep"] == PARAMETERS[name]
            for key, value in case.items():
                assert re.fullmatch("[a-zA-Z]+", key)
                assert type(value) in (int, str)
                assert re.fullmatch(r"[a-zA-Z]+|[+-]?[0-9]+", str(value))
        bare = [tuple((key, value) for key, value in case.items() if key != "seed") for case in loaded[group]]
        assert len(set(bare)) == len(bare)
    seeds = [case["seed"] for group in ("tests", "benchmarks") for case in loaded[group]]
    assert len(set(seeds)) == len(seeds)


def test_the_challenges_shapes_in_its_order() -> None:
    loaded = task("amd_fp8_mm")
    assert shapes(loaded["tests"]) == [
        (64, 64, 128), (64, 1536, 7168), (64, 3072, 1536), (64, 576, 7168), (96, 7168, 256), (96, 7168, 2048),
        (96, 4608, 7168), (128, 7168, 2304), (128, 512, 7168), (512, 4096, 512), (512, 1536, 7168)]
    benchmarks = [(m, n, k) for m in (1024, 6144) for n, k in CHALLENGE]
    assert shapes(loaded["benchmarks"]) == benchmarks
    assert shapes(task("fp8_gemm")["benchmarks"])[:18] == benchmarks
    layers = [[(case["batchsize"], case["dim"], case["dq"], case["prefill"]) for case in task("amd_mla_decode")[group]
               if "steep" not in case]
              for group in ("tests", "benchmarks")]
    assert layers[0][-4:] == [(128, 7168, 1536, prefill) for prefill in (128, 512, 1024, 2048)]
    assert layers[1] == [(128, 7168, 1536, prefill) for prefill in (4096, 6144)]
    experts = [[(case["nroutedexperts"], case["bs"], case["seqlen"]) for case in task("amd_moe")[group]
                if (case["dhidden"], case["dexpert"], case["nexpertspertoken"]) == (7168, 2048, 4)
                and "steep" not in case]
               for group in ("tests", "benchmarks")]
    assert experts == [[(4, 1, 512), (8, 2, 512), (8, 1, 8192)], [(32, 1, 2048), (32, 1, 8192)]]


@pytest.mark.parametrize("name", ALL)
def test_tests_begin_with_cases_for_a_plain_loop(name: str) -> None:
    loaded = problem(name)
    count = {"amd_fp8_mm": 1, "amd_mla_decode": 2}.get(name, 6)
    assert all(loaded.binding.flops(case.params) < 2e8 for case in loaded.tests[:count])


def test_gemm_cases_reach_the_corners() -> None:
    loaded = task("fp8_gemm")
    cases = loaded["tests"] + loaded["benchmarks"]
    assert {1, 7, 64, 96, 128, 1024, 4096, 6144} <= {case["m"] for case in cases}
    assert {128, 256, 512, 1536, 2048, 2304, 7168, 16384} <= {case["k"] for case in cases}
    assert {576, 2112} <= {case["n"] for case in loaded["tests"]}


def test_attention_cases_reach_the_corners() -> None:
    cases = task("flash_attention")["tests"]
    assert {(case["dim"], case["causal"]) for case in cases} == {(d, c) for d in (64, 128, 256) for c in (0, 1)}
    assert {case["half"] for case in cases} == {0, 1}
    assert {1, 4, 8} <= {case["hq"] // case["hk"] for case in cases}
    assert any(case["causal"] and case["sq"] > case["sk"] for case in cases)
    assert any(case["sq"] == 1 and case["sk"] > 4000 for case in cases)
    assert all(case["hq"] % case["hk"] == 0 for case in cases)


def test_backward_cases_reach_the_corners() -> None:
    loaded = task("flash_attention_bwd")
    cases = loaded["tests"]
    assert {(case["dim"], case["causal"], case["half"]) for case in cases} == {
        (d, c, f) for d in (64, 128, 256) for c in (0, 1) for f in (0, 1)}
    assert {1, 2, 4, 8} <= {case["hq"] // case["hk"] for case in cases}
    assert any(case["causal"] and case["sq"] > case["sk"] > 1 for case in cases)
    assert any(case["causal"] and case["sq"] < case["sk"] for case in cases)
    shapes = [(case["dim"], case["sq"], case["causal"]) for case in loaded["benchmarks"] if "steep" not in case]
    assert shapes == [(d, s, c) for d in (64, 128, 256) for s in (2048, 8192) for c in (0, 1)]
    for case in loaded["benchmarks"]:
        assert (case["batch"] * case["sq"], case["hq"] * case["dim"]) == (16384, 2048)


def test_packed_sequences_reach_the_corners() -> None:
    lengths = problem("flash_attention_varlen").binding.sequence_lengths
    assert lengths(4, 2500, 5000, "tail") == [(1200, 2400), (600, 1200), (400, 800), (300, 600)]
    cases = task("flash_attention_varlen")["tests"]
    assert {(case["dim"], case["causal"]) for case in cases} == {(d, c) for d in (64, 128, 256) for c in (0, 1)}
    assert {case["half"] for case in cases} == {0, 1}
    assert {case["lens"] for case in cases} == {"uniform", "tail", "decode", "mixed"}
    assert {1, 4, 8} <= {case["hq"] // case["hk"] for case in cases}
    for causal in (0, 1):
        pairs = {pair for case in cases if case["causal"] == causal
                 for pair in lengths(case["batch"], case["tq"], case["tk"], case["lens"])}
        assert {(0, 0), (0, 5), (5, 0), (1, 1), (65, 63), (129, 17)} <= pairs
    for first, second in zip(*[iter(task("flash_attention_varlen")["benchmarks"][:6])] * 2, strict=True):
        assert (first["lens"], second["lens"]) == ("uniform", "tail")        # the price of balance, of the same tokens
        assert {**first, "lens": "tail", "seed": second["seed"]} == second


def test_fp8_attention_cases_reach_the_corners() -> None:
    cases = task("flash_attention_fp8")["tests"]
    for key, values in (("dim", (64, 128, 256)), ("rotated", (0, 1)), ("outliers", (0, 1)), ("causal", (0, 1))):
        assert {(case["scales"], case[key]) for case in cases} >= {
            (scales, value) for scales in ("head", "block") for value in values}
    assert {(case["rotated"], case["outliers"]) for case in cases} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert any(case["causal"] and case["sq"] > case["sk"] for case in cases)
    assert any(case["scales"] == "block" and case["sk"] % 128 and case["sq"] % 128 == 1 for case in cases)


def test_loss_and_quantisation_cases_reach_the_corners() -> None:
    loss = task("linear_cross_entropy")
    cases = loss["tests"]
    assert {case["ignored"] for case in cases} == {"none", "some", "all"}
    assert {0, 1} <= {min(1, case["smoothing"]) for case in cases}
    assert {case.get("steep", 0) for case in cases} == {0, 1}
    assert any(case["vocab"] == 1 for case in cases)
    needed = problem("linear_cross_entropy").binding.workspace_bytes
    for case in [case for case in cases if case["vocab"] > 7000] + loss["benchmarks"]:
        assert needed(case) < 0.6 * 2 * case["tokens"] * case["vocab"], "the logits fit into the workspace"
    cases = task("hadamard_quantize")["tests"]
    assert {(case["scales"], case["rotated"]) for case in cases} == {
        (scales, rotated) for scales in ("tensor", "head", "block") for rotated in (0, 1)}
    assert {case["dim"] for case in cases} == {64, 128, 256}
    assert any(case["scales"] == "block" and case["tokens"] % 128 == 1 for case in cases)


@pytest.mark.parametrize("name", sorted({*ALL} - {*GEMMS, "hadamard_quantize", "linear_cross_entropy"}))
def test_scores_beyond_fp32_are_tested_and_timed(name: str) -> None:
    for group in ("tests", "benchmarks"):
        steep = [case for case in task(name)[group] if case.get("steep")]
        assert steep, group
        if "half" in PARAMETERS[name] and group == "tests":
            assert {case["half"] for case in steep} == {0, 1}


@pytest.mark.parametrize("name", ["mla_decode", "mla_decode_fp8"])
def test_decode_cases_reach_the_corners(name: str) -> None:
    cases = task(name)["tests"]
    assert {case["hq"] for case in cases} == {16, 64, 128}
    assert {case["lens"] for case in cases} == {"uniform", "ragged", "mixed"}
    assert {1, 128} <= {case["batch"] for case in cases}
    assert any(case["sq"] == 2 and case["causal"] and case["lens"] == "mixed" for case in cases)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["fp8_gemm", "flash_attention", "flash_attention_bwd", "hadamard_quantize",
                                  "linear_cross_entropy", "mla_decode", "mla_decode_fp8"])
def test_a_runner_that_stages_the_files_flat_can_use_the_reference(name: str, tmp_path: Path) -> None:
    for entry in task(name)["files"]:
        if entry["name"] not in ("submission.py", "eval.py"):
            shutil.copy(ROOT / "problems" / name / entry["source"], tmp_path / entry["name"])
    script = (
        "import sys; from reference import check_implementation, generate_input, ref_kernel\n"
        f"data = generate_input(**{task(name)['tests'][1]!r}, device='cpu')\n"
        "passed, message = check_implementation(data, ref_kernel(data))\n"
        "sys.exit(0 if passed else message)\n")
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
