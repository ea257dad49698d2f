# SPDX-License-Identifier: MIT
"""Code that takes more than its share, or will not end: each way ends as a verdict that names what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import backends
from backends.errors import CompileError
from backends.source import KernelSource
from scoring.judge.worker_process import KEEP_OUTPUT, WorkerFailure, WorkerProcess
from scoring.record import Status
from scoring.sandbox import cgroup, cleanup, users
from scoring.sandbox.compiler import Compilers
from scoring.sandbox.isolation import Nodes, SandboxError, Tier, choose, trial
from scoring.sandbox.policy import Policy
from tests.scoring.harness import ROOT, Work, alive, descriptors, left_open, wait_until
from tests.scoring.sandbox import cell

KINDS = sorted({tier.name for tier in cell.available()})
MEMORY, SCRATCH, PROCESSES = 512 << 20, 64 << 20, 150


@pytest.fixture(params=KINDS)
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def worker(behaviour: str, isolation: str) -> WorkerProcess:
    policy = Policy(isolation=isolation, memory_bytes=MEMORY, scratch_bytes=SCRATCH, processes=PROCESSES)
    return WorkerProcess(program=("-m", "tests.data.bomb_worker", behaviour), start_timeout=30, sandbox=policy)


def verdict(behaviour: str, isolation: str, seconds: float = 20) -> WorkerFailure:
    """The failure of a worker that misbehaves; afterwards nothing of it is left."""
    before = descriptors()
    with worker(behaviour, isolation) as process:
        launched = process._launched
        group = launched.group
        with pytest.raises(WorkerFailure) as caught:
            process.request(Work(), seconds)
        assert len(process.output()) <= KEEP_OUTPUT
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert not cleanup.marked(launched.mark)
    assert launched.uid is None or not users.processes(launched.uid)
    assert group is None or not any(folder.exists() for folder in group.folders.values())
    assert launched.scratch is None
    assert not left_open(before)
    return caught.value


def test_a_fork_bomb_is_over_when_its_time_is(isolation):
    caught = verdict("forks", isolation, seconds=3)
    assert caught.status in (Status.TIMEOUT, Status.RUNTIME_ERROR, Status.SANDBOX_VIOLATION)
    assert f"more than {PROCESSES} processes" in str(caught)


@pytest.mark.parametrize("behaviour", ["forks and reports", "threads"])
def test_too_many_processes_or_threads_are_refused(isolation, behaviour):
    caught = verdict(behaviour, isolation)
    assert caught.status is Status.RUNTIME_ERROR
    assert f"(sandbox: it wanted more than {PROCESSES} processes and threads)" in str(caught)


@pytest.mark.parametrize("behaviour", ["memory", "memory in files without names"])
def test_too_much_memory_ends_it(isolation, behaviour):
    group = cgroup.create(f"{cgroup.PREFIX}test", MEMORY, 10)
    if group is None or not group.limits_memory:
        pytest.skip("no control group of memory can be made here")
    group.remove()
    caught = verdict(behaviour, isolation)
    assert caught.status is Status.SANDBOX_VIOLATION
    assert "with SIGKILL (sandbox: its 0.5 GiB of memory were used up)" in str(caught)


def test_too_much_memory_is_refused_without_control_groups(isolation, monkeypatch):
    monkeypatch.setattr(cgroup, "hierarchies", lambda: [])
    caught = verdict("memory", isolation)
    assert caught.status is Status.RUNTIME_ERROR
    assert "MemoryError" in str(caught)


def test_a_file_that_grows_without_end(isolation):
    caught = verdict("one large file", isolation)
    if caught.status is Status.RUNTIME_ERROR:
        assert "(sandbox: there are 0.0625 GiB for temporary files)" in str(caught)
    else:
        assert caught.status is Status.SANDBOX_VIOLATION
        assert "SIGXFSZ" in str(caught) or "wrote more than 0.0625 GiB of temporary files" in str(caught)


def test_files_without_end(isolation):
    caught = verdict("many files", isolation)
    if isolation == "bubblewrap":
        assert caught.status is Status.RUNTIME_ERROR
        assert "(sandbox: there are 0.0625 GiB for temporary files)" in str(caught)
    else:
        assert caught.status is Status.SANDBOX_VIOLATION
        assert "it wrote more than 0.0625 GiB of temporary files" in str(caught)


@pytest.mark.parametrize("behaviour", ["ignores signals", "output"])
def test_what_never_ends_is_ended(isolation, behaviour):
    caught = verdict(behaviour, isolation, seconds=1)
    assert caught.status is Status.TIMEOUT
    assert str(caught) == "no answer to 'work' within 1 s"


def test_daemons_end_with_their_worker(isolation):
    """Also those that wiped their environment, where they can be told by a group or a user of their own."""
    with worker("daemons", isolation) as process:
        launched = process._launched
        process.request(Work(), 10)
        found = launched.group.members() if launched.group else set()
        if launched.uid is not None:
            found |= set(users.processes(launched.uid))
        assert len(found) >= 4 or not found
    assert wait_until(lambda: not any(map(alive, found)), 5)


JUDGE = """
import sys, time
from tests.scoring.harness import Work
from scoring.sandbox.policy import Policy
from scoring.judge.worker_process import WorkerProcess
process = WorkerProcess(program=("-m", "tests.data.bomb_worker", "daemons"), sandbox=Policy(isolation=sys.argv[1]))
process.request(Work(), 10)
print(process._launched.mark, flush=True)
time.sleep(600)
"""


def test_a_judge_that_is_killed_leaves_nothing_that_the_next_one_does_not_remove(isolation):
    judge = subprocess.Popen(
        [sys.executable, "-c", JUDGE, isolation], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert judge.stdout is not None
        mark = judge.stdout.readline().strip()
        running = cleanup.marked(mark)
        assert running
        groups = [folder for hierarchy in cgroup.hierarchies() for parent in (hierarchy.here, hierarchy.here.parent)
                  for folder in parent.glob(f"{cgroup.PREFIX}{mark}")]
        members = cgroup.Group({str(index): folder for index, folder in enumerate(groups)}).members()
    finally:
        judge.kill()
        judge.communicate()
    assert wait_until(lambda: not any(map(alive, running)), 10), "the worker itself dies with its judge"
    cleanup.clean()
    assert not any(map(alive, members))
    assert not any(folder.exists() for folder in groups)
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{cgroup.PREFIX}{mark}*"))
    assert cleanup.clean() == []


def test_what_belongs_to_a_living_judge_is_left_alone(isolation):
    with worker("greets only", isolation) as process:
        cleanup.clean()
        process.request(Work(), 10)


def test_an_isolation_that_is_not_here_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr("scoring.sandbox.isolation._known", {})
    monkeypatch.setattr("scoring.sandbox.isolation.trial", lambda tier, policy, nodes: "no such luck")
    with pytest.raises(SandboxError, match=r"(?s)bubblewrap.*no such luck.*apt-get install.*isolation: auto"):
        choose(Policy(isolation="bubblewrap"))


def test_the_next_best_is_taken_and_says_why(monkeypatch):
    monkeypatch.setattr("scoring.sandbox.isolation._known", {})
    monkeypatch.setattr(
        "scoring.sandbox.isolation.trial",
        lambda tier, policy, nodes: None if tier.name == "landlock" else "Operation not permitted")
    choice = choose(Policy())
    assert choice.tier.name == "landlock"
    assert choice.reasons
    assert all(reason.startswith("bubblewrap") and reason.endswith(": Operation not permitted")
               for reason in choice.reasons)


def test_a_trial_is_a_real_one(monkeypatch):
    """bwrap that does not work is no bwrap."""
    tier = Tier("bubblewrap", False, "/bin/false")
    assert trial(tier, Policy(), Nodes()) == "exit code 1"
    assert "not installed" in str(trial(Tier("bubblewrap", False), Policy(), Nodes()))


def test_it_is_tried_once(monkeypatch):
    seen = []
    monkeypatch.setattr("scoring.sandbox.isolation._known", {})
    monkeypatch.setattr("scoring.sandbox.isolation.trial", lambda tier, policy, nodes: seen.append(tier))
    assert choose(Policy()) is choose(Policy())
    assert len(seen) == 1


def test_a_signal_to_the_judges_group_does_not_reach_it(isolation):
    with worker("greets only", isolation) as process:
        assert os.getpgid(process.pid) != os.getpgid(0)
        assert signal.SIGKILL not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        process.request(Work(), 10)


# Compilers -----------------------------------------------------------------------------------------------------------

SOURCE = '#include "kernel.h"\n{body}\nextern "C" int f(int n) {{ return n; }}\n'
EMBEDS = 'asm(".section .rodata\\n.incbin \\"{secret}\\"\\n.text");'


@pytest.fixture(params=[kind for kind in KINDS if kind != "process"])       # which hides no file
def compiled(tmp_path, request):
    """Compile the body of a C++ file as a contestant's; the bytes of its library."""
    (tmp_path / "kernels" / "cpu" / "p").mkdir(parents=True)
    (tmp_path / "problems" / "p").mkdir(parents=True)
    (tmp_path / "problems" / "p" / "kernel.h").write_text('extern "C" int f(int n);\n')
    cpu = backends.get("cpu")
    backends.confine(Compilers(Policy(isolation=request.param, memory_bytes=MEMORY, scratch_bytes=SCRATCH)))

    def build(body: str, timeout: float = 60.0) -> bytes:
        path = tmp_path / "kernels" / "cpu" / "p" / "v.cpp"
        path.write_text(SOURCE.format(body=body))
        source = KernelSource.read(path, tmp_path)
        return cpu.compile(source, cpu.targets()[0], cache_dir=tmp_path / "cache", timeout=timeout).path.read_bytes()

    yield build
    backends.confine(None)


