# SPDX-License-Identifier: MIT
"""Numbers read well at every magnitude, and untrusted text cannot steer a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.output import units
from scoring.output.text import one_line, printable


@pytest.mark.parametrize(("seconds", "text"), [
    (None, ""), (3e-10, "0.300 ns"), (4.12e-9, "4.12 ns"), (41.2e-6, "41.2 µs"), (412e-6, "412 µs"),
    (999.94e-6, "1.00 ms"), (0.0123, "12.3 ms"), (1.0, "1.00 s"), (75.04, "75.0 s"), (3600.0, "3600 s"),
])
def test_time(seconds: float | None, text: str) -> None:
    assert units.time(seconds) == text


@given(st.floats(1e-9, 1e4))
def test_a_time_reads_back_to_three_digits(seconds: float) -> None:
    number, unit = units.time(seconds).split(" ")
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=5.1e-3)
    assert len(number.replace(".", "")) <= 5


@pytest.mark.parametrize(("value", "text"), [
    (None, ""), (0, "0"), (0.0412, "0.0412"), (4.1249, "4.12"), (41.2, "41.2"), (999.9, "1000"), (1203.4, "1203"),
])
def test_digits(value: float | None, text: str) -> None:
    assert units.digits(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (None, ""), (0.0, "0.0%"), (0.0734, "7.3%"), (0.0996, "10%"), (0.61, "61%"), (1.04, "104%")])
def test_percent(value: float | None, text: str) -> None:
    assert units.percent(value) == text


def test_uncertainty_is_the_larger_side() -> None:
    assert units.uncertainty(99.0, 103.0, 100.0) == "±3.0%"
    assert units.uncertainty(95.0, 101.0, 100.0) == "±5.0%"
    assert units.uncertainty(100.0, 100.0, 100.0) == "±0.0%"


@pytest.mark.parametrize(("value", "text"), [(None, ""), (1.0549, "1.05×"), (0.5, "0.50×"), (123.4, "123×")])
def test_ratio(value: float | None, text: str) -> None:
    assert units.ratio(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (None, ""), (0, "0"), (24, "24 B"), (65536, "64 KiB"), (213_504, "208.5 KiB"), (256 << 20, "256 MiB")])
def test_size(value: int | None, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(("value", "unit", "text"), [
    (1.979e15, "FLOP/s", "1979 TFLOP/s"), (4.8e12, "B/s", "4.80 TB/s"), (300e9, "B/s", "300 GB/s"),
    (12.0, "B/s", "12 B/s")])
def test_rate(value: float, unit: str, text: str) -> None:
    assert units.rate(value, unit) == text


def test_plural() -> None:
    assert (units.plural(1, "case"), units.plural(0, "case")) == ("1 case", "0 cases")


def test_printable_spells_out_what_cannot_be_seen() -> None:
    assert printable("\x1b[31mred\x07 \u202e \x85 é µ") == "\\x1b[31mred\\x07 \\u202e \\x85 é µ"
    assert printable("a\r\nb\tc") == "a\nb\tc"
    assert printable("\udcff") == "\\udcff"


@given(st.text())
def test_printable_text_holds_nothing_that_steers(text: str) -> None:
    shown = printable(text)
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Cs") for char in shown if char not in "\n\t")
    shown.encode()
    assert "\n" not in one_line(text)


@given(st.text(alphabet=st.characters(codec="ascii", min_codepoint=32, max_codepoint=126)))
def test_printable_leaves_plain_text_alone(text: str) -> None:
    assert printable(text) == text
