# SPDX-License-Identifier: MIT
"""What code in a sandbox can see, reach and change: in each kind of isolation, with the differences spelt out.

A bubblewrap has namespaces of its own; Landlock denies what it knows of in the namespaces of the host; a mere process
is held back by file modes alone, and by those only if it has a user of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scoring.sandbox import landlock, seccomp
from scoring.sandbox.launch import Tier
from scoring.sandbox.policy import Policy
from tests.scoring.harness import ROOT
from tests.scoring.sandbox.cell import available, probe

PLAIN = Tier("process", False)
HOME = str(Path("~").expanduser())


def confined(tier: Tier) -> bool:
    """Whether files and system calls are restricted at all."""
    return tier.name != "process"


def test_what_this_machine_has_is_tested():
    kinds = {tier.name for tier in available()}
    assert "process" in kinds
    assert ("landlock" in kinds) == (landlock.abi() > 0)


def test_who_it_is(tier):
    answer = probe(tier, """
status = open("/proc/self/status").read()
find = lambda name: next(line.split(":")[1].split()[0] for line in status.splitlines() if line.startswith(name + ":"))
tell(uid=os.getuid(), groups=os.getgroups(), caps=[find("Cap" + kind) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
     nnp=find("NoNewPrivs"), seccomp=find("Seccomp"), oom=open("/proc/self/oom_score_adj").read().strip(),
     pid=os.getpid())
""").facts
    assert set(answer["caps"]) == {"0000000000000000"}
    assert answer["nnp"] == "1"
    assert answer["oom"] == "1000"
    assert answer["seccomp"] == ("2" if confined(tier) else "0")
    if tier.own_user:
        assert answer["uid"] > 60000
        assert answer["groups"] == []
    if tier.name == "bubblewrap":
        assert answer["pid"] < 10


def test_two_workers_have_different_users(lent):
    code = "tell(uid=os.getuid())"
    assert probe(lent, code).facts["uid"] != probe(lent, code).facts["uid"]


def test_what_is_the_judges_cannot_be_read(tier, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("42")
    secret.chmod(0o600)
    names = [str(ROOT / "problems"), str(ROOT / "kernels"), str(ROOT / "scoring/judge/score.py"),
             str(ROOT / ".git"),
             str(ROOT / "config.yaml"), str(secret), HOME, "/etc/shadow", "/var/log"]
    answer = probe(tier, f"""
see = lambda name: len(os.listdir(name)) if os.path.isdir(name) else len(open(name).read())
tell(**{{name: attempt(lambda: see(name)) for name in {names}}})
""").facts
    if confined(tier):
        readable = [path for path, found in answer.items() if found not in ("ENOENT", "EACCES")]
        inside = {HOME}        # where Python itself lies below the home, its name can be seen
        assert not set(readable) - inside, answer
        assert answer[HOME] in ("ENOENT", "EACCES", 1), answer
    elif tier.own_user:
        assert answer[str(secret)] == answer["/etc/shadow"] == "EACCES"


def test_a_hidden_folder_stays_hidden_below_a_visible_one(walled, tmp_path):
    hidden = Path(sys.prefix) / "share"
    policy = Policy(hidden=(hidden,))
    answer = probe(walled, f"""
tell(hidden=attempt(lambda: len(os.listdir({str(hidden)!r}))),
     beside=attempt(lambda: len(os.listdir({sys.prefix!r} + "/lib"))))
""", policy=policy).facts
    assert answer["hidden"] in ("ENOENT", "EACCES")
    assert answer["beside"] >= 1


def test_given_files_can_be_read_and_not_changed(tier, tmp_path):
    folder = tmp_path / "staged"
    folder.mkdir(mode=0o700)
    (folder / "data.py").write_text("VALUE = 7\n")
    (folder / "data.py").chmod(0o600)
    answer = probe(tier, f"""
path = {str(folder / 'data.py')!r}
tell(read=attempt(lambda: open(path).read()), write=attempt(lambda: open(path, "a").close()),
     unlink=attempt(lambda: os.unlink(path)), beside=attempt(lambda: open(path + "x", "w").close()))
""", files=[folder]).facts
    assert answer["read"] == "VALUE = 7\n"
    if confined(tier):
        assert {answer[key] for key in ("write", "unlink", "beside")} <= {"EACCES", "EROFS", "EPERM", "EBUSY"}
        assert (folder / "data.py").read_text() == "VALUE = 7\n"


def test_nothing_can_be_written_but_temporary_files(tier):
    folders = ["/", "/usr", "/etc", "/dev", "/sys", "/var/tmp", "/run", str(ROOT), sys.prefix, "/proc"]
    answer = probe(tier, f"""
tell(own=attempt(lambda: open(tempfile.gettempdir() + "/x", "w").close()),
     home=attempt(lambda: open(os.path.expanduser("~/x"), "w").close()),
     others={{folder: attempt(lambda: open(folder + "/warpwave-probe", "w").close()) for folder in {folders}}},
     run=attempt(lambda: subprocess.run(["/bin/sh", "-c", "cp /bin/true $TMPDIR/t && $TMPDIR/t"], check=True) and None))
""").facts
    assert answer["own"] == answer["home"] == answer["run"] == "done"
    reached = [folder for folder in folders if Path(folder, "warpwave-probe").exists()]
    for folder in reached:
        Path(folder, "warpwave-probe").unlink()
    if confined(tier):
        assert reached == []
        # A checkout below the temporary folder has a namesake in the sandbox's own one, which may be written.
        shared = [folder for folder in folders if not folder.startswith("/tmp/")]
        assert "done" not in [answer["others"][folder] for folder in shared], answer


def test_nothing_is_left_of_its_temporary_files(tier):
    first = probe(tier, "open(tempfile.gettempdir() + '/for-later', 'w').write('x'); tell(where=tempfile.gettempdir())")
    where = first.facts["where"]
    assert not Path(where, "for-later").exists()
    second = probe(tier, f"tell(found=os.path.exists({where + '/for-later'!r}))")
    assert second.facts["found"] is False


def test_other_processes_are_out_of_reach(tier):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        answer = probe(tier, f"""
judge, victim = {os.getpid()}, {victim.pid}
tell(environ=attempt(lambda: len(open(f"/proc/{{judge}}/environ").read())),
     memory=attempt(lambda: open(f"/proc/{{judge}}/mem", "rb").close()),
     files=attempt(lambda: os.readlink(f"/proc/{{judge}}/fd/0")),
     signal=attempt(lambda: os.kill(victim, signal.SIGTERM)), all=attempt(lambda: os.kill(judge, 0)),
     count=len([name for name in os.listdir("/proc") if name.isdigit()]))
""").facts
        if confined(tier) or tier.own_user:
            for what in ("environ", "memory", "files", "signal", "all"):
                assert answer[what] in ("ENOENT", "EACCES", "EPERM", "ESRCH"), (what, answer)
            assert victim.poll() is None
        if tier.name == "bubblewrap":
            assert answer["count"] <= 3
    finally:
        victim.kill()
        victim.wait()


def test_what_is_left_in_shared_memory_is_not_found_again(walled):
    """System V's, which no process has to hold open; POSIX's is a file."""
    code = """
key = 0x77617270
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
old = libc.shmget(key, 4096, 0o600)
new = libc.shmget(key, 4096, 0o1600)
tell(old=old, file=attempt(lambda: len(open("/dev/shm/warpwave-later").read())),
     left=attempt(lambda: open("/dev/shm/warpwave-later", "w").close()))
"""
    first, second = probe(walled, code).facts, probe(walled, code).facts
    assert first["old"] == second["old"] == -1
    assert second["file"] in ("ENOENT", "EACCES")


def test_the_network_is_out_of_reach(walled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        answer = probe(walled, f"""
def tcp():
    with socket.socket() as s:
        s.settimeout(3)
        s.connect(("127.0.0.1", {server.getsockname()[1]}))
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("192.0.2.1", 53))
def raw():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
tell(tcp=attempt(tcp), udp=attempt(udp), raw=attempt(raw),
     pair=attempt(lambda: [s.close() for s in socket.socketpair()] and None))
