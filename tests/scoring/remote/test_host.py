# SPDX-License-Identifier: MIT
"""``run --host``, ``bundle`` and ``import`` on a machine that has Python and torch: no compiler, no other package."""

from __future__ import annotations

import getpass
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scoring import cli
from scoring.record import ExitCode, Record, Status
from scoring.remote import bundle, host
from scoring.store.store import Store
from tests.scoring.harness import SETTINGS
from tests.scoring.remote.machine import NO_SSHD, SSHD, Machine, bare_python

HERE = f"{getpass.getuser()}@127.0.0.1"
CASE = ("--case", "n=64")


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Machine]:
    if SSHD is None:
        pytest.skip(NO_SSHD)
    found = Machine(tmp_path_factory.mktemp("machine"))
    yield found
    found.close()


@pytest.fixture
def main(tmp_path, monkeypatch, capsys):
    """The command line: (exit code, stdout, stderr)."""
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["--config", str(SETTINGS), *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert "internal error" not in err, err
        return code, out, err

    return call


def kept(tmp_path) -> dict[str, Record]:
    return {record.kernel: record for record in Store(tmp_path / "records.db").records()}


@pytest.mark.toolchain("cpu")
def test_a_run_elsewhere_is_kept_here_with_its_machine(main, machine, python, monkeypatch, tmp_path):
    monkeypatch.setenv(host.VARIABLE, machine.ssh)
    there = ("--host", HERE, "--host-python", str(python))
    code, out, err = main("run", *there, "--mode", "benchmark", "--kernel", "honest", "--kernel", "broken",
                          "--seconds", "0.1")
    assert code == ExitCode.FAILED, err
    records = kept(tmp_path)
    assert {name: record.status for name, record in records.items()} == {
        "cpu/honest": Status.PASSED, "cpu/broken": Status.COMPILE_ERROR}
    assert {record.facts.host for record in records.values()} == {HERE}
    assert "broken.cpp:6" in out, "what the compiler here said"
    assert f"on {HERE}" in out
    again = records["cpu/honest"].facts.repeat
    assert again[:4] == ("--config", str(SETTINGS), "run", "--host")
    assert not list(machine.jobs.iterdir()), "nothing is left there"
    code, out, _err = main("leaderboard", "--json")
    assert (code, json.loads(out)["host"]) == (0, HERE)
    assert HERE in main("leaderboard")[1]


@pytest.mark.slow
@pytest.mark.toolchain("cpu")
def test_a_lost_connection_costs_nothing(main, machine, python, monkeypatch, tmp_path):
    """The first connection that follows breaks and is made again; the second one breaks for good; then --resume."""
    count = tmp_path / "count"
    count.write_text("")
    script = tmp_path / "ssh"
    script.write_text(f"""#!/bin/sh
case "$*" in *" follow "*)
    echo >> {count}
    [ "$(wc -l < {count})" -le 2 ] && exec timeout 1 {machine.ssh} "$@";;
esac
exec {machine.ssh} "$@"
""")
    script.chmod(0o755)
    monkeypatch.setenv(host.VARIABLE, str(script))
    monkeypatch.setattr(host, "_PAUSES", (0.1,))
    lost = iter((False, True, False, False, False))
    monkeypatch.setattr(host, "_hopeless", lambda said, silent, patience: next(lost))
    command = ("run", "--host", HERE, "--host-python", str(python), "--kernel", "honest", "--kernel", "error7", *CASE)
    code, _out, err = main(*command)
    assert code == ExitCode.UNAVAILABLE, err
    assert "connection lost" in err
    assert "the run goes on there; the same command with --resume brings the rest" in err
    code, out, err = main(*command, "--resume")
    assert code == ExitCode.FAILED, err
    assert "1 passed, 1 failed" in out
    assert set(kept(tmp_path)) == {"cpu/honest", "cpu/error7"}
    assert len(Store(tmp_path / "records.db").records()) == 2
    assert not list(machine.jobs.iterdir())


@pytest.mark.toolchain("cpu")
def test_a_bundle_runs_by_hand_and_its_records_come_back(main, python, tmp_path):
    packed = tmp_path / "job.tgz"
    code, out, err = main("bundle", "--kernel", "honest", *CASE, "-o", str(packed))
    assert code == 0, err
    assert "1 build" in out
    assert packed.stat().st_size < 5e6
    with tarfile.open(packed) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path, filter="data")
    assert not [name for name in names if name.endswith(".cpp") and "/kernels/" in name and "/toy/" not in name]
    job = tmp_path / bundle.FOLDER
    done = subprocess.run(["sh", str(job / "run.sh")], env={"PYTHON": str(python), "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    code, out, err = main("import", str(job / "records.jsonl"), "--host", "lab")
    assert (code, "kept 1 record" in out) == (0, True), err
    assert kept(tmp_path)["cpu/honest"].facts.host == "lab"
    assert "1 were there already" in main("import", str(job / "records.jsonl"), "--host", "lab")[1]


def test_what_is_no_record_is_told_with_its_line(main, tmp_path):
    (tmp_path / "x.jsonl").write_text('\n{"schema": 2}\n')
    code, _out, err = main("import", str(tmp_path / "x.jsonl"))
    assert code == ExitCode.USAGE
    assert "x.jsonl:2: is no record" in err
    (tmp_path / "x.jsonl").write_text("\n")
    assert main("import", str(tmp_path / "x.jsonl"))[0] == ExitCode.NOTHING


@pytest.mark.parametrize(("ssh", "name", "code", "words"), [
    ("false", "there", ExitCode.UNAVAILABLE, "there: no message"),
    ("sh -c 'exit 255'", "there", ExitCode.UNAVAILABLE, "must log in without a prompt"),
    ("/nonexistent/ssh", "there", ExitCode.UNAVAILABLE, "--host needs ssh"),
    ("false", "-oProxyCommand=x", ExitCode.USAGE, "user@machine is expected"),
])
def test_a_machine_that_cannot_be_reached_is_told(main, monkeypatch, ssh, name, code, words):
    monkeypatch.setenv(host.VARIABLE, ssh)
    found, _out, err = main("run", f"--host={name}", "--kernel", "honest", *CASE)
    assert (found, words in err) == (code, True), err
