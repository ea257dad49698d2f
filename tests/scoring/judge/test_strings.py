# SPDX-License-Identifier: MIT
"""GPU code in Python submissions, without the GPU: strings and Triton run on the emulated GPUs, and CUDA strings are
compiled where that is not asked for. The submissions are those of ``tests/data/strings``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scoring import cli
from scoring.record import ExitCode, Record, Status
from scoring.worker import extensions, places
from tests.scoring.harness import ROOT, SETTINGS

FOLDER = ROOT / "tests" / "data" / "strings"
pytestmark = pytest.mark.timeout(600)      # a test may build the emulator

Judged = Callable[..., tuple[ExitCode, Record]]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Judged:
    """What ``run`` makes of a submission of the folder, in test mode."""
    monkeypatch.setenv("WARPWAVE_DATABASE", str(tmp_path / "records.db"))

    def judge(name: str, gpu: str, *flags: str) -> tuple[ExitCode, Record]:
        path = tmp_path / name if (tmp_path / name).is_file() else FOLDER / name
        flags = flags or ("--mode", "test")
        code = cli.main(["--config", str(SETTINGS), "run", "--task", str(FOLDER), "--submission", str(path),
                         "--gpu", gpu, "--no-save", "--json", *flags])
        return ExitCode(code), Record.from_json(json.loads(capsys.readouterr().out))

    return judge


# Lines of a string in its file ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "source", "wanted"), [
    ('a = 1\ncode = """\nint x;\nint y;\n"""\n', "\nint x;\nint y;\n", '#line 2 "f.py"\n\nint x;\nint y;\n'),
    ('code = """int x;\nint y;"""', "int x;\nint y;", '#line 1 "f.py"\nint x;\nint y;'),
    # An escape: lines beside it tell where it is.
    ('c = """\nint first;\nchar a = \'\\\\n\';\nint second;\n"""', "\nint first;\nchar a = '\\n';\nint second;\n",
     '#line 1 "f.py"\n\nint first;\nchar a = \'\\n\';\nint second;\n'),
    # Two strings in one: the second part is elsewhere.
    ('a = """\nint first;\n"""\nb = """\nint second;\n"""', "int first;\nint second;\n",
     '#line 2 "f.py"\nint first;\n#line 5 "f.py"\nint second;\n'),
    ('a = "int x;\\nint y;\\n"', "int x;\nint y;\n", '#line 1 "f.py"\nint x;\nint y;\n'),
    ("a = 1", "int x;\n", "int x;\n"),
    ("a = 1", "\n", "\n"),
    # What torch recognises as its own translation stays first.
    ('c = r"""// !!! done\nint x;\n"""', "// !!! done\nint x;\n", '// !!! done\n#line 2 "f.py"\nint x;\n'),
])
def test_compilers_are_told_the_lines_of_the_submission(text: str, source: str, wanted: str) -> None:
    assert places.numbered(source, text, "f.py") == wanted


def test_no_line_is_named_in_the_middle_of_a_macro() -> None:
    text = 'a = """\n#define A int first; \\\n"""\nb = """\nint second;\n"""'
    assert "\\\n#line" not in places.numbered("#define A int first; \\\nint second;\n", text, "f.py")


# HIP and Triton on the emulated MI300X --------------------------------------------------------------------------------

@pytest.mark.sampled(2)
@pytest.mark.toolchain("rocm")
@pytest.mark.parametrize("name", ["hip_right.py", "triton_add.py", "triton_matmul.py"])
def test_right_code_passes_and_says_that_it_was_emulated(judged: Judged, name: str) -> None:
    if name.startswith("triton"):
        pytest.importorskip("triton")
    code, record = judged(name, "MI300")
    assert (code, record.status) == (ExitCode.OK, Status.PASSED), record.message
    assert (record.facts.emulated, record.facts.checks, record.facts.stand_in) == (True, "all", "")
    (case,) = record.cases
    assert case.stats is None
    (launch,) = case.counters            # the autotuner's launches are not the call's
    assert launch["instructions"] > 0


@pytest.mark.sampled(1)
@pytest.mark.toolchain("rocm")
@pytest.mark.parametrize(("name", "line", "behind"), [
    ("hip_bounds.py", 19, "0 bytes behind 'data.0'"), ("triton_bounds.py", 16, "0 bytes behind 'a torch tensor'")])
