# SPDX-License-Identifier: MIT
"""``scoring.problem``: folders in GPU MODE's form are loaded as they are, apart from one another, and fail by name."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import torch

from scoring.problem import Problem, ProblemError, discover
from scoring.record import Case

ROOT = Path(__file__).resolve().parents[2]
TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: utils.py}
lang: py
description: a test
tests:
  - {n: 3, seed: 1}
benchmarks:
  - {n: 5, seed: 2}
"""
REFERENCE = """
from task import Kind
from utils import double

def generate_input(n, seed):
    return double(n), seed

def ref_kernel(data):
    return data

def check_implementation(data, output):
    return Kind.verdict(data, output)
"""
TASK_PY = """
class Kind:
    word = {word!r}

    @staticmethod
    def verdict(data, output):
        return data == output, Kind.word
"""
UTILS = "def double(n):\n    return {factor} * n\n"
CASE = Case({"n": 3})


def folder(
    root: Path, name: str = "problem", task: str = TASK, reference: str = REFERENCE, word: str = "ok", factor: int = 2
) -> Path:
    path = root / name
    path.mkdir()
    for file, text in (("task.yml", task), ("reference.py", reference), ("task.py", TASK_PY.format(word=word)),
                       ("utils.py", UTILS.format(factor=factor))):
        (path / file).write_text(textwrap.dedent(text))
    return path


def test_modules_of_the_same_name_in_two_problems_do_not_meet(tmp_path):
    one, two = (Problem(folder(tmp_path, f"p{n}", word=f"word {n}", factor=n)) for n in (10, 20))
    # Interleaved on purpose: whatever is loaded first must not serve the second.
    assert one.generate(CASE, 7, "cpu") == (30, 7)
    assert two.generate(CASE, 7, "cpu") == (60, 7)
    assert two.check((1,), (1,)) == (True, "word 20")
    assert one.check((1,), (1,)) == (True, "word 10")
    assert one.utils is not two.utils
    assert one.reference is one.reference


def test_no_module_is_left_behind_and_none_is_taken(tmp_path, monkeypatch):
    foreign = type(sys)("utils")
    monkeypatch.setitem(sys.modules, "utils", foreign)
    finders = list(sys.meta_path)
    Problem(folder(tmp_path)).generate(CASE, 1, "cpu")
    assert sys.modules["utils"] is foreign
    assert not {"task", "reference"} & sys.modules.keys()
    assert sys.meta_path == finders


def test_an_import_inside_a_function_finds_the_problems_own_file(tmp_path):
    reference = REFERENCE + "\ndef ref_kernel(data):\n    import utils\n    return utils.double(21)\n"
    assert Problem(folder(tmp_path, reference=reference)).expected_output(()) == 42


def test_files_may_lie_elsewhere_and_have_another_name(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "common.py").write_text("def double(n):\n    return 100 * n\n")
    task = TASK.replace("source: utils.py", 'source: "../shared/common.py"')
    path = folder(tmp_path, task=task)
    (path / "utils.py").unlink()
    assert Problem(path).generate(CASE, 1, "cpu") == (300, 1)


def test_a_file_of_a_task_is_a_python_file_links_followed(tmp_path):
    (tmp_path / "secret").write_text("x")
    path = folder(tmp_path)
    (path / "utils.py").unlink()
    (path / "utils.py").symlink_to(tmp_path / "secret")
    with pytest.raises(ProblemError, match="secret, no Python file"):
        Problem(path)


def test_the_seed_is_no_part_of_a_case(tmp_path):
    problem = Problem(folder(tmp_path))
    assert [(case.name, case.group) for case in problem.cases] == [("n=3", "tests"), ("n=5", "benchmarks")]


def test_booleans_arrive_as_the_words_they_are_on_a_runner(tmp_path):
    """A case file has words and integers only, so ``causal: false`` is the word "False" there, which is true."""
    task = TASK.replace("{n: 3, seed: 1}", "{n: 3, causal: false, fast: yes, seed: 1}")
    reference = "def generate_input(*, n, causal, fast, seed):\n    return n, causal, fast\n"
    problem = Problem(folder(tmp_path, task=task, reference=reference))
    assert dict(problem.tests[0].params) == {"n": 3, "causal": "False", "fast": "True"}
    assert problem.generate(problem.tests[0], 1, "cpu") == (3, "False", "True")
    assert any("causal: the boolean arrives as the word 'False'" in warning for warning in problem.task.warnings)


@pytest.mark.parametrize(("answer", "verdict"), [
    ('""', (True, "")), ('"mismatch at 3"', (False, "mismatch at 3")), ("None", (True, "")),
    ('(True, "")', (True, "")), ('(False, "wrong")', (False, "wrong")), ("(1, None)", (True, "None")),
])
def test_old_and_new_answers_of_check_implementation(tmp_path, answer, verdict):
    reference = f"def check_implementation(data, output):\n    return {answer}\n"
    assert Problem(folder(tmp_path, reference=reference)).check((), ()) == verdict


