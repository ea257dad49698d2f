# SPDX-License-Identifier: MIT
"""The whole server as a process, with the real judge, used by a client that knows the published command line alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from backends._home import PACKAGES as ROOT
from scoring.config.load import load_config
from scoring.judge.job import Listener
from scoring.serve import judging
from tests.scoring.harness import default_signals, wait_until
from tests.scoring.serve.conftest import ADMIN
from tests.scoring.serve.fakes import record
from tests.scoring.serve.popcorn import ApplicationError, Popcorn

EXAMPLE = ROOT / "examples" / "gpumode_task"
RIGHT = (EXAMPLE / "submission.py").read_bytes()
WRONG = (EXAMPLE / "wrong_submission.py").read_bytes()
SETTINGS = """
emulate: false
paths: {problems: %s, kernels: %s}
timing: {processes: 1, gpu_processes: 1, seconds: 0.02, min_rounds: 2, max_rounds: 2}
serve:
  lease_seconds: 10
  problems:
    - leaderboard: example-rmsnorm
      problem: %s
      gpus: [CPU]
      tests: ["rows=7,*"]
      benchmarks: ["rows=512,*"]
    - leaderboard: toy
      problem: toy
      gpus: [CPU]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Running:
    """A server on a port and folder of its own."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        (folder / "settings.yaml").write_text(SETTINGS % (
            ROOT / "tests/data/problems", ROOT / "tests/data/kernels", EXAMPLE))
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        arguments = ["--config", str(self.folder / "settings.yaml"), "serve", "--port", str(self.port), "--database",
                     str(self.folder / "contest.db")]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scoring", *arguments], cwd=ROOT, stdout=log, stderr=log, text=True,
                env={**os.environ, "WARPWAVE_ADMIN_TOKEN": ADMIN}, preexec_fn=default_signals)

        def answers() -> bool:
            try:
                return httpx.get(f"{self.base}/health", timeout=5).is_success
            except httpx.TransportError:
                return False

        assert wait_until(answers, 300), (self.folder / "log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("contest"))
    found.start()
    yield found
    if found.process is not None and found.process.poll() is None:
        found.stop()


@pytest.mark.timeout(600)
def test_a_contest_by_the_published_command_line(server):
    ann = Popcorn(server.base)
    with pytest.raises(ApplicationError, match="register"):
        ann.list("example-rmsnorm")
    ann.register()
    assert ann.leaderboards() == ["example-rmsnorm", "toy"]
    assert ann.gpus("example-rmsnorm") == ["CPU"]
    printed = ann.submit("example-rmsnorm", "CPU", "leaderboard", "submission.py", RIGHT)
    assert printed.startswith("Geomean score (public) on CPU: ")
    with pytest.raises(ApplicationError, match="elements are wrong") as caught:
        ann.submit("example-rmsnorm", "CPU", "test", "wrong.py", WRONG)
    assert "failed" in str(caught.value)
    profiled = ann.submit("example-rmsnorm", "CPU", "profile", "submission.py", RIGHT)
    assert "times are measured" in profiled
    (archive,) = ann.archives.values()
    assert archive.namelist() == ["profile.txt", "case.json"]
    listed = ann.list("example-rmsnorm")
    assert [row["file_name"] for row in listed] == ["submission.py", "wrong.py", "submission.py"]
    assert ann.delete(listed[1]["id"]) == {"status": "ok", "submission_id": listed[1]["id"]}
    with pytest.raises(ApplicationError, match="404"):
        ann.show(listed[1]["id"])
    (row,) = httpx.get(f"{server.base}/submissions/example-rmsnorm/CPU").json()
    assert row["submission_id"] == listed[2]["id"]


def test_a_connection_outlives_the_pause_between_two_polls(server):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as kept:
        kept.request("GET", "/health")
        assert kept.getresponse().read()
        before = kept.sock
        time.sleep(6)                   # a client polls every 5 s
        kept.request("GET", "/health")
        assert kept.getresponse().status == 200
        assert kept.sock is before


@pytest.mark.timeout(600)
def test_a_kernel_file_is_compiled_in_a_sandbox_and_judged(server):
    ann = Popcorn(server.base)
    ann.register()
    kernel = ROOT / "tests/data/kernels/cpu/toy/honest.cpp"
    printed = ann.submit("toy", "CPU", "test", kernel.name, kernel.read_bytes())
    assert '"passed": true' in printed
    # A host's file that a source includes is not there: what it says cannot come out in a diagnostic.
    secret = server.folder / "contest.db"
    with pytest.raises(ApplicationError, match=r"No such file|not found"):
        ann.submit("toy", "CPU", "test", "spy.cpp", f'#include "{secret}"\n'.encode())


@pytest.mark.timeout(600)
def test_a_killed_server_loses_nothing(server):
    ann = Popcorn(server.base)
    ann.register()
    slow = RIGHT + b"\nimport time\ntime.sleep(2)\n"
    url, mine = f"{server.base}/submission/example-rmsnorm/CPU/test", {"X-Popcorn-Cli-Id": ann.cli_id}
    numbers = [httpx.post(url, files={"file": ("s.py", text)}, headers=mine).json()["details"]["id"]
               for text in (slow, RIGHT)]
    assert wait_until(lambda: ann.show(numbers[0])["job"]["status"] == "running", 60)
    server.stop(signal.SIGKILL)
    server.start()
    assert wait_until(lambda: all(ann.show(number)["done"] for number in numbers), 180)
    assert [ann.show(number)["job"]["status"] for number in numbers] == ["succeeded", "succeeded"]


def test_it_says_what_it_lacks(tmp_path):
    """The core runs without the server's packages, and says how to install them."""
    code = ("import sys\n"
            "for name in ('fastapi', 'uvicorn', 'sqlalchemy', 'alembic'): sys.modules[name] = None\n"
            "from scoring.cli import main\n"
            "sys.exit(main(['serve', '--database', sys.argv[1]]))")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.db")], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 4
    assert "warpwave[server]" in done.stderr
    assert not (tmp_path / "x.db").exists()


def test_a_board_is_scored_over_its_own_benchmarks(monkeypatch):
    """Not over the problem's small cases, which a slow device has elsewhere."""
    jobs = []
    monkeypatch.setattr(judging, "score", lambda job, _listener: jobs.append(job) or record(1e-6))
    case = "m=64,n=64,k=512"
    given = {"submission": 1, "gpu": "CPU", "mode": "benchmark", "file_name": "s.py", "secret": "5ecre7",
             "source": "def custom_kernel(data): return data[-1]\n",
             "problem": {"folder": str(ROOT / "problems/fp8_gemm"), "tests": ["m=64,n=64,k=128"], "benchmarks": [case]}}
    judging.judge(load_config({"emulate": False, "backends": ["cpu"]}), given, Listener())
    (job,) = jobs
    assert job.small == ()
    assert [each.name for each in job.problem.benchmarks] == [case]


def test_seeds_of_ranked_runs_are_secret_and_can_be_found_again():
    assert judging.seed_of("a", 1) == judging.seed_of("a", 1)
    assert len({judging.seed_of(secret, number) for secret in "ab" for number in range(50)}) == 100
    sealed = judging.sealed(record(1e-6, seed=77))
    assert sealed.seed == 0
    assert {result.seed for result in sealed.cases} == {0}