def test_a_finding_is_at_the_line_of_the_submission(judged: Judged, name: str, line: int, behind: str) -> None:
    """Right numbers, but for what lies behind the tensors, whose size the checks know to the byte."""
    if name.startswith("triton"):
        pytest.importorskip("triton")
    code, record = judged(name, "MI300")
    assert (code, record.status) == (ExitCode.FAILED, Status.RUNTIME_ERROR)
    (case,) = record.cases
    assert f"/{name}:{line}" in case.message, case.message
    assert behind in case.message
    assert {(finding["check"], finding["file"]) for finding in case.findings} == {("bounds", str(FOLDER / name))}


@pytest.mark.toolchain("rocm")
def test_hip_that_does_not_compile_is_told_at_its_line(judged: Judged, tmp_path: Path) -> None:
    text = (FOLDER / "hip_right.py").read_text()
    (tmp_path / "broken.py").write_text(text.replace("float sum = 0;", "float sum = nothing;"))
    code, record = judged("broken.py", "MI300")
    assert (code, record.status) == (ExitCode.FAILED, Status.COMPILE_ERROR)
    (told,) = [each for each in record.compile["diagnostics"] if each["severity"] == "error"]
    line = next(at for at, each in enumerate(text.splitlines(), 1) if "float sum" in each)
    assert (Path(told["file"]).name, told["line"]) == ("broken.py", line)
    assert "nothing" in told["message"]


@pytest.mark.toolchain("rocm")
def test_a_time_is_modelled(judged: Judged) -> None:
    code, record = judged("hip_right.py", "MI300", "--mode", "benchmark")
    assert (code, record.status, record.evidence) == (ExitCode.OK, Status.PASSED, "modelled"), record.message
    assert record.score is not None
    assert record.protocol.startswith("modelled/")


@pytest.mark.slow
@pytest.mark.toolchain("rocm")
def test_an_extension_with_torchs_headers(judged: Judged) -> None:
    """Guards, the current queue, checks of error codes, is_cuda: what contest submissions use of torch's C++."""
    code, record = judged("hip_torch.py", "MI300")
    assert (code, record.status) == (ExitCode.OK, Status.PASSED), record.message


# CUDA and Triton on the emulated NVIDIA GPUs ------------------------------------------------------------------------

EMULATED = ("--emulate", "--mode", "test")


@pytest.mark.sampled(3)
@pytest.mark.toolchain("cuda")
@pytest.mark.parametrize(("name", "gpu"), [
    ("cuda_right.py", "L4"), ("triton_matmul.py", "H100"), ("cuda_late.py", "H100"), ("triton_add.py", "L4")])
def test_right_code_passes_on_an_emulated_nvidia_gpu(judged: Judged, name: str, gpu: str) -> None:
    if name.startswith("triton"):
        pytest.importorskip("triton")
    code, record = judged(name, gpu, *EMULATED)
    assert (code, record.status) == (ExitCode.OK, Status.PASSED), record.message
    assert (record.facts.emulated, record.facts.checks, record.facts.stand_in) == (True, "all", "")
    (case,) = record.cases
    assert (case.stats, case.counters[-1]["instructions"] > 0) == (None, True)


@pytest.mark.sampled(1)
@pytest.mark.toolchain("cuda")
@pytest.mark.parametrize(("name", "line", "behind"), [
    ("cuda_bounds.py", 19, "0 bytes behind 'data.0'"), ("triton_bounds.py", 16, "0 bytes behind 'a torch tensor'")])
def test_a_finding_of_an_emulated_nvidia_gpu_is_at_its_line(
    judged: Judged, tmp_path: Path, name: str, line: int, behind: str
) -> None:
    path = FOLDER / name
    if name.startswith("triton"):
        pytest.importorskip("triton")
    else:                        # the HIP file in CUDA's words
        text, path = (FOLDER / "hip_bounds.py").read_text(), tmp_path / name
        for theirs, ours in (("hip/hip_runtime.h", "cuda_runtime.h"), ("hipGet", "cudaGet"),
                             ("version.hip", "version.cuda"), (', "--offload-arch=gfx942"', "")):
            assert text.count(theirs) == 1
            text = text.replace(theirs, ours)
        path.write_text(text)
    code, record = judged(name, "L4", *EMULATED)
    assert (code, record.status) == (ExitCode.FAILED, Status.RUNTIME_ERROR)
    (case,) = record.cases
    assert f"{path}:{line}" in case.message, case.message
    assert behind in case.message