""").facts
        assert answer["tcp"] in ("ECONNREFUSED", "EPERM", "EACCES")
        assert answer["udp"] in ("ENETUNREACH", "EPERM")
        assert answer["raw"] == "EPERM"
        assert answer["pair"] == "done"
        with pytest.raises(TimeoutError):
            server.accept()


def test_sockets_of_others_are_out_of_reach(walled, tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters:
        named.bind(path)
        abstract.bind("\0warpwave-test")
        letters.bind(path + "d")
        for server in (named, abstract):
            server.listen()
        Path(path).chmod(0o777)
        answer = probe(walled, f"""
def connect(where):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(where)
def send():
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.sendmsg([b"x"], [], 0, {path + 'd'!r})
tell(named=attempt(lambda: connect({path!r})), abstract=attempt(lambda: connect("\\0warpwave-test")),
     letter=attempt(send))
""", files=[Path(path)] if walled.name == "landlock" else []).facts
    assert answer["named"] in ("ENOENT", "EPERM", "EACCES")
    assert answer["abstract"] in ("ECONNREFUSED", "EPERM")
    assert answer["letter"] in ("ENOENT", "EPERM", "EACCES")


def test_denied_calls_are_denied(walled):
    """Each is really made, with arguments that could do no harm: what is let through fails with another error."""
    column = list(seccomp.AUDIT).index(os.uname().machine)
    numbers = {call: numbers[column] for call, numbers in seccomp.CALLS.items() if numbers[column] is not None}
    bad = 2**64 - 1          # no such process, descriptor or address
    answer = probe(walled, f"tell(**{{n: call(c, *[{bad}] * 6) for n, c in {numbers}.items()}})").facts
    assert answer == dict.fromkeys(numbers, "EPERM")


def test_the_probe_for_denied_calls_tells_them_from_failing_ones():
    """Without a filter most of them fail as well, but of their arguments."""
    answer = probe(PLAIN, f"tell(kcmp=call({seccomp.CALLS['kcmp'][list(seccomp.AUDIT).index(os.uname().machine)]}, "
                          "*[2**64 - 1] * 5))").facts
    assert answer["kcmp"] == "ESRCH"


def test_new_namespaces_are_denied_and_new_threads_are_not(walled):
    clone, clone3, personality = (
        seccomp._CLOSER[name][list(seccomp.AUDIT).index(os.uname().machine)] for name in
        ("clone", "clone3", "personality"))
    answer = probe(walled, f"""
