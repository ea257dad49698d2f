# SPDX-License-Identifier: MIT
"""The evaluator as a runner sees it: argv, POPCORN_FD, exit codes, and submissions that misbehave.

It runs in its own process on a stand-in for torch, which starts at once and can pretend to have a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.popcorn.cases import CaseError, read_cases
from scoring.popcorn.report import MODES, PopcornExit, Timing, combine_seed, parse_entries, parse_report
from submissions import eval as evaluator
from submissions.stage import EVALUATOR
from tests.scoring.harness import alive

TORCH = '''\
import types
class Tensor:
    is_cuda = False
    def __init__(self, value): self.value = value
    def clone(self):
        copy = type(self)(self.value); copy.is_cuda = self.is_cuda; return copy
    def zero_(self): LOG.append("clear")
class nn: Parameter = type("Parameter", (Tensor,), {})
class AcceleratorError(RuntimeError): pass
LOG = []
class Event:
    def __init__(self, enable_timing=False): pass
    def record(self): LOG.append("record")
    def elapsed_time(self, end): return 0.25
cuda = types.SimpleNamespace(Event=Event, is_available=lambda: GPU, synchronize=lambda: LOG.append("sync"))
version = types.SimpleNamespace(hip=None)
uint8 = "uint8"
def empty(n, dtype, device):
    LOG.append(f"empty {n >> 20} MiB")
    return Tensor(0)
GPU = False
'''
# y = 2 x, where x depends on the seed; says in its message which seeds it saw and what else the test asks for.
REFERENCE = '''\
import torch
CALLS = []
def generate_input(n, seed):
    x = torch.Tensor(n + seed); x.is_cuda = torch.GPU
    CALLS.append(seed)
    return (x, 1)
def check_implementation(data, output):
    good = isinstance(output, torch.Tensor) and output.value == 2 * data[0].value
    return good, "seeds %s" % CALLS if good else "got %s" % getattr(output, "value", output)
'''
GOOD = "import torch\ndef custom_kernel(data):\n    return torch.Tensor(2 * data[0].value)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("torch.py", TORCH), ("reference.py", REFERENCE), ("submission.py", GOOD),
                       ("eval.py", EVALUATOR.read_text()), ("cases.txt", "n: 1; seed: 10\nn: 2; seed: 20\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


class Ran:
    def __init__(self, code: int, text: str, stderr: str):
        self.code, self.text, self.stderr = code, text, stderr
        self.entries = parse_entries(text)
        self.report = parse_report(self.entries)


def run(folder: Path, mode: str = "test", read_late: bool = False, **environment: str) -> Ran:
    """One run. ``read_late``: read the pipe only after the exit, as GPU MODE's runner does."""
    read_end, write_end = os.pipe()
    environment = {**os.environ, "POPCORN_FD": str(write_end), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    process = subprocess.Popen([sys.executable, "eval.py", mode, "cases.txt"], cwd=folder, env=environment,
                               pass_fds=(write_end,), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = "" if read_late else pipe.read()
        stderr = process.communicate(timeout=60)[1]
        text += pipe.read()
    return Ran(process.returncode, text, stderr)


def test_passing_tests(folder: Path) -> None:
    assert run(folder).text == (
        "test-count: 2\n"
        "test.0.spec: n: 1; seed: 10\ntest.0.status: pass\ntest.0.message: seeds [10]\n"
        "test.1.spec: n: 2; seed: 20\ntest.1.status: pass\ntest.1.message: seeds [10, 20]\n"
        "check: pass\n")


def test_a_wrong_answer_fails_its_case_alone(folder: Path) -> None:
    (folder / "submission.py").write_text(GOOD.replace("2 *", "data[0].value == 11 and 5 or 2 *"))
    ran = run(folder)
    assert ran.code == 112
    assert ran.text.endswith("test.1.spec: n: 2; seed: 20\ntest.1.status: pass\n"
                             "test.1.message: seeds [10, 20]\ncheck: fail\n")
    assert ran.entries["test.0.error"] == "got 5"
    assert "test.0.message" not in ran.entries


@pytest.mark.parametrize(("answer", "passed", "text"), [
    ("''", True, ""), ("'bad'", False, "bad"), ("(False, ['a', 'b'])", False, "a\nb"), ("(True, '')", True, ""),
    ("(False, '')", False, "the output is wrong"),
])
def test_verdicts_of_old_and_new_problems(folder: Path, answer: str, passed: bool, text: str) -> None:
    source = REFERENCE[: REFERENCE.index("    good")] + f"    return {answer}\n"
    (folder / "reference.py").write_text(source)
    case = run(folder).report.tests[0]
    assert (case.passed, case.text) == (passed, text)


def test_the_secret_seed_is_paired_and_kept_from_the_submission(folder: Path) -> None:
    (folder / "submission.py").write_text(
        "import os, torch\n" + GOOD.split("\n", 1)[1].replace("    return", (
            "    assert not [k for k in os.environ if 'POPCORN' in k]\n    return")))
    ran = run(folder, POPCORN_SEED="7")
    assert ran.entries["test.0.message"] == f"seeds [{combine_seed(10, 7)}]"
    assert ran.entries["test.0.spec"] == "n: 1; seed: 10"
    assert ran.code == 0


def test_benchmark(folder: Path) -> None:
    ran = run(folder, "benchmark")
    assert ran.code == 0
    assert [line.partition(":")[0] for line in ran.text.splitlines()] == [
        "benchmark-count", *(f"benchmark.{index}.{key}" for index in (0, 1)
                             for key in ("spec", "runs", "mean", "std", "err", "best", "worst")), "check"]
    timing = ran.report.benchmarks[0].timing
    assert timing is not None
    assert timing.best is not None
    assert timing.worst is not None
    assert 5 <= timing.runs <= 100
    assert 0 < timing.best <= timing.mean <= timing.worst < 1


def on_gpu(folder: Path) -> None:
    (folder / "torch.py").write_text(TORCH.replace("GPU = False", "GPU = True"))


def test_gpu_times_lie_between_events_with_the_cache_cleared_first(folder: Path) -> None:
    on_gpu(folder)
    (folder / "submission.py").write_text(GOOD.replace("    return", "    torch.LOG.append('call')\n    return"))
    (folder / "reference.py").write_text(REFERENCE + "import atexit, json\n" + (
        "def dump():\n    open('log.json', 'w').write(json.dumps(torch.LOG))\n"
        "import os\nleave = os._exit\ndef _exit(code):\n    dump()\n    leave(code)\nos._exit = _exit\n"))
    ran = run(folder, "benchmark")
    assert ran.report.benchmarks[0].timing == Timing(5, 2.5e-4, 0.0, 0.0, 2.5e-4, 2.5e-4)
    log = json.loads((folder / "log.json").read_text())
    timed = ["sync", "clear", "record", "call", "record", "sync"]
    positions = [index for index in range(len(log)) if log[index : index + 6] == timed]
    assert len(positions) >= 5
    assert "empty 256 MiB" in log


def test_ranked_runs_check_fresh_inputs_every_time(folder: Path) -> None:
    on_gpu(folder)
    reference = REFERENCE.replace("    good =", "    if len(CALLS) > 6: return False, 'saw %s' % CALLS\n    good =")
    (folder / "reference.py").write_text(reference)
    ran = run(folder, "leaderboard")
    # a warm-up, a first check, then five timed calls: the last one trips the reference above
    assert ran.entries["benchmark.0.error"] == "saw [10, 10, 23, 36, 49, 62, 75]"
    assert "benchmark.1.spec" not in ran.entries     # a ranked run ends at the first failure
    assert ran.code == 112


REPLAY = '''\
import torch
OLD = []
def custom_kernel(data):
    OLD.append(torch.Tensor(2 * data[0].value))
    return OLD[0]
'''


def test_replaying_the_first_output_fails_where_inputs_are_fresh(folder: Path) -> None:
    (folder / "submission.py").write_text(REPLAY)
    (folder / "cases.txt").write_text("n: 1; seed: 10\n")
    assert run(folder, "benchmark").code == 0
    assert run(folder, "leaderboard").code == 112


def test_the_last_output_of_a_benchmark_is_checked_too(folder: Path) -> None:
    (folder / "submission.py").write_text(
        "import torch\nLAST = [None]\ndef custom_kernel(data):\n"
        "    LAST.append(data[0])\n    return torch.Tensor(0 if LAST[-1] is LAST[-2] else 2 * data[0].value)\n")
    ran = run(folder, "benchmark")                    # right on a new tensor, wrong on the same one again
    assert ran.entries["benchmark.0.error"] == "got 0"
    assert ran.code == 112


def test_work_may_not_be_postponed_by_a_subclass(folder: Path) -> None:
    (folder / "submission.py").write_text(GOOD.replace("return torch.Tensor", "return Lazy")
                                          + "class Lazy(torch.Tensor): pass\n")
    assert "returned a Lazy" in run(folder).entries["test.0.error"]


@pytest.mark.parametrize(("line", "words"), [
    ("raise ValueError('no such shape')", "ValueError: no such shape"),
    ("raise SystemExit(0)", "SystemExit: 0"),
    ("import os; os.abort()", "ended by signal 6"),
    ("import os; os._exit(0)", "ended early, with exit code 0"),
    ("import os\n    for fd in range(3, 20):\n        try: os.write(fd, b'{\"index\": 9}\\n[1]\\n')\n"
     "        except OSError: 0", "nonsense"),
])
def test_a_submission_that_does_not_return(folder: Path, line: str, words: str) -> None:
    (folder / "submission.py").write_text(f"def custom_kernel(data):\n    {line}\n")
    ran = run(folder)
    assert (ran.code, ran.report.passed) == (112, False)
    assert words in "".join(value for key, value in ran.entries.items() if key.endswith("error"))


@pytest.mark.parametrize("text", ["import nothing_like_this\n", "def custom_kernel(:\n", "x = 1\n", "raise SystemExit"])
def test_a_submission_that_cannot_be_imported(folder: Path, text: str) -> None:
    (folder / "submission.py").write_text(text)
    ran = run(folder)
    assert (ran.code, ran.entries["test.0.status"], ran.entries["check"]) == (112, "fail", "fail")
    assert ran.entries["test.0.error"]
    assert "Traceback" in ran.stderr


@pytest.mark.parametrize("error", ["torch.AcceleratorError('x')", "RuntimeError('CUDA error: an illegal address')"])
def test_a_lost_device_ends_the_run(folder: Path, error: str) -> None:
    (folder / "submission.py").write_text(f"import torch\ndef custom_kernel(data):\n    raise {error}\n")
    ran = run(folder)
    assert ran.code == 110
    assert (ran.entries["test.0.status"], ran.entries["check"]) == ("fail", "fail")
    assert "test.1.spec" not in ran.entries


# The contract with the runner


@pytest.mark.parametrize("arguments", [[], ["test"], ["private", "cases.txt"], ["test", "cases.txt", "more"]])
def test_usage(folder: Path, arguments: list[str]) -> None:
    command = [sys.executable, "eval.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: eval.py test|benchmark|leaderboard|profile CASEFILE" in done.stderr


@pytest.mark.parametrize("fd", [None, "x", "99", ""])
def test_without_a_pipe(folder: Path, fd: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "POPCORN_FD"}
    environment |= {} if fd is None else {"POPCORN_FD": fd}
    done = subprocess.run([sys.executable, "eval.py", "test", "cases.txt"], cwd=folder, env=environment,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 111
    assert "POPCORN_FD" in done.stderr


@pytest.mark.parametrize("text", ["n = 1\n", "n: 1.5\n", "", "n: 1; world_size: 8\n", "n: 1\n\nn: 2\n", None])
def test_bad_cases(folder: Path, text: str | None) -> None:
    (folder / "cases.txt").unlink() if text is None else (folder / "cases.txt").write_text(text)
    ran = run(folder)
    assert (ran.code, ran.text) == (113, "")
    assert "cases.txt" in ran.stderr


def test_a_runner_that_reads_late_does_not_hang_it(folder: Path) -> None:
    (folder / "cases.txt").write_text("".join(f"n: {n}; seed: 1\n" for n in range(400)))
    long = "'\\n'.join(['x' * 400] * 25)"
    (folder / "submission.py").write_text(f"def custom_kernel(data):\n    raise ValueError({long})\n")
    ran = run(folder, read_late=True)
    assert ran.code == 112
    assert len(ran.report.tests) == 400
    assert ran.text.endswith("check: fail\n")
    shown = ran.entries["test.0.error"]
    assert len(shown) - shown.count("\\n") == 4000        # a line's end is two characters there
    assert ran.entries["test.399.error"] == "(not shown: the pipe is full)"


def test_the_child_ends_with_its_parent(folder: Path) -> None:
    (folder / "submission.py").write_text(
        "import os, time\ndef custom_kernel(data):\n"
        "    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(600)\n")
    read_end, write_end = os.pipe()
    parent = subprocess.Popen([sys.executable, "eval.py", "test", "cases.txt"], cwd=folder, pass_fds=(write_end,),
                              env={**os.environ, "POPCORN_FD": str(write_end)})
    os.close(write_end)
    try:
        child = int(wait_for(lambda: (folder / "pid").is_file() and (folder / "pid").read_text()))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert wait_for(lambda: not alive(child))
    finally:
        parent.kill()
        os.close(read_end)


def wait_for(condition: object) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        value = condition()     # type: ignore[operator]
        if value:
            return str(value)
        time.sleep(0.02)
    pytest.fail("did not happen within 20 s")


# One dialect, stated twice: the evaluator is staged alone and cannot import scoring.popcorn.report


@given(st.text(st.sampled_from("ab_: ;1-+\t.é"), max_size=20))
def test_both_readers_agree(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    path = tmp_path_factory.getbasetemp() / "agree.txt"
    path.write_text(line, encoding="utf-8")
    try:
        expected: object = read_cases(line) or None
    except CaseError:
        expected = None
    try:
        found: object = [case for _, case in evaluator.read_cases(str(path))]
    except evaluator.BadCases:
        found = None
    assert found == expected


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_both_seeds_agree(public: int, secret: int) -> None:
    assert evaluator.secret_seed({"seed": public}, str(secret)) == {"seed": combine_seed(public, secret)}
    assert evaluator.secret_seed({"n": public}, str(secret)) == {"n": public}
    assert evaluator.secret_seed({"seed": public}, None) == {"seed": public}


def test_both_sets_of_exit_codes_agree() -> None:
    ours = {name: getattr(evaluator, name) for name in PopcornExit.__members__}
    assert ours == {name: int(code) for name, code in PopcornExit.__members__.items()}
    assert evaluator.MODES == MODES


def test_statistics() -> None:
    assert evaluator.statistics([1.0, 2.0, 3.0]) == {
        "runs": 3, "mean": 2.0, "std": 1.0, "err": pytest.approx(3**-0.5), "best": 1.0, "worst": 3.0}
    assert evaluator.statistics([4.0])["std"] == 0.0