@pytest.mark.toolchain("cuda")
def test_a_launch_that_fails_unseen_is_told(judged: Judged, tmp_path: Path) -> None:
    """The file asks for more threads than a block has, and does not look at what the launch returns."""
    text = (FOLDER / "cuda_right.py").read_text()
    (tmp_path / "wide.py").write_text(text.replace("m), 256>>>", "m), 2048>>>"))
    code, record = judged("wide.py", "L4", *EMULATED)
    assert (code, record.status) == (ExitCode.FAILED, Status.INCORRECT_NUMERICAL)
    (case,) = record.cases
    assert "2048" in case.message.splitlines()[0], case.message


def test_machine_code_becomes_ptx() -> None:
    asked = ["-O3", "-gencode=arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_89,code=sm_89", "-arch=sm_90a",
             "--gpu-architecture=sm_80", "-arch", "sm_89", "-DA=sm_1"]
    assert extensions._as_ptx(asked) == [
        "-O3", "-gencode=arch=compute_90a,code=compute_90a", "-gencode", "arch=compute_89,code=compute_89",
        "-arch=compute_90a", "--gpu-architecture=compute_80", "-arch", "compute_89", "-DA=sm_1"]


# CUDA for a GPU that is not here --------------------------------------------------------------------------------------

@pytest.mark.sampled(1)
@pytest.mark.toolchain("cuda")
@pytest.mark.parametrize(("name", "gpu", "arch"), [("cuda_right.py", "L4", "sm_89"), ("cuda_late.py", "H100", "sm_90")])
def test_cuda_is_compiled_and_not_run(judged: Judged, name: str, gpu: str, arch: str) -> None:
    code, record = judged(name, gpu)
    assert (code, record.status) == (ExitCode.UNAVAILABLE, Status.UNAVAILABLE), record.message
    assert record.message == (f"compiled for {gpu} ({arch}) and not run (product): no {gpu} here; "
                              "--emulate runs it on the CPU")
    (kernel,) = record.usage
    assert kernel["name"].startswith("product_kernel")
    assert (kernel["registers"] > 0, kernel["spill_bytes"], kernel["shared_bytes"]) == (True, 0, 1024)
    assert (record.cases, record.score, record.facts.stand_in) == ((), None, "")


@pytest.mark.toolchain("cuda")
def test_cuda_that_does_not_compile_is_told_at_its_line(judged: Judged) -> None:
    code, record = judged("cuda_syntax.py", "H100")
    assert (code, record.status) == (ExitCode.FAILED, Status.COMPILE_ERROR)
    (told,) = [each for each in record.compile["diagnostics"] if each["severity"] == "error"]
    assert (Path(told["file"]).name, told["line"], told["message"]) == (
        "cuda_syntax.py", 16, 'identifier "c" is undefined')


@pytest.mark.toolchain("cuda")
def test_a_submission_without_cuda_says_that_nothing_was_compiled(judged: Judged, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def custom_kernel(data):\n    return data[0] @ data[1]\n")
    code, record = judged("plain.py", "L4")
    assert (code, record.status) == (ExitCode.UNAVAILABLE, Status.UNAVAILABLE)
    assert "no L4 here; nothing was compiled" in record.message


@pytest.mark.slow
@pytest.mark.toolchain("cuda")
def test_a_cuda_extension_with_torchs_headers_runs(judged: Judged) -> None:
    code, record = judged("cuda_torch.py", "H100", *EMULATED)
    assert (code, record.status) == (ExitCode.OK, Status.PASSED), record.message


@pytest.mark.slow
@pytest.mark.toolchain("cuda")
def test_a_cuda_extension_with_torchs_headers(judged: Judged) -> None:
    code, record = judged("cuda_torch.py", "H100")
    assert (code, record.status) == (ExitCode.UNAVAILABLE, Status.UNAVAILABLE), record.message
    assert [kernel["registers"] > 0 for kernel in record.usage] == [True]
