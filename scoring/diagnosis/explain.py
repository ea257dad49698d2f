# SPDX-License-Identifier: MIT
"""Why an output was refused, in words a person can act on: where it is wrong, how, and what it looks like.

Called only after a comparison failed, with the judge's own data. Nothing here decides anything: whatever happens in it,
the verdict stands, so each part that fails is left out. ``seconds`` bounds the search for known mistakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scoring.diagnosis import locate, relations
from scoring.diagnosis.known_mistakes import Scene, optional, suspects
from scoring.diagnosis.relations import Output

if TYPE_CHECKING:
    from scoring.problem import Problem

SECONDS = 1.0
# Error in units of its bound: upper ends of the classes that are counted.
CLASSES = (1.0, 2.0, 10.0, 100.0, 1e4)
_BAR = 24                       # characters of the longest bar
_EXACT = 1 << 22                # elements up to which masks are made in fp64, as the comparison is
_NOTHING: tuple[list[str], dict[str, Any]] = ([], {})
_ROWS = 1 << 24                 # elements of one temporary


@dataclass(frozen=True)
class Diagnosis:
    """``headline`` ends the first line of a verdict; ``lines`` follow it; ``facts`` says the same to a program."""

    headline: str = ""
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def after(self, message: str) -> str:
        """``message``, which is one line, with all that is known besides."""
        first = f"{message}; {self.headline}" if self.headline else message
        return "\n".join((first, *self.lines))


def explain(
    problem: Problem, params: Mapping[str, Any], data: Any, expectations: Sequence[Any], outputs: Sequence[Any],
    names: Sequence[str], poisoned: Sequence[Tensor] | None = None, previous: Sequence[Tensor] | None = None,
    seconds: float = SECONDS,
) -> Diagnosis:
    """Explain what is wrong with ``outputs``. ``names`` says which expectations count (those of a peer may be few);
    ``poisoned`` is what the outputs held before the call, ``previous`` the traces (``relations.trace``) of an earlier
    answer. Never raises.
    """
    deadline = time.monotonic() + seconds
    found = _attempt(_explain, problem, params, data, expectations, outputs, names, poisoned, previous, deadline)
    return found or Diagnosis()


def _explain(
    problem: Problem, params: Mapping[str, Any], data: Any, expectations: Sequence[Any], outputs: Sequence[Any],
    names: Sequence[str], poisoned: Sequence[Tensor] | None, previous: Sequence[Tensor] | None, deadline: float,
) -> Diagnosis:
    found: list[tuple[Output, Tensor | None, Tensor | None]] = []
    lines: list[str] = []
    for number, (expectation, result) in enumerate(zip(expectations, outputs, strict=False)):
        if expectation.name not in names:
            continue
        misfit = _attempt(_misfit, expectation, result)
        if misfit:
            lines.append(misfit)
            continue
        axes = _attempt(_axes, problem, expectation.name) or ()
        output = _attempt(compared, expectation, result, axes)
        if output is not None:
            found.append((output, _entry(poisoned, number, result), _trace(previous, number)))
    wrong = [entry for entry in found if entry[0].count]
    facts: dict[str, Any] = {"outputs": {}, "looks_like": []}
    if not wrong:
        return Diagnosis("", tuple(lines), facts)
    for output, held, before in wrong:
        told, known = _attempt(describe, output, held, before) or _NOTHING
        prefix = f"{output.name}: " if len(found) > 1 else ""
        lines += [line if line.startswith(" ") else f"{prefix}{line}" for line in told]
        facts["outputs"][output.name] = known
    right = [output.name for output, *_ in found if not output.count]
    if right:
        lines.append(f"{', '.join(right)}: right in every element")
    scene = Scene(problem, params, data, expectations, outputs, {output.name: output for output, *_ in found}, deadline)
    headline = _looks(scene, lines, facts, [output for output, *_ in wrong])
    return Diagnosis(headline, tuple(lines), facts)


def _looks(scene: Scene, lines: list[str], facts: dict[str, Any], wrong: Sequence[Output]) -> str:
    """Add what the wrong outputs look like; the headline for it."""
    unwritten = [output.name for output in wrong if facts["outputs"].get(output.name, {}).get("unwritten")]
    if len(unwritten) == len(wrong):       # nothing was computed, so no mistake in computing explains it
        return "never written"
    culprits, complete = _attempt(suspects, scene) or ([], True)
    sentences = []
    empty = {output.name for output in wrong if facts["outputs"].get(output.name, {}).get("counts", {}).get(
        "NaN") == output.count}             # NaN says little: what else gives NaN in the same places may be it
    for suspect in culprits:
        others = set(suspect.explains) != {output.name for output in wrong}
        sentence = f"{', '.join(suspect.explains)}: {suspect.sentence}" if others else suspect.sentence
        sentences.append(f"NaN as from: {sentence}" if empty & set(suspect.explains) else sentence)
        facts["looks_like"].append({"name": suspect.name, "sentence": suspect.sentence, "of": list(suspect.explains)})
    told = {name for suspect in culprits for name in suspect.explains}
    for output in wrong:
        for kind, sentence in facts["outputs"].get(output.name, {}).get("relations", ()):
            facts["looks_like"].append({"name": kind, "sentence": sentence, "of": [output.name]})
            if output.name not in told:
                sentences.append(f"{output.name}: {sentence}" if len(wrong) > 1 else sentence)
    lines[:0] = [f"or like: {sentence}" for sentence in sentences[1:]]
    hint = getattr(optional(scene.problem, "diagnose"), "NAN", "")
    if hint and any(facts["outputs"].get(output.name, {}).get("counts", {}).get("NaN") for output in wrong):
        lines.append(hint)
    if not complete:
        lines.append("(more known mistakes were left untried: the time for it was over)")
    return f"looks like: {sentences[0]}" if sentences else ""


def compared(expectation: Any, result: Tensor, axes: Sequence[str] = ()) -> Output:
    """``result`` beside its expectation, with a mask of the wrong elements made as the comparison makes it (in fp32
    where that is many times faster: the mask then errs in elements within 2^-24 of their bound).
    """
    values, bound = expectation.values, expectation.bound
    got = result if expectation.index is None else result[tuple(i.to(result.device) for i in expectation.index)]
    got = got.to(values.device).reshape(values.shape)
    narrow = values.numel() > _EXACT and values.dtype == torch.float32 and got.dtype in (
        torch.bfloat16, torch.float16, torch.float32)
    dtype = torch.float32 if narrow else torch.float64
    wrong = torch.empty(values.shape, dtype=torch.bool, device=values.device)
    flat_wrong, flat_got, flat_values, flat_bound = (part.reshape(-1) for part in (wrong, got, values, bound))
    for start in range(0, values.numel(), _ROWS):
        part = slice(start, start + _ROWS)
        good = relations.close(*(x[part].to(dtype) for x in (flat_got, flat_values, flat_bound)))
        flat_wrong[part] = ~good
    grid = expectation.index is None
    named = tuple(axes) if len(axes) == values.ndim and grid else locate.default_axes(values.ndim)
    return Output(expectation.name, got, values, bound, wrong, int(torch.count_nonzero(wrong)), named, grid)


def describe(
    output: Output, held: Tensor | None = None, before: Tensor | None = None, unit: str = "its bound",
) -> tuple[list[str], dict[str, Any]]:
    """(lines, facts) about one wrong output by itself."""
    lines: list[str] = []
    facts: dict[str, Any] = {"wrong": output.count, "of": output.wrong.numel()}
    unwritten = None if held is None else relations.same_bits(held, output.got)
    if output.grid:
        where = locate.locate(output.wrong, output.axes)
        lines.append(f"where: {where.text}")
        facts["where"] = {"text": where.text, "kind": where.kind}
    told, counts = relations.values(output, unwritten)
    facts["counts"] = counts
    left = counts.get("never written", 0)
    if left > 8 * output.count / 256 ** output.got.element_size():       # more than random bytes agree by chance
        assert unwritten is not None
        if left == output.count:
            facts["unwritten"] = True
            lines.append("never written: all of the wrong elements still hold what was there before the call")
        else:
            lines.append(f"never written: {left} of the wrong elements still hold what was there before the call")
            if output.grid and left < output.count:
                lines.append(f"  these are: {locate.locate(unwritten & output.wrong, output.axes).text}")
    shares = facts["histogram"] = histogram(output)
    if not facts.get("unwritten"):              # the numbers of others say nothing
        lines += [*told, *_bars(shares, unit)]
    facts["relations"] = [] if facts.get("unwritten") else list(relations.relations(output, before))
    return lines, facts


def histogram(output: Output) -> dict[str, float]:
    """Share of all elements by the size of their error in units of its bound; from a sample of the wrong ones."""
    got, wanted, bound = output.sample
    ratio = ((got - wanted).abs() / bound).nan_to_num(nan=torch.inf, posinf=1e300)     # of a bound of 0
    error = torch.where(torch.isfinite(wanted) & torch.isfinite(got), ratio, torch.inf)
    wrong_share = output.count / max(1, output.wrong.numel())
    shares = {f"≤ {CLASSES[0]:g}": 1 - wrong_share}
    for low, high in zip(CLASSES, (*CLASSES[1:], torch.inf), strict=True):
        inside = (error > low) & (error < torch.inf) if high == torch.inf else (error > low) & (error <= high)
        if low == CLASSES[0]:
            inside |= error <= low                 # wrong by less than the rounding of this division
        label = f"> {low:g}" if high == torch.inf else f"{low:g} – {high:g}"
        shares[label] = wrong_share * float(inside.double().mean())
    shares["inf, NaN"] = wrong_share * float((error == torch.inf).double().mean())
    return shares


def _bars(shares: Mapping[str, float], unit: str) -> list[str]:
    """A small table: class, share of the elements, bar."""
    shown = {label: share for label, share in shares.items() if share > 0}
    largest = max(shown.values(), default=1.0)
    width = max((len(label) for label in shown), default=0)
    return [f"error in units of {unit}, share of the elements:"] + [
        f"  {label:>{width}}  {_share(share):>7}  {'#' * max(1, round(_BAR * share / largest))}"
        for label, share in shown.items()]


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else f"{100 * share:.1g}%"


def _misfit(expectation: Any, result: Any) -> str:
    """Of an output of the wrong shape or dtype: whether its numbers would do."""
    if not isinstance(result, Tensor):
        return f"{expectation.name}: is no tensor"
    shape, dtype = tuple(result.shape) == expectation.shape, result.dtype == expectation.dtype
    if shape and dtype:
        return ""
    if result.is_complex() or result.numel() != expectation.values.numel():
        return f"{expectation.name}: its numbers were not compared"
    guess = compared(expectation, result.reshape(expectation.shape).to(expectation.dtype))
    what = "converted" if shape else "read in the right shape" if dtype else "converted and read in the right shape"
    if not guess.count:
        return f"{expectation.name}: its numbers, {what}, would be right"
    return f"{expectation.name}: its numbers, {what}, would be wrong in {guess.count} of {guess.wrong.numel()} elements"


def _entry(tensors: Sequence[Tensor] | None, number: int, result: Any) -> Tensor | None:
    """One of ``tensors`` if it can be held against ``result``."""
    if tensors is None or number >= len(tensors) or not isinstance(result, Tensor):
        return None
    tensor = tensors[number]
    fits = isinstance(tensor, Tensor) and tensor.shape == result.shape and tensor.dtype == result.dtype
    return tensor if fits and not result.is_complex() else None


def _trace(traces: Sequence[Tensor] | None, number: int) -> Tensor | None:
    return traces[number] if traces is not None and number < len(traces) else None


def _axes(problem: Problem, name: str) -> Sequence[str]:
    axes: Mapping[str, Sequence[str]] = getattr(optional(problem, "diagnose"), "AXES", {})
    return axes.get(name, ())


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or None: outputs may be anything, and a verdict must not turn into a crash of the judge."""
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001
        return None


