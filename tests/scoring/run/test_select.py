# SPDX-License-Identifier: MIT
"""What a run or a list is made of: broken files beside good ones, values of tunables, names that do not exist."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scoring import cli
from scoring.run.select import SelectionError, is_kernel, problem_names
from scoring.store.store import Store
from tests.scoring.harness import DATA, ROOT, SETTINGS

TOY = ["--config", str(SETTINGS)]
TUNED = """// SPDX-License-Identifier: MIT
//!KERNEL summary right with FACTOR=1 alone
//!KERNEL tune FACTOR=1,2
//!KERNEL define SIGN=1
#include "toy.h"

TOY {
    honest(x, y, n, alpha * FACTOR * SIGN);
    return 0;
}
"""


@pytest.fixture
def main(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(cache))

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as stop:       # argparse
            code = stop.code
        out, err = capsys.readouterr()
        assert "internal error" not in err
        return int(code), out, err

    return call


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder with the toy problem, one good kernel and one with a tunable."""
    shutil.copytree(DATA / "problems", tmp_path / "problems")
    task = tmp_path / "problems" / "toy" / "task.yml"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", str(ROOT / "problems" / "utils.py")))
    folder = tmp_path / "kernels" / "cpu" / "toy"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "kernels" / "cpu" / "toy" / "honest.cpp", folder)
    shutil.copy(DATA / "kernels" / "cpu" / "toy.h", folder.parent)
    (folder / "tuned.cpp").write_text(TUNED)
    (tmp_path / "c.yaml").write_text(
        "paths: {problems: problems, kernels: kernels}\nbackends: [cpu]\nmode: test\n")
    return tmp_path


def settings(folder: Path) -> list[str]:
    return ["--config", str(folder / "c.yaml")]


# Names ---------------------------------------------------------------------------------------------------------------

def test_problems_by_name_and_pattern():
    found = {name: Path(name) for name in ("a", "ab", "b")}
    assert problem_names(found, [Path("p")], ["a*", "a"]) == ["a", "ab"]
    assert problem_names(found, [Path("p")], ["x*"]) == []
    with pytest.raises(SelectionError, match="unknown problem 'x'; p has: a, ab, b") as caught:
        problem_names(found, [Path("p")], ["a", "x"])
    assert caught.value.code == 2


def test_kernels_by_name():
    assert is_kernel("cuda", "fp8_gemm", "mma", ["cuda/mma"])
    assert is_kernel("cuda", "fp8_gemm", "mma", ["nothing", "fp8_gemm/m*"])
    assert not is_kernel("cuda", "fp8_gemm", "mma", ["cuda", "fp8_gemm", "cpu/mma"])


def test_list_and_run_answer_a_typo_alike(main):
    for verb in ("list", "run"):
        code, out, err = main(*TOY, verb, "--problem", "toys")
        assert (code, out) == (2, "")
        assert "unknown problem 'toys'" in err
        assert "has: toy" in err


def test_list_says_why_it_lists_nothing(main, tmp_path):
    code, out, err = main(*TOY, "list", "--problem", "x*")
    assert (code, out) == (5, "")
    assert "matches" in err
    (tmp_path / "c.yaml").write_text("paths: {problems: /nope}")
    code, out, err = main("--config", str(tmp_path / "c.yaml"), "list")
    assert (code, out) == (5, "")
    assert "no problems in /nope" in err


@pytest.mark.parametrize("verb", ["leaderboard", "report"])
def test_an_empty_database_is_not_a_filter_that_matches_nothing(main, tmp_path, verb):
    from tests.scoring.records import sample

    code, _out, err = main(verb)
    assert code == 5
    assert "yet; `python -m scoring run` makes some" in err
    Store(tmp_path / "records.db").add(sample()[0])
    code, _out, err = main(verb, "--problem", "nope")
    assert code == 5
    assert "match; it has others" in err


