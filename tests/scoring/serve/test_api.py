# SPDX-License-Identifier: MIT
"""The API in one process: what each address takes and answers, who may do what, and hostile requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from scoring.serve.api.app import create_app
from scoring.serve.api.limits import BODY_BYTES, Buckets
from scoring.serve.api.service import Service
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Account
from tests.scoring.serve.conftest import ADMIN, add_account, add_board, settings
from tests.scoring.serve.fakes import judge_all

ORGANISER = {"Authorization": f"Bearer {ADMIN}"}


class Site:
    """A server without a socket, an account, and shorthands for both."""

    def __init__(self, database: Database, **changes: object):
        self.database = database
        self.service = Service(database, settings(**changes), ADMIN, poll_seconds=0.05)
        self.http = TestClient(create_app(self.service), raise_server_exceptions=False)
        self.number, self.token = add_account(database, "ann")
        self.ann = {"X-Popcorn-Cli-Id": self.token}

    def submit(self, text: str | bytes = "# 1e-6", path: str = "board/CPU/leaderboard", name: str = "s.py",
               **headers: str) -> Any:
        return self.http.post(f"/submission/{path}", files={"file": (name, text)}, headers=headers or self.ann)

    def accepted(self, *given: Any, **more: Any) -> int:
        answer = self.submit(*given, **more)
        assert answer.status_code == 202, answer.text
        return int(answer.json()["details"]["id"])

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(path, headers=headers or self.ann)


@pytest.fixture
def site(local: Database) -> Site:
    add_board(local, gpus=("CPU", "MI300"))
    return Site(local)


def test_submit_poll_list_and_rank(site):
    assert site.http.get("/health").json() == {"status": "ok"}
    number = site.accepted("# 2e-6")
    waiting = site.get(f"/user/submissions/{number}").json()
    assert (waiting["done"], waiting["job"]["status"], waiting["runs"]) == (False, "pending", [])
    assert waiting["code"] == "# 2e-6"
    judge_all(site.database)
    done = site.get(f"/user/submissions/{number}").json()
    assert (done["done"], done["job"]["status"], done["job"]["error"]) == (True, "succeeded", None)
    assert [(run["mode"], run["passed"], run["score"]) for run in done["runs"]] == [
        ("test", True, None), ("leaderboard", True, 2e-6)]
    assert all("result" not in run for run in done["runs"]), "nothing of a ranked run's cases"
    (listed,) = site.get("/user/submissions?leaderboard=board&limit=5").json()
    assert (listed["id"], listed["runs"]) == (number, [{"gpu_type": "CPU", "score": 2e-6}])
    (row,) = site.http.get("/submissions/board/CPU").json()
    assert (row["rank"], row["user_name"], row["submission_score"], row["evidence"]) == (1, "ann", 2e-6, "measured")
    assert site.http.get("/submission_count/board/CPU").json() == {"count": 1}
    assert site.http.get("/gpus/board").json() == ["CPU", "MI300"]
    (board,) = site.http.get("/leaderboards").json()
    assert {"name", "description", "task"} <= set(board)
    assert site.http.get("/runner_queue/CPU").json()["queued_jobs"] == 0


def test_failures_reach_the_plain_client(site):
    wrong, broken = site.accepted("# fail 3 of 64 elements are wrong"), site.accepted("# broken")
    judge_all(site.database)
    job = site.get(f"/user/submissions/{wrong}").json()["job"]
    assert job["status"] == "failed"
    assert "3 of 64 elements are wrong" in job["error"]
    assert site.get(f"/user/submissions/{broken}").json()["job"]["error"] == "the server could not judge this"


def test_benchmarks_tell_every_case(site):
    number = site.accepted("# 2e-6", "board/CPU/benchmark")
    judge_all(site.database)
    tests, timed = site.get(f"/user/submissions/{number}").json()["runs"]
    assert tests["result"]["test.0.status"] == "pass"
    assert timed["result"]["benchmark-count"] == 1
    assert timed["result"]["benchmark.0.mean"] == pytest.approx(2000)
    assert timed["score"] is None


@pytest.mark.parametrize(("text", "path", "name", "status", "words"), [
    ("", "board/CPU/test", "s.py", 400, "empty"),
    ("x" * 1_000_001, "board/CPU/test", "s.py", 413, "at most 1000000"),
    (b"\xff\xfe", "board/CPU/test", "s.py", 400, "UTF-8"),
    (b"a\0b", "board/CPU/test", "s.py", 400, "zero byte"),
    ("x", "board/CPU/test", "s.exe", 400, ".py or .cpp"),
    ("x", "board/CPU/test", "s.hip", 400, ".py or .cpp"),
    ("x", "board/H100/test", "s.py", 400, "CPU, MI300"),
    ("x", "board/cpu/test", "s.py", 400, "CPU, MI300"),
    ("x", "none/CPU/test", "s.py", 404, "no such leaderboard"),
    ("x", "board/CPU/rank", "s.py", 422, "mode"),
    ("#!POPCORN leaderboard other\n", "board/CPU/test", "s.py", 400, "other"),
    ("#!POPCORN color red\n", "board/CPU/test", "s.py", 400, "unknown directive"),
])
def test_what_is_no_submission_is_refused(besieged, text, path, name, status, words):
    answer = besieged.submit(text, path, name)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_the_word_that_other_servers_refuse_is_fine(site):
    site.accepted("# 1e-6\nimport io  # a st" + "ream\n")


def test_who_asks_has_to_be_known(site):
    for path in ("/user/submissions", "/user/submissions/1"):
        assert site.http.get(path).status_code == 400
        assert site.get(path, **{"X-Popcorn-Cli-Id": "nobody"}).status_code == 401
    assert site.http.post("/submission/board/CPU/test", files={"file": ("s.py", "x")}).status_code == 400
    number = site.accepted()
    _, other = add_account(site.database, "bob")
    bob = {"X-Popcorn-Cli-Id": other}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        answer = site.http.request(method, f"/user/submissions/{number}{path}", headers=bob)
        assert answer.status_code == 403, (method, path)
    assert site.get("/user/submissions/999").status_code == 404
    assert site.http.get("/user/submissions", headers={"X-Web-Auth-Id": site.token}).status_code == 200


def test_registering_gives_a_token_that_works_at_once(site):
    made = site.http.get("/auth/init?provider=github").json()
    mine = {"X-Popcorn-Cli-Id": made["state"]}
    assert site.submit(**mine).status_code == 202


def test_an_address_gets_so_many_accounts(local):
    add_board(local)
    service = Service(local, settings(accounts_per_hour=2), ADMIN)
    http = TestClient(create_app(service))
    assert [http.get("/auth/init").status_code for _ in range(3)] == [200, 200, 429]


def test_an_invite_opens_a_closed_board_for_one_person(local):
    add_board(local, "hidden", visibility="closed")
    site = Site(local, registration="invite")
    token = site.http.get("/auth/init").json()["state"]
    new = {"X-Popcorn-Cli-Id": token}
    assert site.http.get("/leaderboards", headers=new).json() == []
    assert site.submit(path="hidden/CPU/test", **new).status_code == 404
    (code,) = site.http.post("/admin/invites", json={"leaderboards": ["hidden"], "count": 1},
                             headers=ORGANISER).json()["codes"]
    answer = site.http.post("/user/join", json={"code": code}, headers=new)
    assert answer.json() == {"status": "ok", "leaderboards": ["hidden"]}
    assert site.submit(path="hidden/CPU/test", **new).status_code == 202
    assert site.http.post("/user/join", json={"code": code}, headers=site.ann).status_code == 409
    assert site.http.post("/user/join", json={"code": "guess"}, headers=site.ann).status_code == 404
    (listed,) = site.http.get("/admin/leaderboards/hidden/invites", headers=ORGANISER).json()["invites"]
    assert listed["code"] == code
    assert site.http.delete(f"/admin/invites/{code}", headers=ORGANISER).status_code == 200


def test_deleting_cancels_and_removes(site):
    number = site.accepted("# 9e-6 only mine")
    assert site.http.post(f"/user/submissions/{number}/cancel", headers=site.ann).status_code == 200
    job = site.get(f"/user/submissions/{number}").json()
    assert (job["done"], job["job"]["status"]) == (True, "failed")
    assert "cancelled" in job["job"]["error"]
    answer = site.http.delete(f"/user/submissions/{number}", headers=site.ann)
    assert answer.json() == {"status": "ok", "submission_id": number}
    assert site.get(f"/user/submissions/{number}").status_code == 404
    assert judge_all(site.database) == []


def test_the_organisers_switches(site):
    http, number = site.http, site.accepted()
    assert http.get("/admin/stats").status_code == 401
    assert http.get("/admin/stats", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert http.get("/admin/stats?last_day_only=true", headers=ORGANISER).json()["submissions"] == 1
    assert http.post("/admin/stop", headers=ORGANISER).status_code == 200
    assert site.submit().status_code == 503
    assert http.post("/admin/start", headers=ORGANISER).status_code == 200
    past = {"deadline": "2026-01-01T00:00:00"}
    assert http.post("/admin/leaderboards/board/deadline", json=past, headers=ORGANISER).json()["deadline"] == \
        "2026-01-01T00:00:00.000Z"
    late = site.submit()
    assert (late.status_code, "deadline" in late.json()["detail"]) == (400, True)
    allowed = http.post("/admin/submission/board/CPU/test", files={"file": ("s.py", "x")},
                        headers={**ORGANISER, **site.ann})
    assert allowed.status_code == 202
    never = {"deadline": None}
    assert http.post("/admin/leaderboards/board/deadline", json=never, headers=ORGANISER).status_code == 200
    limits = {"mode_category": "leaderboard", "max_submissions_per_hour": 1}
    assert http.put("/admin/leaderboards/board/rate-limits", json=limits, headers=ORGANISER).status_code == 200
    assert http.get("/admin/leaderboards/board/rate-limits", headers=ORGANISER).json() == [limits]
    assert site.submit().status_code == 429
    assert http.delete("/admin/leaderboards/board/rate-limits", headers=ORGANISER).status_code == 200
    assert http.post("/admin/ban/ann", headers=ORGANISER).json()["is_banned"] is True
    assert site.submit().status_code == 403
    assert site.get(f"/user/submissions/{number}").json()["job"]["error"] == "cancelled: by the organiser"
    assert http.delete("/admin/ban/ann", headers=ORGANISER).json()["is_banned"] is False
    assert http.get(f"/admin/submissions/{number}", headers=ORGANISER).json()["id"] == number
    assert len(http.get("/admin/leaderboards/board/submissions", headers=ORGANISER).json()) == 2
    assert http.delete(f"/admin/submissions/{number}", headers=ORGANISER).status_code == 200
    assert http.delete("/admin/submissions?user_name=ann", headers=ORGANISER).json()["deleted"] == 1
    closed = http.post("/admin/leaderboards/board/visibility", json={"visibility": "closed"}, headers=ORGANISER)
    assert closed.status_code == 200
    assert http.get("/leaderboards").json() == []
    assert http.delete("/admin/leaderboards/board?force=true", headers=ORGANISER).status_code == 200
    done = [line["action"] for line in http.get("/admin/audit", headers=ORGANISER).json()]
    assert {"stop", "start", "ban", "unban", "deadline", "rate-limit", "delete", "submit"} <= set(done)


def frames(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for part in text.split("\n\n")[:-1]:
        name, data = part.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_watched_submission_tells_its_end(site):
    def work() -> None:
        until = time.monotonic() + 60
        while not judge_all(site.database) and time.monotonic() < until:
            time.sleep(0.2)

    for text, last in (("# 3e-6", "result"), ("# fail it is wrong", "error")):
        thread = threading.Thread(target=work)
        thread.start()
        answer = site.http.post("/board/CPU/profile", files={"file": ("s.py", text)}, headers=site.ann)
        thread.join()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.content.isascii()
        assert b"\r" not in answer.content
        told = frames(answer.text)
        assert told[0][0] == "status"
        assert told[-1][0] == last
    assert "it is wrong" in told[-1][1]["detail"]


def test_a_secret_of_a_board_is_in_no_answer(site):
    number = site.accepted()
    judge_all(site.database)
    paths = ["/leaderboards", f"/user/submissions/{number}", "/user/submissions", "/submissions/board/CPU",
             "/openapi.json", "/admin/stats", "/admin/audit", f"/admin/submissions/{number}"]
    for path in paths:
        answer = site.http.get(path, headers={**site.ann, **ORGANISER})
        assert answer.status_code == 200, path
        assert "5ecre7" not in answer.text, path
        assert "/nowhere" not in answer.text, "nor a path of the machine"
        assert site.token not in answer.text


# Hostile requests ----------------------------------------------------------------------------------------------------

HOSTILE = [
    ("GET", "/user/submissions/../../etc/passwd", {}), ("GET", "/gpus/..%2f..%2fetc%2fpasswd", {}),
    ("GET", "/gpus/%00", {}), ("GET", "/submissions/board/CPU?limit=1000000", {}),
    ("GET", "/submissions/board/CPU?offset=-1", {}), ("GET", "/submissions/board/CPU?offset=99999999999999999999", {}),
    ("GET", "/user/submissions/99999999999999999999999", {}), ("GET", "/user/submissions/-1", {}),
    ("GET", "/user/submissions/1;DROP TABLE account", {}), ("GET", "/user/submissions?leaderboard=' OR 1=1 --", {}),
    ("GET", "/submission_count/board/CPU?user_id=1 OR 1=1", {}), ("GET", "/auth/init?provider=" + "x" * 5000, {}),
    ("GET", "/runner_queue/" + "A" * 500, {}), ("GET", "/static/../../../etc/passwd", {}),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", {}), ("TRACE", "/leaderboards", {}), ("PUT", "/leaderboards", {}),
    ("POST", "/user/join", {"content": b"{" * 5000, "headers": {"content-type": "application/json"}}),
    ("POST", "/user/join", {"json": {"code": "x" * 100_000}}), ("POST", "/user/join", {"json": {"code": {"$ne": 1}}}),
    ("POST", "/user/join", {"json": ["code"]}), ("POST", "/user/join", {"content": b"\xff\xfe\x00"}),
    ("POST", "/submission/board/CPU/test", {"content": b"--x\r\n", "headers": {
        "content-type": "multipart/form-data; boundary=x"}}),
    ("POST", "/submission/board/CPU/test", {"content": b"x", "headers": {"content-type": "multipart/form-data"}}),
    ("POST", "/submission/board/CPU/test", {"files": [("file", ("a.py", "x")) for _ in range(1200)]}),
    ("POST", "/submission/board/CPU/test", {"files": {"other": ("a.py", "x")}}),
    ("POST", "/submission/../CPU/test", {"files": {"file": ("a.py", "x")}}),
    ("POST", "/submission/board/CPU/test", {"files": {"file": ("../../../etc/cron.d/warpwave", "x")}}),
    ("POST", "/submission/board/CPU/test", {"files": {"file": ("a.py\r\nSet-Cookie: x=1", "x" * 70_000)}}),
    ("POST", "/submission/board/CPU/test", {"content": b"x" * (BODY_BYTES + 1)}),
    ("POST", "/admin/invites", {"json": {"leaderboards": ["board"], "count": 10**9}}),
    ("POST", "/admin/leaderboards", {"json": {"directory": "../../etc"}}),
    ("DELETE", "/admin/leaderboards/board?force=true", {}), ("GET", "/admin/audit", {}),
    ("GET", "/leaderboards", {"headers": {"X-Popcorn-Cli-Id": "x" * 10_000}}),
    ("GET", "/leaderboards", {"headers": {"X-Popcorn-Cli-Id": "' OR ''='"}}),
]


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all of them."""
    database = Database(str(tmp_path_factory.mktemp("besieged") / "contest.db"))
    database.migrate()
    add_board(database, gpus=("CPU", "MI300"))
    yield Site(database)
    database.close()


