# SPDX-License-Identifier: MIT
"""Progress goes to its own file, lives only on a terminal, and never carries markup or control characters."""

from __future__ import annotations

import io

import pytest

from scoring.run.progress import Progress, is_live


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(file: io.StringIO, environ: dict[str, str], **options: bool) -> str:
    with Progress(2, file=file, environ=environ, **options) as progress:
        for name in ("[red]first\x1b[2J", "second\n"):
            progress.stage(name)
            progress.advance()
    return file.getvalue()


def test_off_a_terminal_it_is_silent() -> None:
    assert run(io.StringIO(), {}) == ""


def test_verbose_writes_one_line_per_stage() -> None:
    assert run(io.StringIO(), {}, verbose=True) == "[1/2] [red]first\\x1b[2J\n[2/2] second\n"


def test_without_a_total_stages_are_not_counted() -> None:
    file = io.StringIO()
    with Progress(verbose=True, file=file, environ={}) as progress:
        progress.stage("compiling")
    assert file.getvalue() == "compiling\n"


@pytest.mark.parametrize("file", [io.StringIO(), Terminal()])
def test_quiet_is_silent_everywhere(file: io.StringIO) -> None:
    assert run(file, {}, quiet=True, verbose=True) == ""


def test_on_a_terminal_it_is_live_and_leaves_stdout_alone(capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = Terminal()
    with Progress(2, file=file, environ={"TERM": "xterm"}) as progress:
        progress.stage("[red]first\x1b[2J")
        print("a result")  # noqa: T201
        progress.advance()
        progress.stage("second")
        progress.advance()
    shown = file.getvalue()
    assert "\x1b[2J" not in shown
    assert "2/2" in shown
    assert "a result" not in shown
    assert capsys.readouterr().out == "a result\n"


@pytest.mark.parametrize(("environ", "expected"), [
    ({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "CI": "true"}, False)])
def test_is_live(environ: dict[str, str], expected: bool) -> None:
    assert is_live(Terminal(), environ) is expected
    assert not is_live(io.StringIO(), environ)