def test_runs_without_a_score_are_told_from_a_selection_that_matches_nothing(main, tmp_path):
    """What a first look at the board after a first ``run --mode test`` finds."""
    from dataclasses import replace

    from tests.scoring.records import sample

    Store(tmp_path / "records.db").add(replace(sample()[0], score=None))
    code, _out, err = main("leaderboard")
    assert code == 5
    assert "not `--mode test`" in err
    assert "match" not in err


@pytest.mark.parametrize(("arguments", "reason"), [
    (["--kernel", "toy/onest"], "no kernel is called 'toy/onest'; did you mean toy/honest"),
    (["--kernel", "zzzz"], "no kernel is called 'zzzz'\n"),
    (["--kernel", "off_by_one", "--backend", "cpu"],
     "hip/toy/off_by_one: left out by --backend or --gpu, which leave cpu"),
    (["--kernel", "honest", "--backend", "cpu", "--case", "n=65*"],
     "no case of toy matches 'n=65*'; it has n=64, n=1000, "),
    (["--problem", "z*"], "no problem matches"),
])
def test_a_selection_that_means_nothing_says_which_part_of_it(main, arguments, reason):
    code, out, err = main(*TOY, "run", *arguments)
    assert (code, out) == (5, "")
    assert f"nothing matches the selection: {reason}" in err


def test_the_modes_are_told_as_one_types_them(main):
    code, _out, err = main("run", "--mode", "bogus")
    assert code == 2
    assert "Mode." not in err
    assert all(word in err for word in ("test", "benchmark", "leaderboard"))


def test_a_wrong_flag_is_called_as_it_was_typed(main):
    code, _out, err = main(*TOY, "run", "--seconds", "-1")
    assert code == 2
    assert err.startswith("error: --seconds: ")


# Broken files --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("content", [b"//!KERNEL foo bar\n", b"// \xff\xfe\n"], ids=["directive", "bytes"])
def test_one_broken_kernel_file_stops_no_other(main, checkout, content):
    (checkout / "kernels" / "cpu" / "toy" / "aaa.cpp").write_bytes(content)
    code, out, _err = main(*settings(checkout), "run", "--case", "n=64")
    assert code == 1
    assert "2 passed, 1 failed" in out
    assert "kernels/cpu/toy/aaa.cpp" in out
    kept = {record.kernel: record for record in Store(checkout / "records.db").records()}
    assert {name: str(record.status) for name, record in kept.items()} == {
        "cpu/aaa": "COMPILE_ERROR", "cpu/honest": "PASSED", "cpu/tuned": "PASSED"}
    (diagnostic,) = kept["cpu/aaa"].compile["diagnostics"]
    assert diagnostic["file"] == "kernels/cpu/toy/aaa.cpp"
    code, _out, _err = main(*settings(checkout), "build", "--kernel", "honest")
    assert code == 0, "what was not selected is not judged"


def test_a_broken_header_of_a_problem_is_no_failure_of_the_kernel(main, checkout):
    header = checkout / "problems" / "toy" / "kernel.h"
    header.write_text(header.read_text() + "\nnamespace more {}\n")
    code, out, _err = main(*settings(checkout), "run", "--case", "n=64", "--kernel", "honest")
    assert code == 2
    assert f"{header}:17: " in out
    assert "1 not run" in out


def test_a_broken_binding_is_2(main, checkout):
    (checkout / "problems" / "toy" / "binding.py").write_text("def broken(:\n")
    code, out, _err = main(*settings(checkout), "run", "--case", "n=64", "--kernel", "honest")
    assert code == 2
    assert "binding.py:1: " in out
    assert "1 not run" in out


def test_one_broken_task_hides_no_other_problem(main, checkout):
    (checkout / "problems" / "odd").mkdir()
    (checkout / "problems" / "odd" / "task.yml").write_text("tests: [")
    code, out, err = main(*settings(checkout), "list")
    assert code == 2
    assert "honest" in out
    assert "odd" not in out
    assert f"error: {checkout / 'problems' / 'odd' / 'task.yml'}: not YAML" in err
    code, out, _err = main(*settings(checkout), "list", "--json")
    assert code == 2
    document = json.loads(out)
    assert [entry["name"] for entry in document["problems"]] == ["toy"]
    assert len(document["errors"]) == 1
    code, _out, err = main(*settings(checkout), "list", "--problem", "toy")
    assert (code, err) == (0, "")


