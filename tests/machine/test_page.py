# SPDX-License-Identifier: MIT
"""The page of ``inspect --html``: what it says, and how it behaves in a browser where there is one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from scoring import cli
from scoring.output import inspection_html
from scoring.record import Mode, Record, Status
from scoring.store.store import Store
from tests.scoring.harness import DATA, SETTINGS

SOURCE = "__global__ void k(float* x) {\n  x[0] += 1.0f;\n}\n" + "\n" * 40 + "// the end <script>alert(1)</script>\n"
EVIL = "<img src=x onerror=alert(1)>"


def instruction(address: int, text: str, unit: str, line: int) -> dict[str, Any]:
    return {"address": address, "text": text, "unit": unit, "target": None, "places": [["k.cu", line]]}


def document(name: str = "k") -> dict[str, Any]:
    code = [instruction(0, "LDG R2, [R4]", "global", 2), instruction(16, "FADD R2, R2, 1", "fp32", 2),
            instruction(32, "@P0 BRA 0x10", "branch", 1), instruction(48, "EXIT", "branch", 44)]
    overlap = {"line": "1 HGMMA n64 | wait wgmma ≤ 0", "summary": "1 products, no exponentials"}
    loop = {"start": 16, "end": 48, "depth": 1, "innermost": True, "instructions": 2, "source": None,
            "mix": {"fp32": 1, "branch": 1}, "overlap": overlap}
    resources = {"registers": 8, "agprs": None, "scalar_registers": None, "static_shared": 0, "dynamic_shared": None,
                 "scratch_bytes": 0, "spill_bytes": 0, "threads": 128}
    return {
        "schema": 1, "origin": "k.cu", "compiler": "nvcc 13; host g++",
        "warnings": [{"kind": "local", "function": name, "text": "2 accesses to local memory"}],
        "functions": [{
            "name": name, "mangled": "_Z1kPf", "arch": "sm_90a", "entry": True, "bytes": 64, "instructions": 4,
            "source": None, "resources": resources, "occupancy": 0.5, "occupancy_is_bound": True,
            "mix": {"fp32": 1, "global": 1, "branch": 2}, "exponentials": 0, "local_memory": [], "loops": [loop],
            "code": code}],
    }


def read(file: str) -> str | None:
    return SOURCE if file == "k.cu" else None


def pair(name: str) -> Mapping[str, Any]:
    (old,) = document(name)["functions"]
    return {"old": "a", "new": "b", "functions": [{"old": old, "new": {**old, "mix": {"fp32": 3}, "instructions": 3},
                                                   "diff": ["@@ -1 +1 @@", "-LDG R, [R]", "+FADD R, R, 1"]}]}


def test_the_page_shows_lines_with_code_a_few_around_them_and_nothing_else_of_the_source():
    text = inspection_html.page(document(), "k.cu", read)
    assert '<div class="row" data-p="0:2"><b>2</b>  x[0] += 1.0f;<small>2</small></div>' in text
    assert text.count('class="gap"') == 1
    assert "<b>20</b>" not in text
    assert text.count("<details") == text.count("</details>") == 1
    assert "1 HGMMA n64 | wait wgmma ≤ 0" in text


def test_names_and_sources_are_escaped_and_the_page_asks_for_nothing():
    text = inspection_html.page(document(EVIL), EVIL, read, {"PTX": [{"text": EVIL, "places": []}]}, pair(EVIL))
    assert EVIL not in text
    assert "<script>alert" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)


def test_a_page_without_sources_says_so_and_one_that_is_too_long_is_refused():
    assert "its files are not here" in inspection_html.page(document(), "k.cu", lambda file: None)
    many = document()
    assert inspection_html.excess(many) == ""
    many["functions"][0]["instructions"] = 50_000
    assert "--function REGEX chooses" in inspection_html.excess(many)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips, and says so, where it or its driver is not installed."""
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page is not tried in a browser")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH (apt-get install chromium): the page is not tried in a browser")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.timeout(120)
def test_in_a_browser(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(inspection_html.page(document(), "k.cu", read, None, pair("k")), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    requests, faults = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    source, machine = page.locator(".source"), page.locator(".machine")
    assert source.bounding_box()["x"] + source.bounding_box()["width"] <= machine.bounding_box()["x"]

    # A click on a source line marks its machine code, and the other way round.
    page.locator('.source [data-p="0:2"]').click()
    assert page.locator(".machine .chosen").count() == 2
    page.locator(".machine .row", has_text="EXIT").click()
    assert page.locator(".source .chosen b").inner_text() == "44"
    assert page.locator(".machine .chosen").count() == 1

    # Loops fold and unfold; units have colours of their own.
    page.locator("button.fold").click()
    assert not page.locator(".machine .row", has_text="FADD").is_visible()
    page.locator("button.fold").click()
    assert page.locator(".machine .row", has_text="FADD").is_visible()
    colors = {page.locator(f".legend .u-{unit}").evaluate("e => getComputedStyle(e).backgroundColor")
              for unit in ("fp32", "global", "branch")}
    assert len(colors) == 3

    # On a phone: one column, nothing wider than the screen, letters of a size that can be read.
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert machine.bounding_box()["y"] >= source.bounding_box()["y"] + source.bounding_box()["height"]
    assert page.locator(".machine .row").first.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 11
    assert (requests, faults) == ([path.as_uri()], [])


@pytest.mark.toolchain
def test_a_report_links_to_pages_of_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """And to none where the checkout builds something else today."""
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    backend = backends.get("rocm")
    source = KernelSource.read(DATA / "kernels/hip/toy/honest.hip", DATA)
    try:
        binary = backend.compile(source, backend.target("MI300"))
    except ToolchainMissing as error:
        pytest.skip(str(error))
    record = Record(
        id="a" * 32, created="2026-01-01T00:00:00.000+00:00", problem="toy", kernel="hip/honest", digest=binary.digest,
        backend="rocm", target="gfx942", gpu="MI300", device="", mode=Mode.TEST, status=Status.PASSED)
    store = Store(tmp_path / "records.db")
    store.add(record)
    store.add(replace(record, id="b" * 32, kernel="hip/loops", digest="0" * 64))
    code = cli.main(["--config", str(SETTINGS), "report", "--inspect", "--output", str(tmp_path / "report.html")])
    said = capsys.readouterr()
    assert code == 0
    assert "2 records, 1 page of machine code" in said.out
    assert "no page for toy hip/loops on MI300: its source, or the compiler, is another one today" in said.err
    (page,) = (tmp_path / "report.code").iterdir()
    assert f'href="report.code/{page.name}"' in (tmp_path / "report.html").read_text()
    assert "s_endpgm" in page.read_text()
