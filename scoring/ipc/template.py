# SPDX-License-Identifier: MIT
"""Nested data as they cross between judge and worker: a template of plain JSON, and named tensors beside it.

The judge describes and the worker builds, never the other way round: ``build_data`` makes objects of any class of the
task's own modules. What a worker sends back is an ``Answer``, which holds tensors and nothing that runs.
"""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MAX_OUTPUTS, MAX_DEPTH, MAX_DIMENSIONS = 256, 8, 16       # of an answer


class UnsupportedData(Exception):
    """``generate_input`` returned something that cannot be handed to another process."""


class TemplateError(Exception):
    """A template that ``describe_data`` never makes, or an answer that is none."""


# Inputs, from the judge to the worker ---------------------------------------------------------------------------------

def describe_data(
    data: Any, outputs: Mapping[int, str] | None = None, classes: Sequence[str] = (),
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Template and named tensors of nested ``data``; position i of a top-level tuple becomes output ``outputs[i]``.

    Objects (data classes, named tuples, modules, plain ones) may be of classes in the modules named ``classes``.
    Raises ``UnsupportedData`` for anything but these, tensors, plain values, tuples, lists, sets, dicts with string
    keys, dtypes and devices.
    """
    tensors: dict[str, torch.Tensor] = {}

    def walk(value: Any, where: str) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.is_meta:
                raise UnsupportedData(f"{where} is a {value.layout} tensor on {value.device}; it must be a plain one")
            name = where if where not in tensors else f"{where}#{len(tensors)}"     # a key may have dots in it
            tensors[name] = value.detach() if value.requires_grad else value
            return ["parameter" if isinstance(value, torch.nn.Parameter) else "tensor", name]
        if isinstance(value, float) and not math.isfinite(value):
            return ["float", repr(value)]
        if value is None or type(value) in (bool, int, float, str):
            return ["value", value]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, torch.device):
            return ["device", str(value)]
        if type(value) in (tuple, list, set, torch.Size):
            kind = "tuple" if isinstance(value, tuple) else type(value).__name__
            return [kind, [walk(item, f"{where}.{index}") for index, item in enumerate(value)]]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            kind = "ordered" if isinstance(value, OrderedDict) else "dict"
            return [kind, {key: walk(item, f"{where}.{key}") for key, item in value.items()}]
        if type(value).__module__ in classes:
            return _object(value, where, walk)
        if isinstance(value, bool | int | float | str):        # of a subclass, which is no object of the task's
            return ["value", value]
        raise UnsupportedData(f"{where} is {type(value).__name__}; only tensors and plain values can be judged")

    if outputs and isinstance(data, tuple):
        items = [
            ["tensor", outputs[index]] if index in outputs else walk(item, f"data.{index}")
            for index, item in enumerate(data)
        ]
        return ["tuple", items], tensors
    return walk(data, "data"), tensors


def _object(value: Any, where: str, walk: Callable[[Any, str], Any]) -> Any:
    kind = type(value)
    name = [kind.__module__, kind.__qualname__]
    if isinstance(value, tuple):
        if not hasattr(value, "_fields"):
            raise UnsupportedData(f"{where} is {kind.__name__}, a tuple of a class of its own")
        return ["named", [*name, [walk(item, f"{where}.{field}")
                                  for field, item in zip(kind._fields, value, strict=True)]]]
    slots = [each for base in kind.__mro__ for each in getattr(base, "__slots__", ()) if hasattr(value, each)]
    fields = {**getattr(value, "__dict__", {}), **{each: getattr(value, each) for each in slots}}
    fields.pop("__dict__", None)
    return ["object", [*name, {field: walk(item, f"{where}.{field}") for field, item in fields.items()}]]


def build_data(template: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The object that a template of the judge's describes. Raises ``TemplateError``."""
    kind, content = template
    match kind:
        case "tensor":
            return tensors[content]
        case "parameter":
            return torch.nn.Parameter(tensors[content], requires_grad=tensors[content].is_floating_point())
        case "value":
            return content
        case "float":                # infinities and NaN, which JSON cannot spell
            return float(content)
        case "dtype":
            return getattr(torch, content)
        case "device":
            return torch.device(content)
        case "tuple" | "list" | "set" | "Size":
            items = [build_data(item, tensors) for item in content]
            return {"tuple": tuple, "set": set}.get(kind, list)(items)
        case "dict" | "ordered":
            made = {key: build_data(item, tensors) for key, item in content.items()}
            return OrderedDict(made) if kind == "ordered" else made
        case "named":
            module, name, items = content
            return _class(module, name)(*(build_data(item, tensors) for item in items))
        case "object":
            module, name, fields = content
            found = _class(module, name)
            made_object = found.__new__(found)
            for field, item in fields.items():       # as unpickling does: no constructor runs
                object.__setattr__(made_object, field, build_data(item, tensors))
            return made_object
    raise TemplateError(f"unknown template {kind!r}")


def _class(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise TemplateError(f"{module}.py has no class {name}, which the task's data are of")
    return found


# Outputs, from the worker to the judge --------------------------------------------------------------------------------

@dataclass(frozen=True)
class Answer:
    """What a call returned, without its bytes: how ``tensors`` (shape, dtype by torch's name) are nested.

    ``form``: ``["tensor", i]``, ``["none", None]``, ``["tuple" | "list", […]]`` or ``["dict", {…}]``.
    """

    form: Any
    tensors: tuple[tuple[tuple[int, ...], str], ...]

    def to_json(self) -> dict[str, Any]:
        """As it crosses the socket."""
        return {"form": self.form, "tensors": [[list(shape), dtype] for shape, dtype in self.tensors]}

    @classmethod
    def from_json(cls, value: Any, max_bytes: int) -> Answer:
        """Of what a worker claims: every part is looked at, and all tensors together have at most ``max_bytes``.

        Raises ``TemplateError``.
        """
        try:
            form, claimed = value["form"], value["tensors"]
            if not isinstance(claimed, list) or len(claimed) > MAX_OUTPUTS:
                raise TemplateError(f"an answer has at most {MAX_OUTPUTS} tensors")
            tensors = tuple(_tensor(*each) for each in claimed)
            _check_form(form, len(tensors), 0)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise TemplateError(f"no description of an answer: {error!r}") from error
        size = sum(math.prod(shape) * getattr(torch, dtype).itemsize for shape, dtype in tensors)
        if size > max_bytes:
            raise TemplateError(f"the answer has {size / 2**30:.3g} GiB; there is room for {max_bytes / 2**30:.3g}")
        return cls(form, tensors)

    def build(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The answer with ``tensors`` in it."""
        def made(form: Any) -> Any:
            kind, content = form
            match kind:
                case "tensor":
                    return tensors[content]
                case "none":
                    return None
                case "dict":
                    return {key: made(item) for key, item in content.items()}
            return (tuple if kind == "tuple" else list)(made(item) for item in content)

        return made(self.form)


def describe_answer(result: Any) -> tuple[Answer, list[torch.Tensor]]:
    """What a call returned. Raises ``UnsupportedData`` for anything but tensors in tuples, lists and dicts."""
    tensors: list[torch.Tensor] = []

    def walk(value: Any, where: str) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return ["tensor", len(tensors) - 1]
        if value is None:
            return ["none", None]
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return [kind, [walk(item, f"{where}[{index}]") for index, item in enumerate(value)]]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["dict", {key: walk(item, f"{where}[{key!r}]") for key, item in value.items()}]
        raise UnsupportedData(f"{where} is {type(value).__name__}, not a tensor")

    form = walk(result, "the result")
    return Answer(form, tuple((tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors)), tensors


def _tensor(shape: Any, dtype: Any) -> tuple[tuple[int, ...], str]:
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise TypeError("a shape is a list of integers")
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise ValueError(f"no shape: {shape}")
    if not isinstance(dtype, str) or not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"no dtype: {dtype!r}")
    return tuple(shape), dtype


def _check_form(form: Any, count: int, depth: int) -> None:
    kind, content = form
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if kind == "tensor":
        if type(content) is not int or not 0 <= content < count:
            raise ValueError(f"no tensor {content!r}")
    elif kind in ("tuple", "list"):
        if not isinstance(content, list) or len(content) > MAX_OUTPUTS:
            raise TypeError("a list is expected")
        for item in content:
            _check_form(item, count, depth + 1)
    elif kind == "dict":
        if not isinstance(content, dict) or len(content) > MAX_OUTPUTS:
            raise TypeError("a dict is expected")
        for item in content.values():
            _check_form(item, count, depth + 1)
    elif kind != "none":
        raise ValueError(f"unknown kind {kind!r}")