# Tunables ------------------------------------------------------------------------------------------------------------

def test_list_shows_tunables_and_cuts_no_word(main, checkout):
    task = checkout / "problems" / "toy" / "task.yml"
    words = "wonderful " * 20
    task.write_text(task.read_text().replace("The smallest", words + "smallest"))
    code, out, _err = main(*settings(checkout), "list")
    assert code == 0
    assert "FACTOR=1,2" in out
    assert "wonderful…" in out


def test_a_tunable_is_set_and_named(main, checkout):
    run = [*settings(checkout), "run", "--case", "n=64"]
    code, out, _err = main(*run, "-D", "FACTOR=2")
    assert code == 1
    assert "cpu/tuned[FACTOR=2]" in out
    assert "honest" not in out, "only what the value is for"
    code, out, _err = main(*run, "-D", "FACTOR=1", "-D", "SIGN=-1")
    assert code == 1
    assert "cpu/tuned[FACTOR=1,SIGN=-1]" in out
    code, out, _err = main(*run, "-D", "FACTOR=1")
    assert code == 0
    assert {record.kernel for record in Store(checkout / "records.db").records()} == {
        "cpu/tuned[FACTOR=1]", "cpu/tuned[FACTOR=2]", "cpu/tuned[FACTOR=1,SIGN=-1]"}


def test_a_tuned_build_is_another_binary(main, checkout):
    built = {}
    for value in ("1", "2"):
        code, out, _err = main(*settings(checkout), "build", "--json", "-D", f"FACTOR={value}")
        assert code == 0
        (line,) = out.splitlines()
        built[value] = json.loads(line)
        assert f"-DFACTOR={value}" in built[value]["compile"]["command"]
    assert built["1"]["digest"] != built["2"]["digest"]
    assert built["2"]["kernel"] == "cpu/tuned[FACTOR=2]"


def test_the_command_that_repeats_a_tuned_failure_sets_the_value(main, checkout):
    _code, out, _err = main(*settings(checkout), "run", "--case", "n=64", "-D", "FACTOR=2")
    assert "-D FACTOR=2" in next(line for line in out.splitlines() if "repeat: " in line)


@pytest.mark.parametrize(("given", "words"), [
    (["FACTOR=3"], "tunable FACTOR is one of 1, 2, not 3"), (["FACT=2"], "sets FACTOR, SIGN, not FACT"),
    (["FACTOR=2", "FACTOR=1"], "-D FACTOR: more than one value"), (["FACTOR"], "'FACTOR' is not NAME=VALUE"),
    (["=2"], "'=2' is not NAME=VALUE"),
])
def test_a_value_that_fits_nothing_is_2(main, checkout, given, words):
    flags = [part for text in given for part in ("-D", text)]
    code, out, err = main(*settings(checkout), "run", "--case", "n=64", *flags)
    assert (code, out) == (2, "")
    assert words in err


# Submissions ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags", [["--kernel", "x"], ["--arch", "sm_89"], ["-D", "A=1"]], ids=" ".join)
def test_what_is_for_kernels_is_refused_with_a_submission(main, flags):
    path = str(DATA / "submissions" / "honest.py")
    code, out, err = main(*TOY, "run", "--submission", path, "--problem", "toy", *flags)
    assert (code, out) == (2, "")
    assert f"error: {flags[0]}: for kernels of the checkout" in err


def test_a_submission_that_cannot_run_was_not_compiled(main, monkeypatch):
    import backends
    from backends.base import Availability

    monkeypatch.setattr(type(backends.get("cuda")), "probe", lambda self: Availability("/usr/bin/nvcc", "13", (), ()))
    path = str(DATA / "submissions" / "honest.py")
    code, out, _err = main(*TOY, "run", "--no-save", "--submission", path, "--problem", "toy", "--backend", "cuda")
    assert code == 4
    assert "nothing was compiled" in out
    assert "compiled" not in out.replace("nothing was compiled", "")
    assert "no H100 here" in out


