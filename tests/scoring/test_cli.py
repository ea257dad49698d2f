# SPDX-License-Identifier: MIT
"""``python -m scoring`` from outside: exit codes, what goes to stdout, and what is left when it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scoring import cli
from scoring.record import ExitCode, Record, Status
from scoring.store.store import Store
from tests.scoring.harness import DATA, ROOT, SETTINGS, alive, scoring, start, touched, wait_until, workers

TOY = ["--config", str(SETTINGS)]
RUN = [*TOY, "run", "--case", "n=64"]


@pytest.fixture
def environment(tmp_path, cache) -> dict[str, str]:
    return {
        "WARPWAVE_DB": str(tmp_path / "records.db"), "WARPWAVE_CACHE_DIR": str(cache), "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def main(environment, monkeypatch, capsys):
    """The command line in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str, shows_the_submissions: int = 0) -> tuple[int, str, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = cli.main(arguments)
        except SystemExit as stop:       # argparse
            code = stop.code
        out, err = capsys.readouterr()
        said = out + err
        for _ in range(shows_the_submissions):       # so many tracebacks of its own, no more
            assert "custom_kernel failed: Traceback" in said
            said = said.replace("custom_kernel failed: Traceback", "", 1)
        assert "Traceback" not in said
        assert "internal error" not in err
        return int(code), out, err

    return call


def records(text: str) -> list[Record]:
    return [Record.from_json(json.loads(line)) for line in text.splitlines()]


# Exit codes ----------------------------------------------------------------------------------------------------------

def test_what_passes_is_0_and_kept(main, environment):
    code, out, _err = main(*RUN, "--kernel", "honest")
    assert code == 0
    assert "1 passed" in out
    (kept,) = Store(environment["WARPWAVE_DB"]).records()
    assert (kept.kernel, kept.status) == ("cpu/honest", Status.PASSED)


def test_what_fails_is_1_and_kept_as_well(main, environment):
    code, out, _err = main(*RUN, "--kernel", "error7", "--kernel", "broken", "--kernel", "honest")
    assert code == 1
    assert "kernels/cpu/toy/broken.cpp:6" in out
    assert {r.kernel: r.status for r in Store(environment["WARPWAVE_DB"]).records()} == {
        "cpu/error7": Status.RUNTIME_ERROR, "cpu/broken": Status.COMPILE_ERROR, "cpu/honest": Status.PASSED}


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "VERB"),
    (["fly"], "invalid choice: 'fly'"),
    (["fly"], "python -m scoring --help shows what there is"),
    ([*TOY, "run", "toy"], "run takes no toy: a problem is selected by --problem NAME, a kernel by --kernel"),
    ([*TOY, "run", "s.py"], "run takes no s.py: a submission is given by --submission FILE"),
    ([*TOY, "doctor", "toy"], "doctor takes no toy\n"),
    (["run", *TOY], "run takes no --config"),
    ([*TOY, "run", "--mode", "fast"], "invalid choice: 'fast'"),
    ([*TOY, "run", "--seed", "x"], "invalid int value"),
    ([*TOY, "run", "--seconds", "0"], "error: --seconds: "),
    ([*TOY, "run", "--seconds", "nan"], "error: --seconds: "),
    ([*TOY, "run", "--mode", "leaderboard", "--seed", "3"], "leaderboard mode draws its own"),
    ([*TOY, "run", "--backend", "metal"], "unknown backend 'metal'; there are: cpu, cuda, rocm"),
    ([*TOY, "list", "--backend", "metal"], "unknown backend 'metal'"),
    ([*TOY, "build", "--backend", "hip"], "there are: cpu, cuda, rocm; HIP kernels are rocm's"),
    ([*TOY, "run", "--problem", "toys"], "unknown problem 'toys'"),
    ([*TOY, "run", "--gpu", "H1000"], "unknown GPU or arch 'H1000'; there are: CPU, H100"),
    ([*TOY, "run", "--arch", "sm_1"], "unknown GPU or arch 'sm_1'"),
    ([*TOY, "run", "--task", "/nowhere"], "--task needs --submission FILE"),
    ([*TOY, "run", "--submission", "/nowhere/s.py"], "no submission file /nowhere/s.py"),
    ([*TOY, "run", "--submission", str(DATA / "submissions/honest.py")], "needs one --problem NAME or --task DIR"),
    ([*TOY, "run", "--submission", str(DATA / "submissions/honest.py"), "--task", "/nowhere"], "no task.yml there"),
    ([*TOY, "run", "--kernel", "honest", "--junit", "/nowhere/x.xml"], "--junit /nowhere/x.xml"),
    (["--config", "/nowhere.yaml", "list"], "--config: no file /nowhere.yaml"),
    ([*TOY, "report", "--output", "/proc/no/report.html"], None),
])
def test_what_the_user_can_mend_is_2(main, environment, arguments, words):
    if words is None:
        Store(environment["WARPWAVE_DB"]).add(_some_record())
    code, out, err = main(*arguments)
    assert code == ExitCode.USAGE
    assert out == ""
    assert (words or "error: ") in err


