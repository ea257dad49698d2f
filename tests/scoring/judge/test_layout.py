# SPDX-License-Identifier: MIT
"""``scoring.judge.layout``: tensors keep their shape and place, and any byte written outside the outputs is noticed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.ipc import arena
from scoring.ipc.template import UnsupportedData, build_data, describe_data
from scoring.judge import layout
from scoring.judge.seeds import Noise

DTYPES = ["float32", "bfloat16", "float16", "float64", "int8", "int32", "int64", "uint8", "bool", "float8_e4m3fn",
          "complex64", "complex128"]


def memory(tensors: dict[str, torch.Tensor], outputs: dict[str, tuple[tuple[int, ...], str]]) -> layout.SlotMemory:
    plan = layout.lay_out(tensors, outputs, ["value", None])
    slot = layout.SlotMemory(arena.create_host(plan.nbytes), plan, Noise(bytes(32)))
    slot.fill(tensors)
    slot.poison(nan=True)
    return slot


def tensor(dtype: str, *shape: int) -> torch.Tensor:
    kind = getattr(torch, dtype)
    raw = torch.randint(0, 2 if dtype == "bool" else 120, (math.prod(shape) * kind.itemsize,), dtype=torch.uint8)
    return raw.view(kind).reshape(shape)


@pytest.fixture
def slot() -> Iterator[layout.SlotMemory]:
    made = memory(
        {"x": torch.randn(5, 7), "scale": tensor("float8_e4m3fn", 3), "flag": torch.tensor(True)},
        {"y": ((4, 3), "bfloat16"), "z": ((1,), "float32")},
    )
    yield made
    made.arena.close()


@pytest.fixture
def updating() -> Iterator[layout.SlotMemory]:
    """A cache [2, 4, 3] of NaN, of which a call rewrites row 1 of every request; output row must then be the same."""
    tensors = {"cache": torch.full((2, 4, 3), torch.nan, dtype=torch.bfloat16), "x": torch.randn(3)}
    updated = [layout.Update("cache", (slice(None), slice(1, 2)), "row")]
    plan = layout.lay_out(tensors, {"row": ((2, 1, 3), "bfloat16")}, ["value", None], updated=updated)
    made = layout.SlotMemory(arena.create_host(plan.nbytes), plan, Noise(bytes(32)))
    made.fill(tensors)
    made.poison(nan=True)
    yield made
    made.arena.close()


def test_a_part_of_an_input_may_be_rewritten_and_must_be(updating):
    cache, row = (spec_of(updating, name).view(updating.arena.block) for name in ("cache", "row"))
    row.fill_(2.5)
    assert "cache was not updated" in updating.damage()
    cache[:, 1:2] = row
    assert updating.damage() == ""
    cache[1, 1, 2] = 3.5
    assert "cache was not updated: the part that a call rewrites is not what output row holds" in updating.damage()


def test_nothing_else_of_that_input_may_change(updating):
    cache, row = (spec_of(updating, name).view(updating.arena.block) for name in ("cache", "row"))
    cache[:, 1:2] = row
    cache[1, 2, 0] = 1
    assert "input cache was modified: 1 of 24 elements, the first [1, 2, 0]" in updating.damage()


SPECS = ["x", "scale", "flag", "y", "z"]


def spec_of(slot: layout.SlotMemory, name: str) -> arena.TensorSpec:
    return next(spec for spec in (*slot.layout.inputs, *slot.layout.outputs) if spec.name == name)


def test_nothing_written_is_no_damage(slot):
    assert slot.damage() == ""
    slot.poison(nan=False)
    for spec in slot.layout.outputs:
        spec.view(slot.arena.block).fill_(1)
    assert slot.damage() == ""


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("distance", "words"), [(1, "1 bytes before"), (layout.GUARD, f"{layout.GUARD} bytes before")])
def test_a_byte_before_a_tensor(slot, name, distance, words):
    offset = spec_of(slot, name).offset - distance
    slot.arena.block[offset] ^= 1
    assert "1 guard bytes overwritten" in slot.damage()
    if distance == 1:
        assert f"{words} {name}" in slot.damage()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("distance", [0, 1, layout.GUARD - 1])
def test_a_byte_after_a_tensor(slot, name, distance):
    spec = spec_of(slot, name)
    slot.arena.block[spec.offset + spec.nbytes + distance] ^= 0x80
    assert f"the first {distance} bytes after the end of {name}" in slot.damage()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_byte_outside_the_outputs_counts(data):
    slot = memory({"x": torch.arange(10.0), "n": torch.arange(3)}, {"y": ((9,), "float16")})
    (output,) = slot.layout.outputs
    at = data.draw(st.integers(0, slot.layout.nbytes - 1))
    slot.arena.block[at] ^= data.draw(st.integers(1, 255))
    inside = output.offset <= at < output.offset + output.nbytes
    assert bool(slot.damage()) is not inside
    slot.arena.close()


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_input_of_any_dtype_arrives_and_is_watched(dtype):
    value = tensor(dtype, 3, 4)
    slot = memory({"x": value}, {"y": ((2,), "float32")})
    (spec,) = slot.layout.inputs
    view = spec.view(slot.arena.block)
    assert view.dtype == value.dtype
    assert torch.equal(view.view(torch.uint8), value.view(torch.uint8))
    slot.arena.block[spec.offset + spec.nbytes - 1] ^= 1
    assert slot.damage().startswith("input x was modified: 1 of ")
    assert slot.damage(inputs=False) == ""
    slot.arena.close()


def test_a_nan_in_an_input_is_no_damage():
    slot = memory({"x": torch.tensor([math.nan, -0.0])}, {"y": ((2,), "float32")})
    assert slot.damage() == ""
    slot.layout.inputs[0].view(slot.arena.block)[1] = 0.0
    changed = "input x was modified: 1 of 2 elements, the first [1] (was -0, is 0)"
    assert slot.damage() == changed, "the sign of zero is a bit like any other"
    slot.arena.close()


def test_a_modified_input_is_told_by_place_and_value():
    slot = memory({"x": torch.arange(12.0).view(3, 4).t()}, {"y": ((2,), "float32")})
    view = slot.layout.inputs[0].view(slot.arena.block)
    view[1, 1:] = -7.0
    assert slot.damage() == "input x was modified: 2 of 12 elements, the first [1, 1] (was 5, is -7), the last [1, 2]"
    slot.arena.close()


@pytest.mark.parametrize("nan", [True, False])
def test_what_an_output_held_before_the_call_can_be_had_again(slot, nan):
    for _ in range(2):
        slot.poison(nan=nan)
        held = slot.outputs()
        slot.noise.next()                     # whatever is drawn later
        again = slot.poisoned()
        assert [(x.dtype, x.shape) for x in again] == [(x.dtype, x.shape) for x in held]
        assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(again, held, strict=True))


@pytest.mark.parametrize("value", [
    torch.randn(6, 5).t(), torch.randn(8, 10)[::2, 1:9:3], torch.randn(2, 3, 4).permute(2, 0, 1), torch.tensor(3.5),
    torch.randn(4, 0, 3), torch.randn(2, 3, 5).unbind(1)[1], torch.randn(1, 5).expand(4, 5), torch.zeros(1).expand(7),
], ids=["transposed", "sliced", "permuted", "scalar", "empty", "interleaved", "expanded rows", "expanded scalar"])
def test_strides_are_kept_where_elements_do_not_overlap(value):
    slot = memory({"x": value}, {"y": ((2,), "float32")})
    view = slot.layout.inputs[0].view(slot.arena.block)
    assert torch.equal(view, value)
    overlapping = 0 in value.stride() and value.numel() > 1
    assert (view.stride() == value.stride()) is not overlapping
    assert slot.damage() == ""
    slot.arena.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(DTYPES)), min_size=1, max_size=5))
def test_tensors_never_share_a_byte_nor_touch(parts):
    tensors = {f"t{index}": tensor(dtype, *shape) for index, (shape, dtype) in enumerate(parts[1:])}
    plan = layout.lay_out(tensors, {"y": (tuple(parts[0][0]), parts[0][1])}, ["value", None])
    spans = sorted((spec.offset, spec.offset + spec.nbytes) for spec in (*plan.inputs, *plan.outputs))
    assert spans[0][0] >= layout.GUARD
    assert plan.nbytes - spans[-1][1] >= layout.GUARD
    for (_, end), (begin, _) in itertools.pairwise(spans):
        assert begin - end >= layout.GUARD
    assert all(begin % arena.ALIGNMENT == 0 for begin, _ in spans)


def test_poison_alternates_between_nan_and_noise(slot):
    y, z = (spec.view(slot.arena.block) for spec in slot.layout.outputs)
    assert bool(y.isnan().all())
    assert bool(z.isnan().all())
    seen = []
    for _ in range(2):
        slot.poison(nan=False)
        seen.append(y.view(torch.uint8).clone())
    assert not torch.equal(*seen), "no two rounds find the same bytes in the outputs"
    assert slot.damage() == ""


def test_sealed_inputs_have_sound_guards_between_them_whatever_was_there(slot):
    """The region is sealed in one piece. Once the worker has unsealed it, guards are as new, inputs as they were."""
    between = slot.layout.inputs[0].offset + slot.layout.inputs[0].nbytes + 100
    slot.arena.block[between] ^= 1
    assert slot.damage() != ""
    slot.fill(slot.private, seal=lambda region: region.bitwise_xor_(0x5A))
    for spec in slot.layout.inputs:
        raw = slot.arena.block[spec.offset : spec.offset + spec.nbytes]
        truth = slot.private[spec.name].contiguous().flatten().view(torch.uint8)
        assert torch.equal(raw ^ 0x5A, truth)
    slot.sealed.bitwise_xor_(0x5A)
    assert slot.damage() == ""


def test_equal_bits_are_those_of_every_output():
    first, second = torch.tensor([1.0, torch.nan]), torch.tensor([2.0])
    assert layout.equal_bits([first, second], [first.clone(), second.clone()])
    assert not layout.equal_bits([first, second], [first.clone(), second + 1])
    assert not layout.equal_bits([first, second], [first + 1, second])


def test_outputs_are_copies(slot):
    y, _ = slot.outputs()
    slot.layout.outputs[0].view(slot.arena.block).fill_(2)
    assert bool(y.isnan().all())


def test_two_slots_have_different_guards():
    tensors = {"x": torch.zeros(4)}
    plan = layout.lay_out(tensors, {}, ["value", None])
    noise = Noise(bytes(32))
    slots = [layout.SlotMemory(arena.create_host(plan.nbytes), plan, noise) for _ in range(2)]
    assert not torch.equal(slots[0].arena.block[: layout.GUARD], slots[1].arena.block[: layout.GUARD])


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.integers(0, 3).map(lambda n: torch.full((n,), float(n))),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner), max_leaves=12,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@settings(max_examples=200, deadline=None)
@given(NESTED)
def test_data_comes_out_of_its_template_as_it_went_in(data):
    template, tensors = describe_data(data)
    travelled = json.loads(json.dumps(template, allow_nan=False))
    assert same(data, build_data(travelled, tensors))


def test_names_of_tensors_never_collide():
    data = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    template, tensors = describe_data(data)
    assert same(data, build_data(template, tensors))


def test_positions_of_a_tuple_can_be_outputs():
    x, y = torch.zeros(2), torch.ones(3)
    template, tensors = describe_data((x, 2.0, y), {2: "y"})
    assert list(tensors) == ["data.0"]
    assert build_data(template, {"data.0": x, "y": y}) == (x, 2.0, y)


@pytest.mark.parametrize("bad", [
    object(), {1: 2}, {"a": {2, b"x"}}, 1j, b"bytes",
    torch.eye(3).to_sparse(), torch.zeros(2, device="meta"),
], ids=["object", "integer key", "set", "complex", "bytes", "sparse", "meta"])
def test_what_no_other_process_can_be_given(bad):
    with pytest.raises(UnsupportedData, match=r"data(\.[01a]){0,2} is "):
        describe_data((0, bad) if isinstance(bad, torch.Tensor) else bad)


def test_gradients_stay_behind():
    weight = torch.nn.Parameter(torch.randn(3))
    _, tensors = describe_data((weight,))
    slot = memory(tensors, {"y": ((1,), "float32")})
    assert not slot.arena.block.requires_grad
    assert slot.damage() == ""
    slot.arena.close()
