# SPDX-License-Identifier: MIT
"""The pages: what they show and hide, forms that other sites cannot send, and how they look in a browser.

The browser is Chromium without a window. ``WARPWAVE_SCREENSHOTS=FOLDER`` keeps what it saw.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from scoring.serve.api.app import create_app
from scoring.serve.api.service import Service
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Board
from tests.scoring.harness import wait_until
from tests.scoring.serve.conftest import ADMIN, add_account, add_board, settings
from tests.scoring.serve.fakes import judge_all, loop

WIDTHS = (390, 1400)
PATIENCE = 120_000       # milliseconds: others may use the machine as well
EVIL = '<script>alert(1)</script>"\'><img src=x>'


class Browser:
    """A browser that runs no scripts."""

    def __init__(self, database: Database, token: str = ""):
        self.service = Service(database, settings(), ADMIN, poll_seconds=0.05)
        self.http = TestClient(create_app(self.service), headers={"accept": "text/html"})
        if token:
            answer = self.http.post("/login", data={"token": token})
            assert answer.status_code == 200, answer.text

    def page(self, path: str, status: int = 200) -> str:
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        return str(answer.text)

    def send(self, path: str, csrf: str | None = None, files: Any = None, **fields: str) -> Any:
        found = re.search(r'name="csrf" value="(\w+)"', self.page("/"))
        token = csrf if csrf is not None else found[1] if found else ""
        return self.http.post(path, data={**fields, "csrf": token}, files=files)


@pytest.fixture
def contest(local: Database) -> tuple[Database, str]:
    """Three people with scores on two GPUs, one of them with a hostile file; and ann's token."""
    add_board(local, "fp8-gemm", ("CPU", "MI300"), description="c = a·bᵀ\n" + EVIL,
              task={"native": True, "ranking_by": "geom", "tests": [{"n": 64}], "benchmarks": [{"n": 128}]})
    tokens = {}
    for name in ("ann", "bob", "eve"):
        _, tokens[name] = add_account(local, name)
    http = TestClient(create_app(Service(local, settings(), ADMIN)))
    for name, gpu, text, file in (
            ("ann", "CPU", "# 3e-6\na = 1\n", "first.py"), ("bob", "CPU", "# 2.5e-6", "b.py"),
            ("eve", "CPU", "# 4e-6", f"{EVIL}.py"), ("ann", "CPU", "# 2e-6\na = 2\n", "second.py"),
            ("bob", "MI300", "# 9e-6", "b.py"), ("ann", "CPU", f"# fail {EVIL}", "wrong.py")):
        answer = http.post(f"/submission/fp8-gemm/{gpu}/leaderboard", files={"file": (file, text)},
                           headers={"X-Popcorn-Cli-Id": tokens[name]})
        assert answer.status_code == 202, answer.text
    judge_all(local, "CPU", "MI300")
    return local, tokens["ann"]


def test_everybody_can_read_ranks_and_nobody_sees_others_sources(contest):
    database, _ = contest
    browser = Browser(database)
    assert "fp8-gemm" in browser.page("/")
    board = browser.page("/boards/fp8-gemm/CPU")
    assert re.findall(r'<th scope="row"><a href="/people/(\w+)"', board) == ["ann", "bob", "eve"]
    assert "measured" in board
    assert 'role="img"' in board, "the history is drawn"
    assert "modelled" in browser.page("/boards/fp8-gemm/MI300")
    assert "never rank beside" in browser.page("/boards/fp8-gemm/MI300")
    entry = browser.page("/entries/4")
    assert "a = 2" not in entry
    assert "rank 1" in entry
    browser.page("/entries/6", 404)
    assert "rank 1 of 3" in browser.page("/people/ann")
    browser.page("/people/nobody", 404)
    browser.page("/control", 401)