def test_no_gpu_in_the_settings_means_none(main, tmp_path, monkeypatch):
    import backends
    from backends.base import Availability
    from scoring.config.load import load_config
    from scoring.run import targets

    (tmp_path / "c.yaml").write_text("gpus: {cuda: []}\n")
    loaded = load_config(file=str(tmp_path / "c.yaml"), environment={})
    nothing = Availability("/usr/bin/nvcc", "13", (), ())
    assert targets.places(loaded, backends.get("cuda"), nothing, None) == []
    monkeypatch.setattr(type(backends.get("cuda")), "probe", lambda self: nothing)
    path = str(DATA / "submissions" / "honest.py")
    code, _out, err = main("--config", str(tmp_path / "c.yaml"), "run", "--no-save", "--submission", path,
                           "--problem", "fp8_gemm", "--backend", "cuda")
    assert code == 4
    assert "no GPU in gpus.cuda" in err


# Others --------------------------------------------------------------------------------------------------------------

def test_every_line_of_a_leaderboard_as_json_names_its_schema(main):
    code, out, _err = main(*TOY, "run", "--mode", "benchmark", "--kernel", "honest")
    assert code == 0, out
    code, out, _err = main("leaderboard", "--json")
    assert code == 0
    assert [json.loads(line)["schema"] for line in out.splitlines()] == [3]


@pytest.mark.parametrize(("device", "code", "words"), [
    ("nope", 2, "torch knows no such device"), ("meta", 2, "on cpu or cuda alone"), ("cpu:x", 2, "no such device"),
    ("cuda:99", 4, "not here"),
])
def test_an_audit_on_a_device_that_is_not_there(main, device, code, words):
    found, out, err = main("audit", "--problem", "fp8_gemm", "--case", "nothing*", "--device", device)
    assert (found, out) == (code, "")
    assert err.startswith(f"error: --device {device}: ")
    assert words in err
    assert len(err) < 200


def test_a_competition_whose_problem_is_not_here_is_told_by_doctor(main, tmp_path):
    (tmp_path / "c.yaml").write_text(
        "competitions: [{leaderboard: x, problem: nope, gpus: [H100], deadline: 2030-01-01}]\n")
    code, out, _err = main("--config", str(tmp_path / "c.yaml"), "doctor")
    assert code == 0
    assert "x names the problem 'nope', which is not here" in out


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["leaderboard"]], ids=" ".join)
def test_what_answers_at_once_validates_no_settings(arguments, tmp_path):
    code = ("import sys; from scoring.cli import main\n"
            "main(sys.argv[1:])\n"
            "slow = {'pydantic', 'torch', 'numpy', 'rich', 'jinja2'} & set(sys.modules)\n"
            "sys.exit(f'imported {sorted(slow)}' if slow else 0)")
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WARPWAVE_DB": str(tmp_path / "x.db")})
    assert done.returncode == 0, done.stderr


def test_an_interrupted_run_waits_for_no_compiler(main, monkeypatch):
    """Ctrl-C while a compiler runs: it is killed, and what it would have made is not waited for."""
    import time

    import backends
    from backends import _process

    seen: list[_process.Finished] = []

    def slow(*arguments: object, **options: object) -> None:
        seen.append(_process.run(["sleep", "60"], Path("/dev/null"), ROOT, 60.0))
        raise AssertionError("nobody asks any more")

    def interrupted(*arguments: object) -> None:
        deadline = time.monotonic() + 20
        while not _process._running and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(backends.get("cpu"), "compile", slow)
    monkeypatch.setattr("scoring.run.build.as_completed", interrupted)
    started = time.monotonic()
    code, _out, _err = main(*TOY, "run", "--no-save", "--kernel", "honest")
    assert code == 130
    assert time.monotonic() - started < 30
    while not seen and time.monotonic() - started < 30:
        time.sleep(0.01)
    assert seen[0].returncode == -9
    assert backends.stop() is None