@pytest.mark.parametrize("body", [EMBEDS, '#include "{secret}"'], ids=["embeds", "includes"])
def test_a_source_can_embed_no_file_of_the_judges(compiled, tmp_path, body):
    secret = tmp_path / "secret"
    secret.write_text("WORD = 5;\n")
    secret.chmod(0o600)
    with pytest.raises(CompileError) as caught:
        compiled(body.format(secret=secret))
    assert "WORD" not in caught.value.log + str(caught.value)


def test_what_a_source_may_include_it_can(compiled):
    assert b"f" in compiled("#include <vector>")


def test_a_compiler_that_never_ends_is_ended(compiled):
    started = time.monotonic()
    # Millions of instantiations, none deeper than compilers allow.
    endless = "template <int a, int b, int c> struct T { static const int v = T<a - 1, b, c>::v + " \
        "T<a, b - 1, c>::v + T<a, b, c - 1>::v; };\n" \
        "template <int b, int c> struct T<0, b, c> { static const int v = 1; };\n" \
        "template <int a, int c> struct T<a, 0, c> { static const int v = 1; };\n" \
        "template <int a, int b> struct T<a, b, 0> { static const int v = 1; };\nint x = T<250, 250, 250>::v;"
    with pytest.raises(CompileError, match=r"not compiled after 2 s|failed"):
        compiled(endless, timeout=2.0)
    assert time.monotonic() - started < 30
