# SPDX-License-Identifier: MIT
"""Conditions: decided where the macros are known, kept where they are not, and the same text either way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from submissions.conditionals import Conditionals, evaluate

KNOWN = {"YES": True, "NO": False}


@pytest.mark.parametrize(("condition", "value"), [
    ("defined(YES)", True), ("defined YES", True), ("defined(NO)", False), ("!defined(NO)", True), ("YES", True),
    ("defined(OTHER)", None), ("!OTHER", None), ("defined(YES) || OTHER", True), ("defined(NO) && OTHER > 3", None),
    ("defined(NO) && OTHER", False), ("OTHER && NO", False), ("OTHER || YES", True), ("OTHER || NO", None),
    ("(YES && !NO) || OTHER", True), ("!(YES)", False), ("1", True), ("0", False), ("0 || NO", False),
    ("__CUDA_ARCH__ >= 900", None), ("YES ==", None), ("", None), ("defined(", None), ("(YES", None), ("YES NO", None),
    ("1.5", None), ("|| YES", None), ("!" * 600 + "YES", None),
])
def test_evaluate(condition: str, value: bool | None) -> None:
    assert evaluate(condition, KNOWN) is value


@given(st.text(st.sampled_from("()!&|defin YESNO01 \n")))
def test_evaluate_takes_anything(condition: str) -> None:
    assert evaluate(condition, KNOWN) in (True, False, None)


def process(lines: list[str], known: dict[str, bool]) -> list[str]:
    conditionals = Conditionals(known)
    result = []
    for line in lines:
        if line.startswith("#"):
            word, _, rest = line[1:].partition(" ")
            written = conditionals.directive(word, rest)
            result += [written] if written else []
        elif conditionals.active:
            result.append(line)
    assert not conditionals.groups
    return result


def test_a_decided_branch_leaves_nothing_of_the_others() -> None:
    assert process(["#if NO", "a", "#elif YES", "b", "#else", "c", "#endif"], KNOWN) == ["b"]
    assert process(["#ifdef NO", "a", "#else", "b", "#endif", "#ifndef YES", "c", "#endif"], KNOWN) == ["b"]


def test_what_is_undecided_stays_with_its_directives() -> None:
    lines = ["#if X", "a", "#elif defined(YES)", "b", "#elif Y", "c", "#endif"]
    assert process(lines, KNOWN) == ["#if X", "a", "#else", "b", "#endif"]
    assert process(["#if NO", "a", "#elif X", "b", "#else", "c", "#endif"], KNOWN) == [
        "#if X", "b", "#else", "c", "#endif"]


def test_nothing_inside_a_dead_branch_counts() -> None:
    assert process(["#if NO", "#if X", "a", "#else", "b", "#endif", "#endif"], KNOWN) == []


@pytest.mark.parametrize("word", ["else", "endif", "elif"])
def test_no_branch_without_if(word: str) -> None:
    with pytest.raises(ValueError, match=f"#{word} without #if"):
        Conditionals({}).directive(word, "YES")


CONDITIONS = st.sampled_from(["YES", "NO", "X", "Z", "defined(X) && YES", "!Z || NO", "X || NO", "0", "1", "X && Z"])


def branch(body: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    def build(first: str, parts: list[tuple[str, list[str]]], last: list[str] | None, text: list[str]) -> list[str]:
        lines = [f"#if {first}", *text]
        for condition, lines_of_part in parts:
            lines += [f"#elif {condition}", *lines_of_part]
        return [*lines, *(["#else", *last] if last is not None else []), "#endif"]

    return st.builds(build, CONDITIONS, st.lists(st.tuples(CONDITIONS, body), max_size=2), st.none() | body, body)


TEXT = st.sampled_from("abcdefgh").map(lambda letter: [letter])


def several(part: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    return st.lists(part, max_size=3).map(lambda parts: [line for lines in parts for line in lines])


PROGRAMS = several(st.recursive(TEXT, lambda body: branch(several(body)), max_leaves=8))


@given(PROGRAMS, st.booleans(), st.booleans())
def test_deciding_in_two_steps_is_deciding_at_once(lines: list[str], x: bool, z: bool) -> None:
    everything = {**KNOWN, "X": x, "Z": z}
    assert process(process(lines, KNOWN), everything) == process(lines, everything)