def test_device_and_fp8_go_only_where_they_are_wanted(tmp_path):
    wants = "def generate_input(n, seed, device=None, fp8=None):\n    return device, fp8\n"
    assert Problem(folder(tmp_path, "a", reference=wants)).generate(CASE, 1, "cpu", "e4m3fn") == ("cpu", "e4m3fn")
    plain = "def generate_input(n, seed):\n    return n\n"
    assert Problem(folder(tmp_path, "b", reference=plain)).generate(CASE, 1, "cpu", "e4m3fn") == 3


def test_expectations_are_optional(tmp_path):
    assert Problem(folder(tmp_path, "a")).expectations(()) is None
    reference = "def expected(data):\n    return [1, 2]\n"
    assert Problem(folder(tmp_path, "b", reference=reference)).expectations(()) == (1, 2)


# Errors --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("reference", "line", "words"), [
    ("x = 1\ndef f(:\n", 2, "SyntaxError"),
    ("from utils import nothing\n", 1, "cannot import name 'nothing'"),
    ("\n\nraise ValueError('no luck')\n", 3, "ValueError: no luck"),
    ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
])
def test_a_reference_that_cannot_be_imported(tmp_path, reference, line, words):
    problem = Problem(folder(tmp_path, reference=reference))
    names = ("task", "utils", "reference")
    before = {name: sys.modules.get(name) for name in names}      # somebody else's, if any
    with pytest.raises(ProblemError) as error:
        _ = problem.reference
    assert str(error.value).startswith(f"{problem.path / 'reference.py'}:{line}: reference.py cannot be imported")
    assert words in str(error.value)
    assert {name: sys.modules.get(name) for name in names} == before


def test_an_error_in_a_file_that_the_reference_imports_names_that_file(tmp_path):
    path = folder(tmp_path)
    (path / "utils.py").write_text("double = 1 / 0\n")
    with pytest.raises(ProblemError, match=r"utils\.py:1: .*ZeroDivisionError"):
        Problem(path).generate(CASE, 1, "cpu")


@pytest.mark.parametrize(("call", "name"), [
    (lambda p: p.generate(CASE, 1, "cpu"), "generate_input"), (lambda p: p.check((), ()), "check_implementation"),
    (lambda p: p.expected_output(()), "ref_kernel"),
])
def test_a_missing_function_is_named(tmp_path, call, name):
    path = folder(tmp_path, reference="x = 1\n")
    with pytest.raises(ProblemError, match=f"reference.py:1: defines no {name}"):
        call(Problem(path))


@pytest.mark.parametrize(("call", "name"), [
    (lambda p: p.generate(CASE, 1, "cpu"), "generate_input"), (lambda p: p.check((), ()), "check_implementation"),
    (lambda p: p.expected_output(()), "ref_kernel"), (lambda p: p.expectations(()), "expected"),
])
@pytest.mark.parametrize("crash", ["raise KeyError('lost')", "__import__('sys').exit(1)", "undefined"])
def test_a_function_that_fails_is_named_with_its_line(tmp_path, call, name, crash):
    path = folder(tmp_path, reference=f"def {name}(*arguments, **keywords):\n    pass\n    {crash}\n")
    with pytest.raises(ProblemError, match=rf"reference\.py:3: {name} failed: "):
        call(Problem(path))


def test_inputs_that_do_not_fit_their_case(tmp_path):
    path = folder(tmp_path, reference="def generate_input(m, seed):\n    return m\n")
    with pytest.raises(ProblemError, match="generate_input failed: TypeError"):
        Problem(path).generate(CASE, 1, "cpu")


def test_a_missing_file_is_named(tmp_path):
    path = folder(tmp_path)
    (path / "reference.py").unlink()
    problem = Problem(path)
    with pytest.raises(ProblemError, match=r"no reference\.py"):
        _ = problem.reference
    with pytest.raises(ProblemError, match=r"no binding\.py"):
        _ = problem.binding
    assert not problem.native


def test_a_folder_without_task_yml(tmp_path):
    with pytest.raises(ProblemError, match=r"no task\.yml there"):
        Problem(tmp_path)


# The problems of this repository ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", sorted(discover(ROOT / "problems")))
def test_our_problems_are_native_and_stage_what_a_submission_may_import(name):
    problem = Problem(ROOT / "problems" / name)
    assert problem.native
    assert problem.task.warnings == ()
    assert {"task", "utils"} <= problem.staged.keys()
    assert not {"reference", "eval", "mutants", "binding", "diagnose"} & problem.staged.keys()
    assert not [module for module in problem.staged if module.endswith("_diagnose")]


def test_a_problem_computes_the_same_whatever_else_was_loaded():
    problems = [Problem(path) for path in discover(ROOT / "problems").values()]
    first = {p.name: p.generate(p.tests[0], 5, "cpu") for p in problems}
    fresh = [Problem(problem.path) for problem in reversed(problems)]
    again = {p.name: p.generate(p.tests[0], 5, "cpu") for p in fresh}
    for name, data in first.items():
        for ours, theirs in zip(data, again[name], strict=True):
            if isinstance(ours, torch.Tensor):
                assert torch.equal(ours.nan_to_num() if ours.itemsize > 1 else ours.view(torch.uint8),
                                   theirs.nan_to_num() if theirs.itemsize > 1 else theirs.view(torch.uint8)), name