# ---- problems of others ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Likely:
    """What ``ref_kernel`` returned, in the place of an expectation."""

    name: str
    values: Tensor
    bound: Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    index: None = None


def explain_foreign(
    problem: Problem, data: Any, outputs: Sequence[Tensor], poisoned: Sequence[Tensor] | None = None,
    previous: Sequence[Tensor] | None = None,
) -> Diagnosis:
    """What ``ref_kernel`` on a copy of ``data`` shows, for a problem that has only ``check_implementation``.

    Its tolerance is not known here: elements count as off beyond 2 % of the reference plus 0.1 % of its size on the
    whole, and errors are told in units of that. Never raises.
    """
    answer = _attempt(problem.expected_output, _copy(data))
    results = list(answer) if isinstance(answer, tuple | list) else [answer]
    lines: list[str] = []
    likely: list[str] = []
    facts: dict[str, Any] = {"outputs": {}, "looks_like": []}
    for number, (wanted, got) in enumerate(zip(results, outputs, strict=False)):
        output = _attempt(_likely, f"output{number}", wanted, got)
        if output is None or not output.count:
            continue
        told, known = _attempt(
            describe, output, _entry(poisoned, number, got), _trace(previous, number),
            "(2 % of ref_kernel's value + 0.1 % of their size)") or _NOTHING
        start = f"{output.name}: " if len(outputs) > 1 else ""
        lines.append(f"{start}{output.count} of {output.wrong.numel()} elements are far from ref_kernel's")
        lines += told
        facts["outputs"][output.name] = known
        facts["looks_like"] += [{"name": kind, "sentence": sentence, "of": [output.name]}
                                for kind, sentence in known.get("relations", ())]
        likely += [sentence for _, sentence in known.get("relations", ())]
    return Diagnosis(f"looks like: {likely[0]}" if likely else "", tuple(lines), facts)


def _likely(name: str, wanted: Tensor, got: Tensor) -> Output | None:
    if not isinstance(wanted, Tensor) or wanted.shape != got.shape or wanted.is_complex() or not wanted.numel():
        return None
    values = wanted.detach().to(device=got.device, dtype=torch.float64)
    size = values[torch.isfinite(values)].abs().mean().nan_to_num(0.0)
    bound = (0.02 * values.abs() + 1e-3 * size).nan_to_num(0.0, posinf=0.0)
    return compared(_Likely(name, values, bound, got.dtype, tuple(got.shape)), got)


def _copy(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.clone()
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    if isinstance(data, tuple | list):
        parts: Iterable[Any] = (_copy(item) for item in data)
        return tuple(parts) if isinstance(data, tuple) else list(parts)
    return data