@pytest.mark.parametrize(("method", "path", "more"), HOSTILE, ids=[f"{m} {p}"[:60] for m, p, _ in HOSTILE])
def test_hostile_requests_are_refused_in_words(besieged, method, path, more):
    """Each gets an answer below 500 that says why; nobody gets in, and nothing of the machine comes out."""
    more = {**more, "headers": {**besieged.ann, **more.get("headers", {})}}
    answer = besieged.http.request(method, path, **more)
    assert 400 <= answer.status_code < 500, answer.text
    assert isinstance(answer.json()["detail"], str)
    assert "root:" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers
    with besieged.database.read() as session:
        assert session.query(Account).count() == 1


def test_file_names_are_made_plain(site):
    number = site.accepted(name="../\u202eevil\u00e9.py")
    assert site.get(f"/user/submissions/{number}").json()["file_name"] == "_evil_.py"


def test_many_requests_from_one_address_are_refused(local):
    http = TestClient(create_app(Service(local, settings(requests_per_second=0.001), ADMIN)))
    codes = [http.get("/leaderboards").status_code for _ in range(24)]
    assert codes.count(429) == 4
    buckets = Buckets(0.001, 1, most=2)
    assert [buckets.take(key) for key in "aabca"] == [True, False, True, True, True], "the least used is forgotten"


def test_an_error_of_the_server_names_no_cause(site, monkeypatch):
    def broken(*_given: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr("scoring.serve.api.views.board", broken)
    answer = site.http.get("/leaderboards")
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert "log" in answer.json()["detail"]
