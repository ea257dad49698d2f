# SPDX-License-Identifier: MIT
"""A contest whose submissions define several functions, each with a reference of its own.

The form: ``reference.py`` has ``generate_inputs`` and one ``reference_<what>`` per function; the submission's functions
end in ``_<what>``, under names that the folder's evaluator says. Parameters of the same name are the same input. All
outputs are compared by ``torch.allclose`` with ``ATOL`` and ``RTOL`` of ``reference.py``, shape and dtype included.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

PREFIX = "reference_"
USUAL = "custom_kernel"          # the one function that most contests ask for


@dataclass(frozen=True)
class EntryPoints:
    """``functions``: name in the submission, its reference, and the positions of the inputs that both take.

    ``fixed``: arguments of ``generate`` that the evaluator passes and no case has.
    """

    generate: Callable[..., Any]
    functions: tuple[tuple[str, Callable[..., Any], tuple[int, ...]], ...]
    fixed: Mapping[str, Any]
    atol: float
    rtol: float

    @property
    def names(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What a worker has to call."""
        return tuple((name, positions) for name, _function, positions in self.functions)

    def expected(self, data: Sequence[Any]) -> tuple[Any, ...]:
        """What the references make of ``data``, one output per function."""
        return tuple(function(*(data[i] for i in positions)) for _name, function, positions in self.functions)

    def check(self, data: Sequence[Any], output: Sequence[Any]) -> tuple[bool, str]:
        """Whether all outputs are right, and why not."""
        import torch

        largest = 0.0
        for (name, _function, _positions), got, wanted in zip(
                self.functions, output, self.expected(data), strict=True):
            if got.shape != wanted.shape or got.dtype != wanted.dtype:
                return False, (f"{name} returned {got.dtype}{list(got.shape)}, "
                               f"{wanted.dtype}{list(wanted.shape)} is expected")
            error = float((got.double() - wanted.double()).abs().max()) if got.numel() else 0.0
            if not torch.allclose(got, wanted, atol=self.atol, rtol=self.rtol):
                return False, f"{name} is off by up to {error:.3g}"
            largest = max(largest, error)
        return True, f"largest difference {largest:.3g}"


def entry_points(reference: ModuleType, evaluator: str, case_keys: Sequence[str]) -> EntryPoints | None:
    """The functions that ``reference`` has references for; None for a module of the usual form.

    ``evaluator`` is the text of the folder's evaluator, which is read and not run.
    """
    generate = getattr(reference, "generate_inputs", None)
    references = {name.removeprefix(PREFIX): value for name, value in vars(reference).items()
                  if name.startswith(PREFIX) and callable(value)}
    if hasattr(reference, "generate_input") or not callable(generate) or not references:
        return None
    order = max((list(inspect.signature(function).parameters) for function in references.values()), key=len)
    tree = ast.parse(evaluator)
    functions = []
    for function, name in zip(references.values(), _called(tree, list(references)), strict=True):
        positions = tuple(order.index(name) for name in inspect.signature(function).parameters if name in order)
        functions.append((name, function, positions))
    lacking = [name for name, parameter in inspect.signature(generate).parameters.items()
               if parameter.default is inspect.Parameter.empty and name not in case_keys]
    return EntryPoints(
        generate, tuple(functions), _passed(tree, generate, lacking),
        float(getattr(reference, "ATOL", 1e-8)), float(getattr(reference, "RTOL", 1e-5)))


def names_of(reference: str, evaluator: str) -> tuple[str, ...]:
    """The functions that a submission has to define, by the texts of ``reference.py`` and of the evaluator, which are
    read and not run.

    Raises ``SyntaxError`` or ``ValueError`` for a text that is no Python.
    """
    defined = [node.name for node in ast.parse(reference).body if isinstance(node, ast.FunctionDef)]
    references = [name.removeprefix(PREFIX) for name in defined if name.startswith(PREFIX)]
    if "generate_input" in defined or "generate_inputs" not in defined or not references:
        return (USUAL,)
    return _called(ast.parse(evaluator), references)


def _called(tree: ast.Module, references: Sequence[str]) -> tuple[str, ...]:
    """The submission's function for each reference ``what``: the attribute ``…_<what>`` of the evaluator's text."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = []
    for what in references:
        names = sorted(name for name in attributes if name.endswith(f"_{what}") and not name.startswith(PREFIX))
        found.append(names[0] if names else what)
    return tuple(found)


def _passed(tree: ast.Module, generate: Callable[..., Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Constants of the evaluator's module that it passes to ``generate_inputs`` for the parameters ``wanted``."""
    constants: dict[str, Any] = {target.id: node.value.value for node in tree.body
                 if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                 for target in node.targets if isinstance(target, ast.Name)}
    parameters = list(inspect.signature(generate).parameters)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "generate_inputs":
            given: list[tuple[str, ast.expr]] = [
                *zip(parameters, node.args, strict=False),
                *((word.arg, word.value) for word in node.keywords if word.arg is not None)]
            for name, value in given:
                if name in wanted and isinstance(value, ast.Name) and value.id in constants:
                    found.setdefault(name, constants[value.id])
    return found