def test_an_owner_sees_diagnosis_usage_and_diff(contest):
    database, token = contest
    browser = Browser(database, token)
    entry = browser.page("/entries/4")
    assert "a = 2" in entry
    assert '<span class="removed">-a = 1</span>' in entry
    assert "Compiler usage" in entry
    assert "Diagnosis" in browser.page("/entries/6")
    assert "#6" in browser.page("/people/ann")


def test_hostile_text_is_shown_and_never_obeyed(contest):
    database, token = contest
    for browser in (Browser(database), Browser(database, token), Browser(database, ADMIN)):
        for path in ("/", "/boards/fp8-gemm/CPU", "/entries/3", "/people/eve"):
            page = browser.page(path)
            assert "<script>alert" not in page
            assert "<img" not in page
    assert "&lt;script&gt;" in Browser(database, token).page("/entries/6")
    assert "<script>" not in Browser(database).page("/boards/<script>alert(1)</script>", 404)


def test_forms_work_and_other_sites_cannot_send_them(contest):
    database, token = contest
    browser = Browser(database, token)
    upload = {"file": ("s.py", "# 1e-6")}
    answer = browser.send("/submit", files=upload, place="fp8-gemm CPU", mode="leaderboard")
    assert answer.url.path == "/entries/7"
    assert "queued" in answer.text
    for csrf in ("", "0" * 64, "é"):
        assert browser.send("/submit", csrf, upload, place="fp8-gemm CPU", mode="test").status_code == 403
    foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    for path, fields in (("/login", {"token": token}), ("/register", {}), ("/logout", {})):
        assert browser.http.post(path, data=fields, headers=foreign).status_code == 403
    assert browser.send("/entries/7/cancel").status_code == 200
    assert "cancelled" in browser.page("/entries/7")
    assert browser.send("/entries/7/delete").url.path == "/people/ann"
    assert browser.send("/entries/2/delete").status_code == 403, "somebody else's"
    assert "You are anna now" in browser.send("/account/rename", name="anna").text
    assert browser.send("/account/rename", name="bob").status_code == 409
    assert browser.send("/account/rename", name=EVIL).status_code == 400
    renewed = browser.send("/account/renew").text
    assert browser.http.post("/login", data={"token": token}).status_code == 401
    (new,) = set(re.findall(r'class="token">(\w+)<', renewed))
    assert Browser(database, new).page("/account")
    cookie = browser.http.post("/login", data={"token": new}).history[0].headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert browser.send("/logout").status_code == 200
    assert "Log in" in browser.page("/")


def test_registering_on_a_page_shows_the_token_once(contest):
    database, _ = contest
    browser = Browser(database)
    page = browser.http.post("/register").text
    (token,) = set(re.findall(r'class="token">(\w+)<', page))
    assert token not in browser.page("/account")
    assert Browser(database, token).page("/submit")


def test_the_organisers_page(contest):
    database, token = contest
    Browser(database, token).page("/control", 401)
    browser = Browser(database, ADMIN)
    page = browser.page("/control")
    assert "Audit log" in page
    assert ADMIN not in page
    assert browser.send("/control/stop").status_code == 200
    assert "refused" in browser.page("/control")
    assert browser.send("/control/start", csrf="").status_code == 403
    assert browser.send("/control/start").status_code == 200
    assert browser.send("/control/board", board="fp8-gemm", deadline="2031-05-01T12:00", visibility="closed") \
        .status_code == 200
    assert "2031-05-01T12:00" in browser.page("/control")
    assert browser.send("/control/board", board="fp8-gemm", deadline="soon").status_code == 400
    assert "fp8-gemm" not in Browser(database).page("/")
    code = re.findall(r'class="token">([\w-]+)<', browser.send("/control/invite", board="fp8-gemm").text)[0]
    assert "You may submit" in Browser(database, token).send("/account/join", code=code).text
    assert browser.send("/control/ban", person="eve").status_code == 200
    assert "/people/eve" not in browser.page("/boards/fp8-gemm/CPU")
    assert browser.send("/control/explode").status_code == 404


