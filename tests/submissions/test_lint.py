# SPDX-License-Identifier: MIT
"""Lint: every acceptance check of a server, with its line; and no file, however broken, makes it fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.record import ExitCode
from submissions import lint
from submissions.__main__ import main
from tests.submissions.conftest import ROOT

HEAD = "#!POPCORN leaderboard amd-fp8-mm\n#!POPCORN gpus MI300\n"
BODY = "def custom_kernel(data):\n    return data[4]\n"
H100 = "#!POPCORN leaderboard fp8-gemm\n#!POPCORN gpus H100\n"


def lines(text: str | bytes, name: str = "submission.py", **options: object) -> list[tuple[int, str, str]]:
    data = text if isinstance(text, bytes) else text.encode()
    return [(item.line, item.severity, item.message) for item in lint.lint(data, name, **options)]     # type: ignore[arg-type]


def only(text: str | bytes, name: str = "submission.py", **options: object) -> tuple[int, str, str]:
    (finding,) = lines(text, name, **options)
    return finding


def test_a_task_that_calls_other_functions() -> None:
    """Of a leaderboard that nobody here knows, only the task can say what is called."""
    head = "#!POPCORN leaderboard cross-entropy\n#!POPCORN gpus A100\n"
    other = head + "def twice_forward(x): pass\ndef twice_backward(x, g): pass\n"
    where, severity, message = only(other)
    assert (where, severity) == (0, "warning")
    assert message.startswith("defines no custom_kernel(data)")
    assert "--task FOLDER" in message
    assert only(head + "x = 1\n")[1:] == ("error", "defines no custom_kernel(data) at top level")
    calls = ("twice_forward", "twice_backward")
    assert lines(other, functions=calls) == []
    assert only(other, functions=(*calls, "half"))[1:] == ("error", "defines no half(…) at top level")
    assert only(other, functions=("custom_kernel",))[1:] == ("error", "defines no custom_kernel(data) at top level")


def test_lint_asks_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reference and evaluator are read; neither is run."""
    task = (ROOT / "examples/gpumode_task/task.yml").read_text()
    (tmp_path / "task.yml").write_text(task.replace("../../submissions/eval.py", "eval.py"))
    (tmp_path / "reference.py").write_text(
        "raise SystemExit\ndef generate_inputs(n): pass\ndef reference_forward(x): pass\n")
    (tmp_path / "eval.py").write_text("raise SystemExit\nmodule.twice_forward(1)\n")
    file = tmp_path / "submission.py"
    file.write_text("#!POPCORN leaderboard x\n#!POPCORN gpus H100\ndef twice_forward(x): pass\n")
    asked = ["lint", str(file), "--task", str(tmp_path)]
    assert main(asked) == ExitCode.OK
    file.write_text(file.read_text().replace("twice_forward", "thrice_forward"))
    assert main(asked) == ExitCode.FAILED
    assert main(["lint", str(file), "--task", str(ROOT / "examples/gpumode_task")]) == ExitCode.FAILED
    told = capsys.readouterr().out
    names = ("twice_forward(…)", "custom_kernel(data)")
    assert [line for line in told.splitlines() if "defines no" in line] == [
        f"{file}: error: defines no {name} at top level" for name in names]
    (tmp_path / "reference.py").write_text("def f(:\n")
    assert main(asked) == ExitCode.USAGE
    assert main(["lint", str(file), "--task", str(tmp_path / "nowhere")]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("error: ") == 2


def test_a_good_file_has_no_findings() -> None:
    assert lines(HEAD + BODY) == []
    assert lint.lint((ROOT / "examples/gpumode_task/submission.py").read_bytes(), "submission.py") == []


@pytest.mark.parametrize(("text", "name", "line", "words"), [
    (HEAD + BODY, "submission.txt", 0, "extension"),
    (HEAD + BODY, "submission", 0, "extension"),
    (HEAD + BODY + "#" * 1_000_000, "submission.py", 0, "the limit is 1000000"),
    (b"#!POPCORN\n\xff", "submission.py", 2, "not UTF-8"),
    (" \n\n", "submission.py", 0, "empty"),
    (HEAD + BODY + "# see UpStream\n", "submission.py", 5, "the letters 'stream'"),
    (HEAD + "#!POPCORN colour red\n" + BODY, "submission.py", 3, "unknown directive"),
    (HEAD + "#!POPCORN gpus MI300\n" + BODY, "submission.py", 3, "again"),
    (HEAD.replace("MI300", "mi300") + BODY, "submission.py", 2, "the case matters: MI300"),
    (HEAD.replace("MI300", "H100") + BODY, "submission.py", 2, "no GPU of leaderboard amd-fp8-mm"),
    (HEAD + "def other(data): pass\n", "submission.py", 0, "custom_kernel"),
    (HEAD + "def custom_kernel(data:\n", "submission.py", 3, "not Python"),
    (HEAD + BODY + "\0", "submission.py", 0, "not Python"),
])
def test_errors(text: str | bytes, name: str, line: int, words: str) -> None:
    where, severity, message = only(text, name)
    assert (where, severity) == (line, "error") or ("not Python" in message and severity == "error")
    assert words in message


@pytest.mark.parametrize(("text", "line", "words"), [
    (H100.replace("H100", "CPU") + BODY, 2, "label for local runs"),
    (H100.replace("H100", "H100 L4") + BODY, 2, "popcorn-cli takes one GPU"),
    (H100.replace("H100", "RTX9") + BODY, 2, "RTX9 is no GPU of any leaderboard known here"),
    ("#!POPCORN leaderboard fp8-gemm\n" + BODY, 0, "no GPU"),
    ("#!POPCORN gpus H100\n" + BODY, 0, "no leaderboard"),
    (HEAD + BODY + "#!POPCORN leaderboard other\n", 5, "popcorn-cli reads leaderboard other here"),
    (HEAD + "x = 1\n//!POPCORN gpu H100\n", 4, "popcorn-cli reads gpus H100 here"),
])
def test_warnings(text: str, line: int, words: str) -> None:
    found = [item for item in lines(text) if item[1] == "warning"]
    assert [item[0] for item in found] == [line]
    assert words in found[0][2]


def test_a_board_with_one_gpu_has_a_default() -> None:
    assert lines("#!POPCORN leaderboard amd-fp8-mm\n" + BODY) == []


def test_the_command_line_overrides_gpus_and_must_agree_on_the_board() -> None:
    assert lines(HEAD.replace("MI300", "H100") + BODY, gpus=["MI300"]) == []
    assert "the header says leaderboard amd-fp8-mm" in only(HEAD + BODY, leaderboard="other")[2]
    assert lines(BODY, leaderboard="amd-fp8-mm") == []


def test_a_flood_of_banned_lines_is_cut() -> None:
    found = lines(HEAD + BODY + "# stream\n" * 1000)
    assert len(found) == 21
    assert "980 more" in found[-1][2]


def test_other_languages_are_not_parsed_as_python() -> None:
    assert lines("//!POPCORN leaderboard fp8-gemm\n//!POPCORN gpus H100\nint main() {}\n", "submission.cu") == []


@pytest.mark.parametrize("definition", [
    "custom_kernel = print\n", "from task import ref as custom_kernel\n", "class custom_kernel: pass\n",
    "if True:\n    def custom_kernel(data): pass\n", "custom_kernel: object = print\n",
])
def test_any_definition_of_custom_kernel_will_do(definition: str) -> None:
    assert lines(HEAD + definition) == []


# Architecture flags of load_inline


def build(flags: str, more: str = "", head: str = H100) -> str:
    return f"{head}from torch.utils.cpp_extension import load_inline\n{more}" \
           f"m = load_inline('m', '', cuda_sources='''wgmma.mma''', extra_cuda_cflags={flags})\n" + BODY


@pytest.mark.parametrize("flags", [
    "['-gencode=arch=compute_90a,code=sm_90a']", "['-gencode', 'arch=compute_90a,code=sm_90a']", "['-arch=sm_90a']",
    "['--gpu-architecture=sm_90a']",
])
def test_named_architectures_are_fine(flags: str) -> None:
    assert lines(build(flags)) == []
    assert lines(build("FLAGS", f"FLAGS = {flags}\n")) == []


def test_letters_that_switch_torchs_own_flags_off() -> None:
    line, severity, message = only(build("['-O3', '-Iresearch/include']"))
    assert (line, severity) == (4, "error")
    assert "'-Iresearch/include' contains the letters 'arch'" in message


def test_hopper_instructions_need_the_architecture_by_name() -> None:
    assert only(build("['-O3']"))[1] == "error"
    plain = only(build("['-O3']").replace("wgmma.mma", "plain"))
    assert plain[:2] == (4, "warning")
    assert "never for sm_90a" in plain[2]


def test_rocm_takes_its_architecture_from_the_environment() -> None:
    flags = "['--offload-arch=gfx942']"
    assert "PYTORCH_ROCM_ARCH" in only(build(flags, head=HEAD))[2]
    assert lines(build(flags, "import os\nos.environ['PYTORCH_ROCM_ARCH'] = 'gfx942'\n", HEAD)) == []


def test_options_passed_as_a_dictionary_are_found() -> None:
    text = H100 + ("from torch.utils import cpp_extension\n"
                   "options = {'cuda_sources': ['wgmma.mma'], 'extra_cuda_cflags': ['-gencode=arch=compute_90a']}\n"
                   "m = cpp_extension.load_inline(**options)\n") + BODY
    assert lines(text) == []
    assert only(text.replace("-gencode=arch=compute_90a", "-O3"))[1] == "error"


def test_host_code_needs_no_architecture() -> None:
    assert lines(H100 + "from torch.utils.cpp_extension import load_inline\nm = load_inline('m', '')\n" + BODY) == []


# Results


def test_exit_code_and_json() -> None:
    warning = lint.lint(("#!POPCORN leaderboard fp8-gemm\n" + BODY).encode(), "s.py")
    error = lint.lint(b"x = 1\n", "s.py")
    assert lint.exit_code([]) is lint.exit_code(warning) is ExitCode.OK
    assert lint.exit_code(error) is ExitCode.FAILED
    (entry,) = json.loads(lint.to_json(warning))
    assert (entry["file"], entry["line"], entry["severity"]) == ("s.py", 0, "warning")


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert all(item.severity in ("error", "warning") for item in lint.lint(data, "submission.py"))


PIECES = st.sampled_from([
    "#!POPCORN ", "leaderboard ", "gpus ", "MI300 ", "\n", "def custom_kernel(d): pass\n", "load_inline(", "'",
    "stream", "cuda_sources=", "extra_cuda_cflags=", "['-arch']", "**x", ")", ",", "\\", "\0", "é"])


@given(st.lists(PIECES, max_size=25).map("".join), st.sampled_from(["a.py", "a.cu", "a"]))
def test_any_text(text: str, name: str) -> None:
    found = lint.lint(text.encode(), name, "amd-fp8-mm", ["MI300"])
    assert any("stream" in item.message for item in found) == ("stream" in text)
    assert all(0 <= item.line <= text.count("\n") + 2 for item in found)


def test_every_example_submission_lints() -> None:
    for path in sorted((ROOT / "examples").rglob("*submission*.py")):
        assert lint.lint(path.read_bytes(), str(Path(path.name))) == []
