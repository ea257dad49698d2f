# SPDX-License-Identifier: MIT
"""Whether a problem's own files fit together: kernel.h, binding.py, reference.py and the cases of task.yml.

An author's mistake is told with file and line before anything is judged, so that it is not taken for one of a kernel.
Everything here raises ``ProblemError``.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from backends.errors import SourceError
from backends.source import Param, Signature
from scoring.problem import ProblemError

if TYPE_CHECKING:
    from scoring.problem import Problem
    from scoring.record import Case

# What reference.py must define: (name, how it is called).
_REFERENCE = (("generate_input", "generate_input(**case, seed)"), ("ref_kernel", "ref_kernel(data)"),
              ("check_implementation", "check_implementation(data, output)"))
# What binding.py must define: (name, how it is called, what it is for).
_BINDING = (
    ("outputs", "outputs(case)", "the shape and dtype name of every output"),
    ("arguments", "arguments(case, data)", "a value for every other parameter of kernel.h"),
    ("workspace_bytes", "workspace_bytes(case)", "the size of the workspace"),
    ("flops", "flops(case)", "the useful FLOP of a call"),
    ("bytes_moved", "bytes_moved(case)", "the fewest bytes that a call must move"),
    ("PEAK", "PEAK(case)", "the name of the peak rate: fp8, bf16, fp16 or fp32"),
)
_OURS = ("workspace", "workspace_bytes", "queue")        # parameters that the judge provides


def check(problem: Problem) -> None:
    """The files of a problem, without any data: those that kernels are bound to, and the functions of a foreign one."""
    if problem.entry_points is not None:
        return
    for name, call in _REFERENCE:
        if not callable(getattr(problem.reference, name, None)):
            raise _error(problem.reference, None, f"defines no {call}, which the scorer calls")
    if not problem.native:
        return
    for case in problem.cases:
        _check_keys(problem, case)
    signature, binding = _signature(problem), problem.binding
    for name, call, what in _BINDING:
        if not callable(getattr(binding, name, None)):
            raise _error(binding, None, f"defines no {call}: {what}")
    if getattr(binding, "SYMBOL", None) != signature.symbol:
        raise _error(binding, "SYMBOL", f"SYMBOL is {getattr(binding, 'SYMBOL', None)!r}, and kernel.h declares "
                                        f"{signature.symbol!r}")
    if not isinstance(getattr(binding, "DATA_OUTPUTS", None), dict):
        raise _error(binding, "DATA_OUTPUTS", "DATA_OUTPUTS must be a dict: output name -> its position in data")
    names = {param.name for param in signature.params}
    for name in (*binding.DATA_OUTPUTS, *getattr(binding, "FRESH", ())):
        if name not in names:
            where = "DATA_OUTPUTS" if name in binding.DATA_OUTPUTS else "FRESH"
            raise _error(binding, where, f"{where} names {name!r}, which is no parameter of kernel.h "
                                         f"({', '.join(sorted(names))})")


def check_data(problem: Problem, params: Mapping[str, Any], data: Any) -> None:
    """What binding.py makes of one case, against kernel.h."""
    binding, signature = problem.binding, _signature(problem)
    outputs = problem.bound("outputs", params)
    if not isinstance(outputs, dict) or not outputs:
        raise _error(binding, "outputs", "outputs(case) must return a dict: name -> (shape, dtype name)")
    parameters = {param.name: param for param in signature.params}
    for name, entry in outputs.items():
        _check_output(binding, parameters, name, entry)
    for name, position in binding.DATA_OUTPUTS.items():
        if name not in outputs:
            raise _error(binding, "DATA_OUTPUTS", f"DATA_OUTPUTS names {name!r}, which outputs(case) does not")
        if not isinstance(data, tuple) or not 0 <= position < len(data):
            raise _error(binding, "DATA_OUTPUTS", f"DATA_OUTPUTS puts {name!r} at position {position!r} of data, which "
                                                  f"is {_told(data)}")
    values = problem.bound("arguments", params, data)
    if not isinstance(values, dict):
        raise _error(binding, "arguments", "arguments(case, data) must return a dict: parameter -> value")
    for name, param in parameters.items():
        if name in outputs or name in _OURS:
            continue
        if name not in values:
            raise _error(binding, "arguments", f"arguments(case, data) has no {name!r}, a parameter of kernel.h that "
                                               "outputs(case) does not name either")
        _check_value(binding, param, values[name])
    if surplus := sorted(set(values) - set(parameters)):
        raise _error(binding, "arguments", f"arguments(case, data) has {', '.join(map(repr, surplus))}, which kernel.h "
                                           f"does not declare ({', '.join(parameters)})")
    for name in ("workspace_bytes", "flops", "bytes_moved"):
        number = problem.bound(name, params)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**63:
            raise _error(binding, name, f"{name}(case) must return a number from 0 on, not {_told(number)}")


def check_expectations(problem: Problem, params: Mapping[str, Any], expectations: Sequence[Any]) -> None:
    """Whether reference.py expects the outputs that binding.py declares, in the same order."""
    declared = problem.bound("outputs", params)
    found = [getattr(each, "name", None) for each in expectations]
    if found != list(declared):
        raise _error(problem.reference, "expected", f"expected(data) returns {found}, and outputs(case) of binding.py "
                                                    f"declares {list(declared)}")
    for each, (shape, dtype) in zip(expectations, declared.values(), strict=True):
        if tuple(each.shape) != tuple(shape) or str(each.dtype) != f"torch.{dtype}":
            raise _error(problem.reference, "expected",
                         f"expected(data) says that {each.name} is {each.dtype} {list(each.shape)}, and outputs(case) "
                         f"of binding.py says torch.{dtype} {list(shape)}")


def check_mutants(problem: Problem) -> None:
    """Whether mutants.py holds wrong answers that can be tried."""
    mutants = getattr(problem.mutants, "MUTANTS", None)
    if not isinstance(mutants, dict) or not mutants:
        raise _error(problem.mutants, "MUTANTS", "MUTANTS must be a dict: name -> Mutant (problems/utils.py)")
    for name, mutant in mutants.items():
        given = [getattr(mutant, each, None) is not None for each in ("transform_data", "transform_outputs")]
        if sum(given) != 1:
            raise _error(problem.mutants, "MUTANTS", f"{name!r} needs transform_data or transform_outputs, one of them")


def unsupported(problem: Problem, error: Exception) -> ProblemError:
    """``generate_input`` made data that no worker can be given."""
    return _error(problem.reference, "generate_input", f"generate_input returns what cannot be judged: {error}")


def _signature(problem: Problem) -> Signature:
    try:
        return Signature.read(problem.path / "kernel.h")
    except SourceError as error:
        raise ProblemError(str(error)) from error


def _check_keys(problem: Problem, case: Case) -> None:
    function = problem.reference.generate_input
    try:
        inspect.signature(function).bind(**case.params, seed=0)
    except TypeError as error:
        raise _error(problem.reference, "generate_input", f"generate_input does not take the case {case.name} of "
                                                          f"{problem.path / 'task.yml'}: {error}") from None


def _check_output(binding: ModuleType, parameters: Mapping[str, Param], name: str, entry: Any) -> None:
    param = parameters.get(name)
    if param is None or not param.is_pointer or param.ctype.startswith("const"):
        declared = "does not declare it" if param is None else f"declares it as {param.ctype}"
        raise _error(binding, "outputs", f"output {name!r} must be a pointer of kernel.h without const, which "
                                         f"{declared}")
    try:
        shape, dtype = entry
        good = all(isinstance(size, int) and size >= 0 for size in shape)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise _error(binding, "outputs", f"output {name!r} must be (shape, dtype name), not {_told(entry)}")
    if not isinstance(getattr(torch, str(dtype), None), torch.dtype):
        raise _error(binding, "outputs", f"output {name!r} has the dtype {dtype!r}, which torch does not know; "
                                         "for example 'float32' or 'bfloat16'")


def _check_value(binding: ModuleType, param: Param, value: Any) -> None:
    if param.is_pointer:
        good, wanted = isinstance(value, torch.Tensor), "a tensor"
    elif param.kind in ("float", "double"):
        good, wanted = isinstance(value, int | float), "a number"
    else:
        good, wanted = isinstance(value, int), "an integer"
    if not good:
        raise _error(binding, "arguments", f"{param.name} is {param.ctype} in kernel.h, so arguments(case, data) must "
                                           f"give {wanted}, not {_told(value)}")


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__


def _error(module: ModuleType, name: str | None, message: str) -> ProblemError:
    """The message with the file of ``module`` and the line where it defines ``name``."""
    path = Path(str(module.__file__))
    return ProblemError(f"{path}:{_lines(path).get(name or '', 1)}: {message}")


@functools.lru_cache(maxsize=32)
def _lines(path: Path) -> dict[str, int]:
    """Where a module defines its names, by name."""
    found: dict[str, int] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else [
            target.id for target in getattr(node, "targets", [getattr(node, "target", None)])
            if isinstance(target, ast.Name)]
        found.update(dict.fromkeys(names, node.lineno))
    return found
