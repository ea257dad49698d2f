# SPDX-License-Identifier: MIT
"""A message of several lines in every output: its first line where there is room for one, the rest where it fits."""

from __future__ import annotations

from dataclasses import replace

from scoring.output import html, junit, terminal
from scoring.record import Status
from tests.scoring import records


def test_what_shows_results_shows_the_detail_and_folds_it() -> None:
    base = records.record()
    message = "c: 3 of 9 elements are wrong; looks like: <b>\nwhere: row 1\n  ≤ 1  ###"
    stats = dict(base.cases[0].environment, peer_notes={"peer": message})
    failing = replace(base.cases[0], status=Status.INCORRECT_NUMERICAL, stats=None, message=message)
    passing = replace(base.cases[0], environment=stats)
    wrong = replace(base, status=Status.INCORRECT_NUMERICAL, score=None, message=message, cases=(failing,))
    text = terminal.table([wrong, replace(base, cases=(passing,))])
    assert "    | where: row 1\n    |   ≤ 1  ###" in text
    (note,) = [line for line in text.split("\n") if line.startswith("no time of peer")]
    assert note.endswith("looks like: <b>")
    page = html.page([wrong])
    assert ">c: 3 of 9 elements are wrong; looks like: &lt;b&gt;</summary><pre>where: row 1" in page
    assert 'message="c: 3 of 9 elements are wrong; looks like: &lt;b&gt;"' in junit.document([wrong])
