# SPDX-License-Identifier: MIT
"""What a bundle holds: what was selected, nothing else that is the user's own, and equal bytes for equal contents."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO

import pytest

import backends
from backends import _prebuilt
from backends.errors import CompileError, Diagnostic
from scoring import cli
from scoring.config.frozen import Section
from scoring.config.load import ConfigError, load_config
from scoring.problem import Problem
from scoring.remote import bundle
from scoring.remote.selection import selection_of
from scoring.run.select import SelectionError
from tests.scoring.harness import ROOT, SETTINGS

TASK = ROOT / "examples" / "gpumode_task"


def staged(folder, *arguments: str):
    """A bundle of a command line: its folder, and the arguments of the run there."""
    options = cli.parser().parse_args(arguments)
    settings = load_config({"problems": options.problem, "kernels": options.kernel, "peers": options.peers},
                           options.config)
    folder.mkdir()
    bundle.stage(folder, settings, selection_of(settings, options))
    return folder, json.loads((folder / "job.json").read_text())["arguments"]


def test_it_holds_the_selected_problems_and_kernels_and_all_headers(tmp_path):
    folder, arguments = staged(tmp_path / "a", "bundle", "--kernel", "fp8_gemm/naive", "--case", "m=64,*", "-D", "A=1")
    assert arguments == ["--config", bundle.SETTINGS, "run", "-D", "A=1", "--case", "m=64,*"]
    code = folder / "code"
    assert [path.name for path in code.glob("problems/*/task.yml")] == ["task.yml"]
    assert (code / "problems" / "fp8_gemm" / "reference.py").is_file()
    files = {path.relative_to(code).as_posix() for path in code.rglob("*") if path.suffix in (".cpp", ".cu", ".hip")}
    kernels = {name for name in files if name.startswith("kernels/")}
    assert "kernels/cpu/fp8_gemm/naive.cpp" in kernels
    assert {name.split("/")[2] for name in kernels} == {"fp8_gemm"}
    assert (code / "kernels" / "cuda" / "gemm" / "plan.h").is_file()
    assert not (code / "benchmarks").exists()
    assert {path.name for path in (folder / "packages").iterdir() if path.is_dir()} >= {"yaml", "pycparser"}
    assert list((folder / "packages").glob("yaml.LICEN*")), "whose licence asks for it"
    packed = bundle.archive(folder)
    assert len(packed) < 5e6
    again, _arguments = staged(tmp_path / "b", "bundle", "--kernel", "fp8_gemm/naive", "--case", "m=64,*", "-D", "A=1")
    assert bundle.identity(bundle.archive(again)) == bundle.identity(packed)
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        assert not [name for name in tar.getnames() if name.startswith(("/", ".."))]


def test_a_submission_and_a_foreign_folder_come_along(tmp_path):
    folder, arguments = staged(
        tmp_path / "a", "bundle", "--task", str(TASK), "--submission", str(TASK / "submission.py"),
        "--against", str(TASK / "wrong_submission.py"))
    flags = dict(zip(arguments[3::2], arguments[4::2], strict=True))
    assert (folder / "code" / flags["--submission"]).read_text() == (TASK / "submission.py").read_text()
    assert (folder / "code" / flags["--against"]).is_file()
    problem = Problem(folder / "code" / flags["--task"])
    assert [case.name for case in problem.cases] == [case.name for case in Problem(TASK).cases]
    assert problem.reference is not None


def test_settings_cross_to_a_machine_without_pydantic_unchanged(tmp_path):
    def plain(value):
        if isinstance(value, Section):
            return {name: plain(each) for name, each in value}
        return [plain(each) for each in value] if isinstance(value, list) else value

    folder, _arguments = staged(tmp_path / "a", "--config", str(SETTINGS), "bundle", "--kernel", "honest")
    here, there = load_config(file=str(SETTINGS)), load_config(file=str(folder / "code" / bundle.SETTINGS))
    values = here.settings.model_dump(mode="json")
    assert plain(there.settings) | {"paths": None, "kernels": None} == values | {"paths": None, "kernels": None}
    assert there.settings.kernels == ["honest"]
    assert there.path("problems") == folder / "code" / "problems"
    assert there.database == folder / "code" / ".." / "records.db"
    (folder / "code" / bundle.SETTINGS).write_text("[]")
    with pytest.raises(ConfigError, match="not the settings of a bundle"):
        load_config(file=str(folder / "code" / bundle.SETTINGS))


def test_what_has_no_kernel_is_no_bundle(tmp_path):
    with pytest.raises(SelectionError, match="no selected problem has a kernel"):
        staged(tmp_path / "a", "bundle", "--kernel", "gone")


def test_a_refused_build_is_refused_there_with_the_same_words(tmp_path, monkeypatch):
    monkeypatch.setattr(_prebuilt, "_chosen", [])
    writer = _prebuilt.Writer(tmp_path)
    error = CompileError("x.cpp:1: error: no", (Diagnostic("x.cpp", 1, "error", "no"),), "log", ["c++"])
    writer.refuse("name", "cpu", error)
    writer.close()
    backends.use_prebuilt(tmp_path)
    assert _prebuilt.backends() == {"cpu"}
    assert _prebuilt.find("other") is None
    with pytest.raises(CompileError, match="error: no") as caught:
        _prebuilt.find("name")
    assert caught.value.diagnostics == error.diagnostics