def test_static_files_are_two_names_and_no_folder(contest):
    browser = Browser(contest[0])
    assert browser.http.get("/static/site.css").headers["content-type"].startswith("text/css")
    for name in ("pages.py", "..%2fpages.py", "site.css%00", "..%2f..%2fapi%2fapp.py"):
        assert browser.http.get(f"/static/{name}").status_code in (404, 405)


# In a browser --------------------------------------------------------------------------------------------------------

@contextmanager
def served(database: Database) -> Iterator[str]:
    """The application on a port, and a worker beside it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    app = create_app(Service(database, settings(), ADMIN, poll_seconds=0.05))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", ws="none", timeout_graceful_shutdown=1))
    worker = loop(database, "CPU", "MI300")
    threads = [threading.Thread(target=server.run, daemon=True), threading.Thread(target=worker.run, daemon=True)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: server.started, 30)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        worker.stop.set()
        for thread in threads:
            thread.join(20)


@pytest.fixture
def chromium() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=PATIENCE)
        yield browser
        browser.close()


def window(chromium: Any, width: int = 1400, **options: Any) -> Any:
    """A page in a browser of its own."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_default_timeout(PATIENCE)
    return context.new_page()


def keep(page: Any, name: str) -> None:
    folder = os.environ.get("WARPWAVE_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.timeout(600)
def test_pages_fit_a_telephone_and_a_desk(contest, chromium):
    """No page is wider than its window, says anything on the console, or has a field without a name."""
    database, token = contest
    with database.write() as session:
        for board in session.query(Board):
            board.description = "c = a·bᵀ in fp8 with block scales.\n\n" + "A long line of prose that has to wrap. " * 6
    complaints: list[str] = []
    with served(database) as base:
        for width in WIDTHS:
            page = window(chromium, width)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{base}/login")
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            page.get_by_label("Token", exact=True).fill(token)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/submit")
            for name, path in (("submit", "/submit"), ("index", "/"), ("board", "/boards/fp8-gemm/CPU"),
                               ("entry", "/entries/4"), ("failed", "/entries/6"), ("person", "/people/ann"),
                               ("account", "/account")):
                page.goto(base + path)
                _check(page, width, path)
                keep(page, f"{name}-{width}")
        page = window(chromium, 390)
        page.goto(f"{base}/login")
        page.get_by_label("Token", exact=True).fill(ADMIN)
        page.keyboard.press("Enter")
        page.wait_for_url("**/control")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            _check(page, width, "/control")
            keep(page, f"control-{width}")
    assert not complaints


def _check(page: Any, width: int, path: str) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert page.locator("h1").count() == 1, path
    nameless = page.evaluate(
        "[...document.querySelectorAll('input:not([type=hidden]):not([hidden]), select, button, a')]"
        ".filter(e => !(e.labels && e.labels.length) && !e.textContent.trim() && !e.ariaLabel).map(e => e.outerHTML)")
    assert nameless == [], path


@pytest.mark.timeout(600)
def test_a_dropped_file_is_judged_before_ones_eyes(contest, chromium, tmp_path):
    database, token = contest
    seen = tmp_path / "seen"
    with served(database) as base:
        page = window(chromium)
        page.goto(f"{base}/login")
        page.get_by_label("Token", exact=True).fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url("**/submit")
        page.evaluate("""source => {
            const data = new DataTransfer();
            data.items.add(new File([source], "dropped.py"));
            const drop = document.querySelector("[data-drop]");
            drop.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""", f"# until {seen}\n")
        assert "dropped.py" in page.locator("[data-name]").inner_text()
        page.get_by_label("leaderboard", exact=True).check()
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url("**/entries/7")
        page.get_by_text("waiting").wait_for()
        seen.touch()
        page.get_by_text("succeeded").wait_for()      # the page loads itself again
        assert "rank 1" in page.locator("main").inner_text()
        still = window(chromium, java_script_enabled=False)
        still.goto(f"{base}/boards/fp8-gemm/CPU")
        assert still.get_by_role("row").count() == 4, "without scripts as well"
