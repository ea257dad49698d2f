# SPDX-License-Identifier: MIT
"""One call of a distributed task: ``custom_kernel`` in a process per rank (``ipc.group``), each with its own data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from scoring.ipc.group import GroupError, in_every_rank
from scoring.ipc.template import Answer, UnsupportedData, describe_answer
from scoring.worker.failure import Failure


def run_ranks(
    function: Callable[[int], Any], count: int, form: Any, outputs: Sequence[torch.Tensor], gpus: bool = False,
) -> list[torch.Tensor]:
    """``outputs``, into which every rank has written what its ``function(rank)`` returned.

    ``form``: of ``ipc.template.Answer``, a tuple with one item per rank. ``gpus``: each rank has one of its own.
    Raises ``Failure``, also one that ``function`` raises.
    """
    def call(rank: int) -> Any:
        try:
            answer, tensors = describe_answer(function(rank))
        except UnsupportedData as error:
            return {"status": "INCORRECT_SHAPE", "error": f"custom_kernel of rank {rank}: {error}"}
        except Failure as failure:
            return failure.reply()
        promised = [outputs[place] for place in _places(form[1][rank])]
        if len(promised) == len(tensors) and all(
                ours.shape == theirs.shape and ours.dtype == theirs.dtype
                for ours, theirs in zip(promised, tensors, strict=True)):
            for ours, theirs in zip(promised, tensors, strict=True):
                ours.copy_(theirs.detach())
        return answer.to_json()

    replies = _answers(count, call, gpus)
    answer = joined(replies)
    expected = tuple((tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in outputs)
    if (answer.form, answer.tensors) != (form, expected):
        raise Failure("INCORRECT_SHAPE", "the answers of the ranks change their shapes from call to call",
                      answer=answer)
    return list(outputs)


def try_once(function: Callable[[], Any]) -> None:
    """Call ``function`` in a process that has a GPU, and forget what it returns. Raises ``Failure`` as it does."""
    def call(_rank: int) -> Any:
        try:
            function()
        except Failure as failure:
            return failure.reply()
        return {}

    _answers(1, call, gpus=True)


def _answers(count: int, call: Callable[[int], Any], gpus: bool) -> list[Any]:
    """What every rank answers. Raises the first ``Failure`` among them."""
    try:
        replies = in_every_rank(count, call, gpus)
    except GroupError as error:
        raise Failure("UNAVAILABLE" if error.impossible else "RUNTIME_ERROR", str(error)) from error
    failed = next((reply for reply in replies if "error" in reply), None)
    if failed is not None:
        raise Failure(failed["status"], failed["error"], needs=failed.get("needs", ""))
    return replies


def joined(replies: list[Any]) -> Answer:
    """One answer of all ranks': a tuple with one item per rank."""
    forms: list[Any] = []
    tensors: list[tuple[tuple[int, ...], str]] = []
    for reply in replies:
        forms.append(_moved(reply["form"], len(tensors)))
        tensors += [(tuple(shape), dtype) for shape, dtype in reply["tensors"]]
    return Answer(["tuple", forms], tuple(tensors))


def _moved(form: Any, first: int) -> Any:
    """A form whose tensors are counted from ``first``."""
    kind, content = form
    match kind:
        case "tensor":
            return [kind, content + first]
        case "tuple" | "list":
            return [kind, [_moved(item, first) for item in content]]
        case "dict":
            return [kind, {key: _moved(item, first) for key, item in content.items()}]
    return form


def _places(form: Any) -> list[int]:
    """The numbers of the tensors in a form, in order."""
    kind, content = form
    match kind:
        case "tensor":
            return [content]
        case "tuple" | "list":
            return [place for item in content for place in _places(item)]
        case "dict":
            return [place for item in content.values() for place in _places(item)]
    return []