def test_a_python_without_our_packages_is_told_which_has_them(main, monkeypatch):
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(cli.importlib, "import_module", absent)
    package = "pydantic"
    code, out, err = main("doctor")
    assert (code, out) == (ExitCode.UNAVAILABLE, "")
    assert f"error: {sys.executable} has no package 'pydantic'" in err
    assert ".venv/bin/python" in err
    assert cli.missing(ModuleNotFoundError("no", name="scoring.verbs.nope")) == "", "a mistake of ours is no advice"


def _some_record() -> Record:
    from tests.scoring.records import sample

    return sample()[0]


@pytest.mark.parametrize("arguments", [
    ["run", "--kernel", "nothing-like-it"], ["run", "--case", "n=65*"], ["run", "--problem", "x*"],
    ["build", "--kernel", "nothing-like-it"], ["list", "--problem", "x*"], ["leaderboard"], ["report"],
    ["run", "--submission", str(DATA / "submissions/honest.py"), "--problem", "toy", "--case", "n=65*"],
])
def test_nothing_matches_is_5(main, arguments):
    code, _out, _err = main(*TOY, *arguments)
    assert code == ExitCode.NOTHING


def test_a_backend_that_is_not_here_is_4(main, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    code, out, err = main(*RUN, "--backend", "cpu", "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE
    assert out == ""
    assert "error: cpu: C++ compiler not found" in err
    code, _out, err = main(*RUN, "--gpu", "CPU", "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE
    assert "CPU needs the backend cpu" in err


def test_a_gpu_that_is_not_here_is_4(main, monkeypatch):
    import backends
    from backends.base import Availability

    monkeypatch.setattr(type(backends.get("cpu")), "probe",
                        lambda self: Availability("/usr/bin/c++", "1", (), ("the CPU is on holiday",)))
    code, out, _err = main(*RUN, "--backend", "cpu", "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE
    assert "not run: no CPU here" in out
    code, _out, _err = main(*RUN, "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE, "nothing was judged, which is no pass"
    code, _out, _err = main(*RUN, "--submission", str(DATA / "submissions/honest.py"), "--problem", "toy",
                            "--backend", "cpu")
    assert code == ExitCode.UNAVAILABLE


def test_a_broken_problem_is_neither_a_pass_nor_the_kernels_failure(main, tmp_path):
    task = foreign(tmp_path / "task", "raise KeyError('lost')")
    code, out, _err = main(*TOY, "run", "--task", str(task), "--submission", str(answer(tmp_path, "return data")))
    assert code == ExitCode.USAGE
    assert "reference.py:5: generate_input failed: KeyError: 'lost'" in out


# Output --------------------------------------------------------------------------------------------------------------

def test_json_is_one_document_per_record_and_nothing_else(main, environment):
    code, out, err = main(*RUN, "--json", "--kernel", "honest", "--kernel", "nan", "--kernel", "broken")
    assert code == 1
    found = records(out)
    assert [record.kernel for record in found] == ["cpu/broken", "cpu/honest", "cpu/nan"]
    assert [record.status for record in found] == [Status.COMPILE_ERROR, Status.PASSED, Status.INCORRECT_NUMERICAL]
    assert {record.id for record in found} == {r.id for r in Store(environment["WARPWAVE_DB"]).records()}
    assert err == ""


@pytest.mark.parametrize("verb", [["list"], ["doctor"]])
def test_json_of_other_verbs_is_one_document(main, verb):
    code, out, _err = main(*TOY, *verb, "--json")
    assert code == 0
    assert json.loads(out)["schema"] == 1


def test_nothing_is_kept_when_nothing_should_be(main, environment):
    code, _out, _err = main(*RUN, "--no-save", "--kernel", "honest")
    assert code == 0
    assert not Path(environment["WARPWAVE_DB"]).exists()
    code, _out, _err = main(*TOY, "build", "--kernel", "honest")
    assert code == 0
    assert not Path(environment["WARPWAVE_DB"]).exists()


def test_junit_is_xml_whatever_the_submission_says(main, tmp_path, environment):
    """A message with control characters, half a character, markup and a workflow command in it reaches every output."""
    path = tmp_path / "out.xml"
    arguments = ["--submission", str(DATA / "submissions/raises_text.py"), "--problem", "toy", "--junit", str(path)]
    code, out, _err = main(*RUN, *arguments, shows_the_submissions=1)
    assert code == 1
    root = ET.parse(path).getroot()
    (name,) = [case.get("name") for case in root.iter("testcase")]
    assert re.fullmatch(r"raises_text\.py@[0-9a-f]{8}\[n=64\]", name)
    assert root.find(".//error") is not None
    assert "\x1b[31m" not in out
    assert not any(line.startswith("::") for line in out.splitlines())
    (kept,) = Store(environment["WARPWAVE_DB"]).records()
    assert kept.status is Status.RUNTIME_ERROR
    code, out, _err = main(*RUN, "--json", *arguments[:4], shows_the_submissions=2)      # of the record and of its case
    assert records(out)[0].status is Status.RUNTIME_ERROR


def test_github_gets_annotations_and_a_summary(main, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, _err = main(*RUN, "--kernel", "broken")
    assert code == 1
    assert "::error file=kernels/cpu/toy/broken.cpp,line=6::" in out
    assert "COMPILE_ERROR" in (tmp_path / "summary.md").read_text()


def test_help_and_versions_of_every_verb():
    for verb in ([], ["run"], ["tune"], ["list"], ["build"], ["doctor"], ["audit"], ["leaderboard"], ["report"]):
        done = scoring([*verb, "--help"], {})
        assert done.returncode == 0
        assert done.stdout.startswith("usage: python -m scoring")


# Foreign folders -----------------------------------------------------------------------------------------------------

def foreign(folder: Path, generate: str = "return torch.arange(n) * seed") -> Path:
    folder.mkdir()
    (folder / "task.yml").write_text(
        "files:\n  - {name: submission.py, source: '@SUBMISSION@'}\n  - {name: reference.py, source: reference.py}\n"
        "lang: py\ndescription: d\ntests: [{n: 4, flag: true, seed: 1}]\nbenchmarks: [{n: 5, flag: false, seed: 1}]\n")
    (folder / "reference.py").write_text(
        f"import torch\n\ndef generate_input(n, flag, seed):\n    assert flag in ('True', 'False')\n    {generate}\n\n"
        "def ref_kernel(data):\n    return data + 1\n\n"
        "def check_implementation(data, output):\n    return '' if torch.equal(output, data + 1) else 'off by one'\n")
    return folder


def answer(folder: Path, body: str) -> Path:
    path = folder / "answer.py"
    path.write_text(f"def custom_kernel(data):\n    {body}\n")
    return path


def test_a_foreign_folder_is_scored_as_it_is(main, tmp_path):
    task = foreign(tmp_path / "task")
    code, out, err = main(*TOY, "run", "--json", "--task", str(task),
                          "--submission", str(answer(tmp_path, "return data + 1")))
    assert code == 0
    (record,) = records(out)
    assert [(result.case.name, result.status) for result in record.cases] == [("n=4,flag=True", Status.PASSED)]
    assert "the boolean arrives as the word 'True'" in err
    code, out, _err = main(*TOY, "run", "--task", str(task), "--submission", str(answer(tmp_path, "return data")))
    assert code == 1
    assert "off by one" in out


@pytest.mark.skipif(not (ROOT / "examples" / "gpumode_task" / "task.yml").is_file(), reason="no such example here")
def test_the_example_of_a_foreign_folder(main):
    folder = ROOT / "examples" / "gpumode_task"
    files = [path for path in folder.glob("*.py") if "custom_kernel" in path.read_text() and path.stem != "eval"]
    submission = next(path for path in files if path.name.startswith("submission"))
    code, out, err = main("run", "--mode", "test", "--no-save", "--task", str(folder), "--submission", str(submission),
                          "--backend", "cpu")
    assert code == 0, out + err


# Stopping ------------------------------------------------------------------------------------------------------------

def test_a_reader_that_goes_away_is_no_error(environment):
    command = f"{sys.executable} -m scoring --config {SETTINGS} list | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_an_error(environment):
    with open("/dev/full", "w") as full:     # noqa: PTH123
        done = subprocess.run([sys.executable, "-m", "scoring", *TOY, "list"], cwd=ROOT, stdout=full,
                              env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_a_terminal_with_few_letters(environment):
    done = scoring([*TOY, "list"], {**environment, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "toy" in done.stdout


@pytest.fixture
def hanging(environment):
    """Start a run that waits for a call (or an import) that never ends; one good record is kept already."""
    started = []

    def begin(name: str = "hangs") -> subprocess.Popen[str]:
        Store(environment["WARPWAVE_DB"]).add(_some_record())
        arguments = ["--submission", str(DATA / "submissions" / f"{name}.py"), "--problem", "toy"]
        started.append(start([*RUN, *arguments], environment))
        marker = "called" if name == "hangs" else "importing"
        assert wait_until(lambda: touched(started[0].pid, marker), 60), "the submission was never called"
        return started[0]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["hangs", "hangs_at_import"])
def test_ctrl_c_ends_at_once_with_130(hanging, environment, tmp_path, name):
    process = hanging(name)
    assert workers(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert process.returncode == ExitCode.INTERRUPTED
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
    assert out == ""
    assert workers(process.pid) == []
    assert len(Store(environment["WARPWAVE_DB"]).records()) == 1
    assert not list(tmp_path.glob("warpwave-*")), "the staged files are gone"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_judge_that_is_killed_takes_its_worker_along(hanging, environment, number):
    process = hanging()
    before = workers(process.pid)
    assert before
    process.send_signal(number)
    process.communicate(timeout=15)
    assert process.returncode != 0
    assert wait_until(lambda: not any(map(alive, before)), 10)
    assert workers(process.pid) == []
    assert len(Store(environment["WARPWAVE_DB"]).records()) == 1


def test_two_runs_at_once_keep_all_their_records(environment):
    runs = [start([*RUN, "--json", "--kernel", "honest", "--kernel", "error7"], environment) for _ in range(2)]
    ids = set()
    for process in runs:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 1, err
        ids |= {record.id for record in records(out)}
    assert len(ids) == 4
    assert {record.id for record in Store(environment["WARPWAVE_DB"]).records()} == ids


# Errors that are ours ------------------------------------------------------------------------------------------------

def test_a_bug_of_ours_is_3_and_can_be_seen_whole(monkeypatch, capsys):
    import scoring.verbs.list as verb

    monkeypatch.setattr(verb, "discover", lambda root: 1 / 0)
    assert cli.main(["list"]) == ExitCode.INTERNAL
    assert "internal error: ZeroDivisionError: division by zero" in capsys.readouterr().err
    monkeypatch.setenv("WARPWAVE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["list"])


def test_ctrl_c_in_any_verb_is_130(monkeypatch, capsys):
    import scoring.verbs.doctor as verb

    monkeypatch.setattr(verb, "gather", lambda settings: (_ for _ in ()).throw(KeyboardInterrupt))
    assert cli.main(["doctor"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
