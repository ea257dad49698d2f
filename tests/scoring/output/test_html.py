# SPDX-License-Identifier: MIT
"""The page is self-contained, well formed, says what the records say, and cannot be abused by the text in them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scoring.output import html
from scoring.record import Case, Evidence, Facts, Mode, Record, Status
from tests.scoring.records import case_result, compile_error, history, record, sample, stats, unavailable

VOID = {"meta", "link", "br", "img", "hr", "input"}
EVIL = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>{{ 7 * 7 }}\x1b[2J\u202e"


class Page(HTMLParser):
    """Parses a page: checks that tags nest, and collects text, tags and attributes."""

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
            if self.open and {"td", "th"} & set(self.open):
                self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(html.page([*sample(), *history()], generated="2026-11-20T10:00"))


def test_it_is_well_formed_and_whole(page: Page) -> None:
    headings = ["Results", "Failures", "Times", "Rooflines", "History", "Compiler usage", "Method", "Machines"]
    for heading in headings:
        assert page.text.count(heading) >= 2                    # in the navigation and as a heading
    assert "8 passed, 2 failed, 1 not run · 2026-11-20 10:00 UTC" in page.text


def test_it_loads_nothing_and_runs_nothing(page: Page) -> None:
    assert not {"script", "iframe", "object", "embed", "img", "base", "form"} & set(page.tags)
    references = {value for _, name, value in page.attributes if name in ("href", "src", "xlink:href", "action")}
    assert references
    assert all(value.startswith("#") or value == "data:," for value in references)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    source = html.page(sample())
    assert "url(" not in source
    assert "@import" not in source
    assert "Content-Security-Policy" in source


def test_nothing_is_wider_than_a_telephone() -> None:
    """At 390 pixels a row is a block of labelled values; what stays a table or a chart scrolls in its own box."""
    source = html.page([*sample(), *history()])
    assert 'name="viewport" content="width=device-width' in source
    assert source.count("<table") == source.count('<div class="scroll"><table')
    stacks = re.findall(r'<table class="stack">.*?</table>', source, re.DOTALL)
    assert len(stacks) >= 3
    cells = [cell for stack in stacks for cell in re.findall(r"<td[^>]*>", stack)]
    assert all("data-l=" in cell for cell in cells)
    narrow = source.partition("@media (max-width: 640px)")[2]
    assert "content: attr(data-l)" in narrow.partition("@media")[0]


def test_navigation_leads_to_sections(page: Page) -> None:
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = {value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")}
    assert links == set(ids)


def test_the_results_table_has_a_row_per_kernel_and_gpu(page: Page) -> None:
    rows = {(row[0], row[1], row[2]): row for row in page.rows if len(row) > 3 and row[3] in Status.__members__}
    assert len(rows) == len(sample())
    best = rows["fp8_gemm", "cuda/wgmma", "H200 (sm_90a)"]
    assert best[3:] == ["PASSED", "6/6", "32.4 µs", "784 TFLOP/s", "54%", "1.08× torch._scaled_mm", "2026-11-18"]
    absent = rows["flash_attention", "hip/mfma", "MI300 (gfx942)"]
    assert absent[3:5] == ["UNAVAILABLE", "compiled; not run: no AMD GPU and no emulator on this machine"]


def test_each_timed_case_has_a_row_with_its_figures(page: Page) -> None:
    assert ["m=1024,n=1536,k=7168", "cuda/wgmma", "19.0 µs", "±0.4%", "1184 TFLOP/s", "1.13 TB/s", "60%", "flop",
            "17.0 µs 0.89×"] in page.rows
    assert ["", "cuda/naive", "142 µs", "±1.2%", "158 TFLOP/s", "151 GB/s", "8.0%", "flop", ""] in page.rows


def test_without_peaks_there_is_no_empty_roofline_column() -> None:
    parsed = Page(html.page([record(gpu="CPU", kernel="cpu/naive")]))
    assert ["Case", "Kernel", "Time", "±CI", "Rate", "Bandwidth"] in parsed.rows
    assert "GFLOP/s" in parsed.text


def test_failures_show_element_and_line(page: Page) -> None:
    assert "first at [0, 0, 64, 0]: got 0.1377, expected 0.0214, allowed ±0.0041" in page.text
    assert 'kernels/cuda/mla_decode/cluster.cu:42: error: identifier "barier" is undefined' in page.text


def test_usage_is_shown_even_for_what_could_not_run(page: Page) -> None:
    assert ["flash_attention", "hip/mfma", "MI300 (gfx942)", "flash_attention_kernel", "128", "128", "96", "24 B",
            "32 B", "64 KiB", "256", "25%"] in page.rows


def test_usage_has_no_column_that_is_empty_throughout() -> None:
    source = html.page([record()])
    assert "AGPRs" not in source
    assert "Registers" in source


def test_method_states_protocol_cache_clock_and_machine(page: Page) -> None:
    for fact in ("graph_cold/2", "cache cold: 12 slots, 181 MiB over a 50 MiB cache", "SM clock 17", "MHz",
                 "power 502 – 610.2 W", "H200 data sheet", "580.95.05", "2.13.0+cu130", "nvcc 13.0.88"):
        assert fact in page.text


def test_each_gpu_has_a_roofline_and_each_board_bars(page: Page) -> None:
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert [label for label in labels if label.startswith("Roofline")] == [
        "Roofline of H200 (sm_90a)", "Roofline of L4 (sm_89)", "Roofline of MI300 (gfx942)"]
    assert len([label for label in labels if label.endswith(": times per case")]) == 6
    assert len([label for label in labels if label.endswith("over time")]) == 5


def test_every_coordinate_is_a_number(page: Page) -> None:
    drawn = [value for tag, name, value in page.attributes
             if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d", "width", "height", "points")
             and tag in ("rect", "circle", "line", "path", "text")]
    assert len(drawn) > 500
    assert all(re.fullmatch(r"[MLHVZhvz0-9. -]+", value) for value in drawn)


def test_text_stays_inside_the_pictures(page: Page) -> None:
    """Estimated at a generous width per character, no label begins left of its picture or above it."""
    source = html.page([*sample(), *history()])
    for chart in re.findall(r'<svg class="chart".*?</svg>', source, flags=re.S):
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', chart)[1])          # type: ignore[index]
        for x, anchor, text in re.findall(
                r'<text(?: class="\w+")? x="([\d.]+)"[^>]*?(?:text-anchor="(\w+)")?>([^<]*)</text>', chart):
            extent = 6.0 * len(text)
            start = float(x) - {"end": extent, "middle": extent / 2}.get(anchor, 0.0)
            if "rotate" not in text:
                assert start >= -1 or anchor == "middle", (text, start)
                assert start + extent <= width + 16, (text, start + extent, width)


def evil_record(status: Status) -> Record:
    """A record with hostile text wherever a record has text."""
    made = record(peers=("p",))
    result = replace(made.cases[0], case=Case({"m": EVIL, EVIL: 1}, "benchmarks"), message=EVIL, bound=EVIL,
                     peers={EVIL: stats(1e-5)}, environment={EVIL: EVIL, "peer_notes": {EVIL: EVIL}, "x_mhz": [EVIL]})
    changes = {
        "problem": EVIL, "kernel": EVIL, "target": EVIL, "gpu": EVIL, "device": EVIL, "message": EVIL, "protocol": EVIL,
        "isolation": EVIL, "digest": EVIL, "id": EVIL, "created": EVIL, "ranking_by": EVIL,
        "usage": ({"name": EVIL, "registers": EVIL, "threads": EVIL},), "cases": (result,),
        "compile": {"version": EVIL, "diagnostics": [{"file": EVIL, "line": 1, "severity": EVIL, "message": EVIL}]},
        "system": {EVIL: EVIL, "nested": {EVIL: [EVIL]}},
        "facts": Facts(peaks={EVIL: 1e15, "bytes": 1e12}, peaks_source=EVIL, checks=EVIL, problem_broken=EVIL,
                       repeat=(EVIL,), isolation_reasons=(EVIL,), device_lock=EVIL)}
    if status is Status.PASSED:
        return replace(made, **changes)
    failing = replace(case_result("fp8_gemm", {"m": 1, "n": 1, "k": 1}, status=status, message=EVIL),
                      case=Case({EVIL: EVIL}))
    return replace(made, **{**changes, "status": status, "score": None, "cases": (failing,)})


@pytest.mark.parametrize("status", [Status.PASSED, Status.RUNTIME_ERROR, Status.UNAVAILABLE])
def test_hostile_text_stays_text(status: Status) -> None:
    made = evil_record(status)
    source = html.page([made, replace(made, id="other", created="2020-01-01T00:00:00")], title=EVIL)
    parsed = Page(source)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert "<script>alert('1')</script>" in parsed.text        # shown, as text
    assert "{{ 7 * 7 }}" in parsed.text
    body = source[source.index("<body>"):]
    assert "\x1b" not in body
    assert "\u202e" not in body


def test_no_records_make_a_page_that_says_so() -> None:
    assert "No records yet." in Page(html.page([])).text


@pytest.mark.parametrize(
    "made", [*sample(), record(gpu="CPU", kernel="cpu/naive"), record(usage=(), system={}, facts=Facts(), compile={})],
    ids=lambda r: f"{r.kernel}-{r.gpu}-{r.status}")
def test_any_single_record_makes_a_page(made: Record) -> None:
    text = Page(html.page([made])).text
    assert made.kernel in text
    assert made.status in text


def test_a_modelled_time_says_so_wherever_it_stands() -> None:
    modelled = record(gpu="MI300", kernel="hip/mfma", evidence=Evidence.MODELLED)
    older = replace(modelled, id="older", created="2026-01-01T00:00:00")
    marks = html.page([modelled, older]).count('badge model">modelled')
    assert marks == 5                                           # card, result, board, roofline, history
    assert "Time (modelled)" in html.page([modelled])
    assert 'badge model">modelled' not in html.page([replace(modelled, evidence=Evidence.MEASURED)])


def test_current_takes_the_newest_run_of_each_kernel_and_gpu() -> None:
    old, new = record(created="2026-11-01T00:00:00"), record(created="2026-11-02T00:00:00", efficiency=0.3)
    other = record(gpu="L4", created="2026-10-01T00:00:00")
    assert html.current([old, new, other]) == [new, other]


def test_a_passing_run_without_times_does_not_hide_times_but_a_failing_one_is_shown() -> None:
    timed = record(created="2026-11-01T00:00:00")
    later = record(created="2026-11-02T00:00:00", mode=Mode.TEST)
    broken = record(created="2026-11-03T00:00:00", mode=Mode.TEST, status=Status.INCORRECT_NUMERICAL, failing=1)
    fixed = record(created="2026-11-04T00:00:00")
    assert html.current([timed, later]) == [timed]
    assert html.current([timed, later, broken]) == [timed, broken]
    assert html.current([timed, later, broken, fixed]) == [fixed]
    assert html.current([later]) == [later]
    assert html.current([broken]) == [broken]


def test_measured_and_modelled_stand_side_by_side() -> None:
    measured, modelled = record(gpu="MI300"), record(gpu="MI300", evidence=Evidence.MODELLED, efficiency=0.3)
    assert html.current([measured, modelled]) == [measured, modelled]


@pytest.mark.parametrize("changes", [{"protocol": "event_cold/2"}, {"evidence": Evidence.MODELLED},
                                     {"ranking_by": "mean"}, {"gpu": "L4"}])
def test_history_joins_only_what_compares(changes: dict[str, str]) -> None:
    old, new = record(created="2026-11-01T00:00:00"), record(created="2026-11-02T00:00:00")
    assert "over time" in html.page([old, new])
    assert "over time" not in html.page([replace(old, **changes), new])


def test_circumstances_are_ranges_over_all_cases() -> None:
    made = record(cases=2)
    cases = [replace(result, environment={
        "sm_clock_mhz": {"min": low, "median": low + 5.0, "max": low + 9.0}, "power_w": 500.25, "cache": cache,
        "throttle_reasons": [], "emulated": False, "chain": {"links": 4, "bound": low * 1e-7, "captured": True}})
        for result, low, cache in zip(made.cases, (1700.0, 1750.0), ("cold", "warm"), strict=True)]
    assert html.circumstances(replace(made, cases=cases)) == {
        "SM clock": "1700 – 1759 MHz", "power": "500.2 W", "cache": "cold | warm", "throttle reasons": "none",
        "emulated": "none", "chain": "links 4, bound 170 µs – 175 µs, captured yes"}


def test_a_peer_that_was_not_timed_is_named_once() -> None:
    made = record()
    cases = [replace(r, environment={"peer_notes": {"vendor": "needs sm_100"}}) for r in made.cases]
    assert Page(html.page([replace(made, cases=cases)])).text.count("Peer not timed: vendor: needs sm_100") == 1


def test_write_replaces_the_page_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    html.write(path, [record()])
    first = path.read_text(encoding="utf-8")
    html.write(path, [compile_error(), unavailable()])
    assert "cluster.cu:42" in path.read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_a_record_without_a_score_says_which_cases_it_lacks() -> None:
    facts = {"cases_skipped": ("m=1", "m=2"), "cases_skipped_why": "of more than 1 GFLOP"}
    made = record()
    found = Page(html.page([replace(made, score=None, facts=replace(made.facts, **facts))]))
    assert "Without the cases that are too large" in found.text
    assert ("td", "title", "2 cases left out: of more than 1 GFLOP") in found.attributes
    assert "Without the cases that are too large" not in Page(html.page([made])).text