import threading
seen = []
thread = threading.Thread(target=lambda: seen.append(1)); thread.start(); thread.join()
child = os.fork()
if child == 0:
    os._exit(3)
tell(user=call({clone}, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0), mount=call({clone}, 0x00020000, 0, 0, 0, 0),
     clone3=call({clone3}, 0, 0), personality=call({personality}, 0x0040000), ask=call({personality}, 0xffffffff),
     thread=seen, child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
     unshare=attempt(lambda: subprocess.run(["unshare", "-r", "true"], check=True, capture_output=True) and None))
""").facts
    assert answer == {"user": "EPERM", "mount": "EPERM", "clone3": "ENOSYS", "personality": "EPERM", "ask": "done",
                      "thread": [1], "child": 3, "unshare": "failed"}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 calls exist on x86-64 alone")
def test_calls_of_another_instruction_set_end_the_process(walled):
    answer = probe(walled, f"call({seccomp.X32} | 39)")
    assert answer.code in (-31, 128 + 31), answer


def test_compilers_and_torch_work(tier, tmp_path):
    answer = probe(tier, """
source = tempfile.gettempdir() + "/f.c"
open(source, "w").write("int f(int x) { return 3 * x; }")
subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", source + ".so"], check=True)
import multiprocessing, torch
tell(gcc=ctypes.CDLL(source + ".so").f(14), torch=float((torch.ones(300, 300) @ torch.ones(300, 300)).sum()),
     shell=subprocess.run("echo $((6 * 7))", shell=True, capture_output=True, text=True).stdout.strip(),
     user=__import__("getpass").getuser(), home=os.path.expanduser("~") == tempfile.gettempdir(),
     modules=sorted(name for name in sys.modules if name.startswith("scoring")))
""", seconds=120)
    assert answer.facts == {
        "gcc": 42, "torch": 300.0**3, "shell": "42", "user": "contestant", "home": True,
        "modules": ["scoring", "scoring.sandbox", "scoring.sandbox.landlock"]}, answer.output


def test_the_environment_holds_no_secret(tier, monkeypatch):
    monkeypatch.setenv("WARPWAVE_DB", "/secret/database")
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
    answer = probe(tier, """
seen = dict(os.environ)
for pid in (name for name in os.listdir("/proc") if name.isdigit()):
    for kind in ("cmdline", "environ"):
        try:
            seen[pid + kind] = open(f"/proc/{pid}/{kind}").read()
        except OSError:
            pass
tell(own=sorted(os.environ), seen=json.dumps(seen))
""")
    if tier.name == "bubblewrap":          # elsewhere command lines of the whole machine can be read
        assert "secret" not in answer.facts["seen"]
    assert not {"WARPWAVE_DB", "GITHUB_TOKEN"} & set(answer.facts["own"])
