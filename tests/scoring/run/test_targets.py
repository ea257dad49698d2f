# SPDX-License-Identifier: MIT
"""``run.targets`` and ``run.job``: from a selection to what is compiled for which target and run where."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

import backends
from backends.base import Availability, Device
from backends.errors import UnknownTarget
from scoring.config.load import load_config
from scoring.problem import Problem
from scoring.record import Case, Mode
from scoring.run import targets
from scoring.run.job import find_peers, make_kernel_job
from scoring.run.select import SelectionError
from scoring.run.targets import Place
from tests.scoring.harness import DATA, kernel_job, problem, submission_job, toy

ROOT = Path(__file__).resolve().parents[3]
OURS = load_config(file=str(ROOT / "config.yaml"), environment={})
CUDA = backends.get("cuda")
NOTHING = Availability("/usr/bin/nvcc", "13", (), ("no driver",))


def device(gpu: str, arch: str, index: int = 0) -> Device:
    return Device(index, f"Vendor {gpu}", gpu, arch, 1 << 36)


def here(*devices: Device) -> Availability:
    return Availability("/usr/bin/nvcc", "13", devices)


# Selecting -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("patterns", "expected"), [
    (["fp8_gemm"], ["fp8_gemm"]), (["*mm"], ["amd_fp8_mm", "fp8_gemm"]),
    (["mla*", "mla_decode"], ["mla_decode", "mla_decode_fp8"]),
    (["*"], ["amd_fp8_mm", "amd_mla_decode", "amd_moe", "flash_attention", "flash_attention_bwd",
            "flash_attention_fp8", "flash_attention_varlen", "fp8_gemm", "hadamard_quantize", "linear_cross_entropy",
            "mla_decode", "mla_decode_fp8"]),
    (["nothing*"], []), ([], []),
])
def test_problems_by_pattern(patterns, expected):
    assert [found.name for found in targets.select_problems(OURS, patterns)] == expected


def test_a_problem_that_does_not_exist_is_a_usage_error():
    with pytest.raises(SelectionError, match=r"unknown problem 'fp9'; .* has: amd_fp8_mm, amd_mla") as caught:
        targets.select_problems(OURS, ["fp9", "fp8_gemm"])
    assert caught.value.code == 2


@pytest.mark.parametrize(("pattern", "matches"), [
    ("honest", True), ("toy/honest", True), ("cpu/toy/honest", True), ("cpu/honest", True), ("hon*", True),
    ("toy/*est", True), ("*", True), ("cuda/*", False), ("onest", False), ("fp8_gemm/*", False),
])
def test_kernels_by_any_of_their_names(tmp_path, pattern, matches):
    settings = toy(tmp_path)
    found = targets.select_kernels(settings, problem(settings), backends.get("cpu"), [pattern])
    assert ("honest" in [source.variant for source, _error in found]) is matches


# Where ---------------------------------------------------------------------------------------------------------------

def test_without_a_device_the_configured_gpus_are_compiled_for():
    found = targets.places(OURS, CUDA, NOTHING, None)
    assert [(place.target.gpu, place.device) for place in found] == [("H100", None), ("L4", None)]
    assert all(place.reason.startswith("compiled; not run") for place in found)


def test_a_device_that_is_here_decides():
    (place,) = targets.places(OURS, CUDA, here(device("L4", "sm_89")), None)
    assert (place.target.gpu, place.target.arch, place.device.name) == ("L4", "sm_89", "Vendor L4")
    assert place.reason == ""


def test_a_gpu_asked_for_is_compiled_for_even_if_another_is_here():
    (place,) = targets.places(OURS, CUDA, here(device("L4", "sm_89")), "h100")
    assert (place.target.gpu, place.device) == ("H100", None)
    assert place.reason
    (place,) = targets.places(OURS, CUDA, here(device("L4", "sm_89"), device("H100", "sm_90a", 1)), "H100")
    assert place.device.index == 1


def test_a_gpu_by_its_arch():
    (place,) = targets.places(OURS, CUDA, NOTHING, "sm_89")
    assert place.target.gpu == "L4"


def test_another_arch_for_the_same_gpu():
    (place,) = targets.places(OURS, CUDA, here(device("H100", "sm_90a")), None, "sm_89")
    assert (place.target.gpu, place.target.arch) == ("H100", "sm_89")
    assert place.target.peaks == CUDA.target("H100").peaks, "the roofline is the device's"
    with pytest.raises(UnknownTarget):
        targets.places(OURS, CUDA, NOTHING, None, "sm_1")


def test_a_gpu_that_no_data_sheet_here_describes_has_no_roofline():
    (place,) = targets.places(OURS, CUDA, here(device("GeForce X", "sm_89")), None)
    assert (place.target.gpu, place.target.arch, dict(place.target.peaks)) == ("GeForce X", "sm_89", {})


def test_a_device_of_an_unknown_arch_stops_nobody():
    """It cannot run anything of ours; the configured GPUs are compiled for, and the reason names what is here."""
    places = targets.places(OURS, CUDA, here(device("Old", "sm_1")), None)
    assert [place.target.gpu for place in places] == OURS.settings.gpus["cuda"]
    assert all(place.device is None and "Old" in place.reason for place in places)


def test_an_unknown_gpu():
    with pytest.raises(UnknownTarget):
        targets.places(OURS, CUDA, NOTHING, "MI300")


def test_candidates_are_the_kernels_that_support_the_arch(tmp_path):
    problems = targets.select_problems(OURS, ["fp8_gemm"])
    for arch in ("sm_89", "sm_90a"):
        found = targets.candidates(OURS, problems, {"cuda": NOTHING}, ["*"], arch)
        assert found
        assert all(arch in candidate.source.arches for candidate in found)
    without = replace(NOTHING, compiler=None)
    assert targets.candidates(OURS, problems, {"cuda": without}, ["*"], None) == []


# Jobs ----------------------------------------------------------------------------------------------------------------

def test_a_compiled_kernel_is_bound_by_its_prototype(tmp_path):
    job = kernel_job(toy(tmp_path, seed=7), "honest")
    assert [name for name, _ in job.contestant.parameters] == [
        "x", "y", "n", "alpha", "workspace", "workspace_bytes", "queue"]
    assert [kind for _, kind in job.contestant.parameters] == [
        "pointer", "pointer", "int", "float", "pointer", "size_t", "pointer"]
    assert Path(job.contestant.spec.library).is_file()
    assert job.seed == 7
    assert job.torch_device == "cpu"
    assert job.limits.case_flops == 1e9


def test_without_a_device_there_is_nothing_to_run(tmp_path):
    settings = toy(tmp_path)
    cpu = backends.get("cpu")
    absent = replace(cpu.probe(), devices=())
    (candidate,) = targets.candidates(settings, [problem(settings)], {"cpu": absent}, ["honest"], None)
    job = make_kernel_job(settings, candidate, Mode.TEST, [], True)
    assert job.contestant is None
    assert job.peers == ()
    assert job.reason.startswith("compiled; not run")


def test_a_submission_is_staged_with_what_it_may_import(tmp_path):
    staging = tmp_path / "staging"
    path = DATA / "submissions" / "honest.py"
    job = submission_job(toy(tmp_path), path, staging)
    assert sorted(file.name for file in staging.iterdir()) == ["submission.py", "task.py", "utils.py"]
    assert (staging / "submission.py").read_bytes() == path.read_bytes()
    assert job.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert job.kernel == f"honest.py@{job.digest[:8]}"
    assert job.contestant.spec.sys_path == (str(staging),)


def test_a_submission_may_be_called_like_a_file_of_the_problem(tmp_path):
    path = tmp_path / "task.py"
    path.write_text("def custom_kernel(data):\n    return data\n")
    submission_job(toy(tmp_path), path, tmp_path / "staging")
    assert "input_t" in (tmp_path / "staging" / "task.py").read_text()
    assert "custom_kernel" in (tmp_path / "staging" / "submission.py").read_text()


def test_no_submission(tmp_path):
    with pytest.raises(SelectionError, match="no submission file") as caught:
        submission_job(toy(tmp_path), tmp_path / "none.py", tmp_path / "staging")
    assert caught.value.code == 2


def test_a_submission_that_is_a_link_is_not_staged(tmp_path):
    (tmp_path / "secret").write_text("SECRET = 1\n")
    (tmp_path / "s.py").symlink_to(tmp_path / "secret")
    with pytest.raises(SelectionError, match="is a link; give the file itself") as caught:
        submission_job(toy(tmp_path), tmp_path / "s.py", tmp_path / "staging")
    assert caught.value.code == 2
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(SelectionError, match="not a regular file"):
        submission_job(toy(tmp_path), tmp_path / "pipe.py", tmp_path / "staging")


@pytest.mark.parametrize(("header", "name"), [
    ("#!POPCORN leaderboard amd-fp8-mm\n", "amd_fp8_mm"), ("#!POPCORN leaderboard fp8_gemm\n", "fp8_gemm"),
    ("#!POPCORN leaderboard flash-attention\n#!POPCORN gpu H100\n", "flash_attention"),
    ("#!POPCORN leaderboard other\n", None), ("import torch\n#!POPCORN leaderboard fp8_gemm\n", None), ("", None),
])
def test_the_problem_in_a_submissions_header(tmp_path, header, name):
    path = tmp_path / "s.py"
    path.write_text(header)
    assert targets.submission_problem(OURS, path) == name


def test_a_submission_that_cannot_be_read_names_no_problem(tmp_path):
    (tmp_path / "s.py").write_bytes(b"\xff\xfe")
    assert targets.submission_problem(OURS, tmp_path / "s.py") is None
    assert targets.submission_problem(OURS, tmp_path / "none.py") is None


# Peers ---------------------------------------------------------------------------------------------------------------

def test_peers_are_the_files_of_the_problems_folder(tmp_path):
    folder = tmp_path / "peers" / "toy"
    folder.mkdir(parents=True)
    (folder / "whole.py").write_text("# SPDX-License-Identifier: MIT\n")
    (folder / "part.py").write_text("# SPDX-License-Identifier: MIT\n# outputs: o lse\n\nx = 1\n# outputs: no\n")
    (tmp_path / "c.yaml").write_text("paths: {peers: peers}\n")
    settings = load_config(file=str(tmp_path / "c.yaml"), environment={})
    chosen = Problem(DATA / "problems" / "toy")
    place = Place(CUDA, CUDA.target("H100"), None)
    assert [(peer.name, peer.partial) for peer in find_peers(settings, chosen, place)] == [
        ("part", ("o", "lse")), ("whole", ())]
    cpu = backends.get("cpu")
    assert find_peers(settings, chosen, Place(cpu, cpu.target(), None)) == ()


def test_cases_keep_their_order(tmp_path):
    settings = toy(tmp_path)
    cases = [Case({"n": 3}), Case({"n": 1})]
    assert [case.name for case in kernel_job(settings, "honest", cases).cases] == ["n=3", "n=1"]
