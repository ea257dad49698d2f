# SPDX-License-Identifier: MIT
"""An author's mistake in a problem's own files is told with file and line, and never as one of a kernel or a device."""

from __future__ import annotations

import shutil

import pytest

from scoring.judge import problem_files
from scoring.judge.audit import audit_case
from scoring.problem import Problem, ProblemError
from tests.scoring.harness import DATA, ROOT

MUTANTS = """\
import torch
from utils import Mutant
MUTANTS = {"zeros": Mutant("zeros", transform_outputs=lambda case, data, out: (torch.zeros_like(out[0]),))}
"""


@pytest.fixture
def folder(tmp_path):
    """A copy of the tests' problem that may be spoilt."""
    place = tmp_path / "toy"
    shutil.copytree(DATA / "problems" / "toy", place)
    (place / "mutants.py").write_text(MUTANTS)
    task = place / "task.yml"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", str(ROOT / "problems" / "utils.py")))
    reference = place / "reference.py"
    reference.write_text(reference.read_text().replace(
        "sample: int | None = None)", "sample: int | None = None, *, seed: int = 0, index: Any = None)"))
    return place


def examine(folder) -> None:
    """All that is looked at before and while the first case is judged."""
    problem = Problem(folder)
    problem_files.check(problem)
    (case, *_others) = problem.cases
    data = problem.generate(case, 1, "cpu")
    problem_files.check_data(problem, case.params, data)
    problem_files.check_expectations(problem, case.params, problem.expectations(data) or ())
    problem_files.check_mutants(problem)
    list(audit_case(problem, case, "cpu"))


def test_nothing_is_wrong_with_what_is_right(folder):
    examine(folder)


MISTAKES = [
    ("binding.py", '"alpha": alpha, ', "", r"binding\.py:24: arguments\(case, data\) has no 'alpha'"),
    ("binding.py", '"n": case["n"]}', '"n": case["n"], "m": 1}', r"binding\.py:24: .* has 'm', which kernel\.h"),
    ("binding.py", '"x": x', '"x": 3', r"binding\.py:24: x is const float\* .* must give a tensor, not 3"),
    ("binding.py", '"n": case["n"]}', '"n": x}', r"binding\.py:24: n is int .* an integer, not a tensor of \[64\]"),
    ("binding.py", 'x, alpha, _ = data', 'x, alpha = data', r"binding\.py:26: arguments failed: ValueError"),
    ("binding.py", 'SYMBOL = "toy"', 'SYMBOL = "tot"', r"binding\.py:9: SYMBOL is 'tot', and kernel\.h declares 'toy'"),
    ("binding.py", "def flops", "def flop", r"binding\.py:1: defines no flops\(case\)"),
    ("binding.py", 'return int(case["n"])', "return None", r"binding\.py:35: flops\(case\) must return a number"),
    ("binding.py", '"float32")}', '"fp32")}', r"binding\.py:19: output 'y' has the dtype 'fp32'"),
    ("binding.py", '{"y": ((case', '{"x": ((case', r"binding\.py:19: output 'x' must be a pointer .* const float\*"),
    ("binding.py", '{"y": ((case["n"],), "float32")}', '{"y": case["n"]}', r"binding\.py:19: .* \(shape, dtype name\)"),
    ("binding.py", '{"y": 2}', '{"y": 3}', r"binding\.py:10: DATA_OUTPUTS puts 'y' at position 3 .* a tuple of 3"),
    ("binding.py", 'FRESH = ("x",)', 'FRESH = ("z",)', r"binding\.py:11: FRESH names 'z'"),
    ("binding.py", "SYMBOL =", "SYMBOL ==", r"binding\.py:9: binding\.py cannot be imported: NameError"),
    ("reference.py", "*, n: int", "*, m: int", r"reference\.py:13: generate_input does not take the case n=64"),
    ("reference.py", "def ref_kernel", "def kernel", r"reference\.py:1: defines no ref_kernel"),
    ("reference.py", 'Expectation("y"', 'Expectation("z"', r"reference\.py:22: expected\(data\) returns \['z'\]"),
    ("reference.py", "torch.float32, ", "torch.float16, ", r"reference\.py:22: .* torch\.float16 \[64\], and outputs"),
    ("mutants.py", "MUTANTS = {", "MUTANT = {", r"mutants\.py:1: MUTANTS must be a dict"),
    ("kernel.h", "void* queue", "void* other", r"kernel\.h:10: the last parameter must be: void\* queue"),
    ("kernel.h", "float alpha", "half alpha", r"kernel\.h:10: is no C: a type that is not known"),
]


@pytest.mark.parametrize(("file", "right", "wrong", "told"), MISTAKES, ids=[told for *_rest, told in MISTAKES])
def test_a_mistake_is_told_with_file_and_line(folder, file, right, wrong, told):
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong, 1))
    with pytest.raises(ProblemError, match=told):
        examine(folder)


def test_a_header_without_a_binding_is_told(folder):
    (folder / "binding.py").unlink()
    with pytest.raises(ProblemError, match=r"no binding\.py"):
        examine(folder)
