# SPDX-License-Identifier: MIT
"""The sandbox's parts by themselves: what is computed, not what the kernel makes of it."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from scoring.output.text import harmless, harmless_json
from scoring.sandbox import bubblewrap, cgroup, cleanup, devices, environment, mounts, seccomp
from scoring.sandbox.policy import ROOT, Policy

# The command line ----------------------------------------------------------------------------------------------------


def arguments(own_user: bool, **view: object) -> list[str]:
    shown = bubblewrap.View(**{"read": [Path("/usr"), Path("/tmp/staged")], **view})
    return bubblewrap.arguments("bwrap", shown, own_user, 7, 8, ["python", "x"])


def test_the_command_line_as_a_whole(monkeypatch):
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) == "/sys/fs/cgroup")
    golden = """
        bwrap --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --hostname sandbox
        --die-with-parent --new-session --cap-drop ALL
        --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP
        --ro-bind /usr /usr --ro-bind /sys /sys --proc /proc --dev /dev
        --perms 0555 --size 4096 --tmpfs /sys/fs/cgroup --remount-ro /sys/fs/cgroup --dev-bind /dev/nvidia3 /dev/nvidia3
        --perms 1777 --size 1000 --tmpfs /tmp --perms 1777 --size 1000 --tmpfs /dev/shm
        --ro-bind /tmp/staged /tmp/staged
        --perms 0755 --dir /a --perms 0755 --dir /a/b --perms 0444 --ro-bind-data 9 /a/b/c.so
        --remount-ro /dev --remount-ro / --chdir /tmp --seccomp 7 --info-fd 8 -- python x"""
    made = arguments(True, devices=["/dev/nvidia3"], copies={"/a/b/c.so": 9}, scratch=1000)
    assert made == golden.split()


def test_without_a_user_of_its_own_there_is_a_user_namespace_and_no_capability():
    made = arguments(False)
    assert "--unshare-user" in made
    assert "--cap-add" not in made


def test_what_lies_in_a_temporary_folder_is_bound_after_it():
    made = arguments(True)
    assert made.index("/tmp/staged") > len(made) - 1 - made[::-1].index("--tmpfs")


def test_links_at_the_top_stay_links(tmp_path):
    made = arguments(True, read=[Path("/usr"), Path("/bin")])
    if Path("/bin").is_symlink():
        assert made[made.index("--symlink") + 1:][:2] == [str(Path("/bin").readlink()), "/bin"]
    else:
        assert made[made.index("/bin") - 1:][:3] == ["--ro-bind", "/bin", "/bin"]


# What can be seen ----------------------------------------------------------------------------------------------------

def test_carving_leaves_out_what_is_hidden_and_keeps_the_rest(tmp_path):
    for name in ("a/secret/x", "a/b/c", "a/b/secret", "d"):
        (tmp_path / name).mkdir(parents=True)
    hidden = [tmp_path / "a/secret", tmp_path / "a/b/secret"]
    assert mounts.carve(tmp_path, hidden) == [tmp_path / "a/b/c", tmp_path / "d"]
    assert mounts.carve(tmp_path, []) == [tmp_path]
    assert mounts.carve(tmp_path / "a/secret", hidden) == []
    assert mounts.carve(tmp_path / "a/secret/x", hidden) == [tmp_path / "a/secret/x"]


def test_of_nested_folders_the_outer_ones_count():
    names = ["/usr/lib", "/usr", "/opt/b", "/usr/lib/x", "/opt/a"]
    assert mounts.outermost(map(Path, names)) == [Path("/usr"), Path("/opt/a"), Path("/opt/b")]


def test_variables_name_folders_but_none_of_the_judges(tmp_path):
    for name in ("toolkit/lib", "judge/problems", "home/lib", "home/secret"):
        (tmp_path / name).mkdir(parents=True)
    judge, home = tmp_path / "judge", tmp_path / "home"
    given = {
        "CUDA_HOME": str(tmp_path / "toolkit"), "LD_LIBRARY_PATH": f"{home / 'lib'}:",
        "PYTHONPATH": os.pathsep.join(map(str, (judge, judge / "problems", home, tmp_path, "/"))),
    }
    seen = mounts.system([judge, home], [judge], given)
    ours = [path.relative_to(tmp_path).as_posix() for path in seen if path.is_relative_to(tmp_path)]
    assert ours == ["toolkit", "home/lib"]
    assert tmp_path not in seen


def test_the_worker_is_made_of_these_modules():
    found = {path.relative_to(ROOT).as_posix() for path
             in mounts.modules("scoring.sandbox.bootstrap", "scoring.worker") if path.suffix == ".py"}
    assert {"scoring/worker/__main__.py", "scoring/worker/loaders.py", "scoring/ipc/wire.py",
            "scoring/sandbox/landlock.py"} <= found
    allowed = ("scoring/__init__.py", "scoring/ipc/", "scoring/sandbox/", "scoring/worker/")
    assert not [name for name in found if not name.startswith(allowed)], "nothing of the judge"
    assert not any(name.startswith(("problems/", "kernels/", "backends/", "tests/")) for name in found)


def test_imports_for_type_checkers_alone_do_not_count():
    source = """
import a.b
from c import d
if TYPE_CHECKING:
    import no
else:
    import e
def f():
    try:
        from g import h
    except ImportError:
        import i
"""
    assert sorted(mounts.imported(source)) == ["a.b", "c.d", "e", "g.h", "i"]


def test_the_users_home_and_the_checkout_are_concealed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    policy = Policy(hidden=(tmp_path / "db", Path("/")))
    assert {ROOT, tmp_path, tmp_path / "db"} <= set(policy.concealed)
    assert Path("/") not in policy.concealed
    assert tmp_path not in policy.private


# The environment -----------------------------------------------------------------------------------------------------

def test_the_environment_is_a_list_of_allowed_names():
    given = {"PATH": "/bin", "SECRET": "x", "LD_PRELOAD": "x.so", "CUDA_VISIBLE_DEVICES": "3", "PYTHONPATH": "/p",
             "TRITON_CACHE_DIR": "/home", "HIP_VISIBLE_DEVICES": "1"}
    made = environment.build(given, "/s", "m", {"CUDA_VISIBLE_DEVICES": "GPU-1", "HIP_VISIBLE_DEVICES": None})
    assert not {"SECRET", "LD_PRELOAD", "HIP_VISIBLE_DEVICES"} & set(made)
    assert made["PATH"] == "/bin"
    assert made["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert made["PYTHONPATH"] == f"{ROOT}{os.pathsep}/p"
    assert made["HOME"] == made["TMPDIR"] == "/s"
    assert made["TRITON_CACHE_DIR"].startswith("/s/")


# System calls --------------------------------------------------------------------------------------------------------

def interpret(program: bytes, number: int, arguments: tuple[int, ...] = (), machine: str = "x86_64") -> int:
    """What the filter answers to a call: a BPF machine with the few instructions that filters use."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<iIQ6Q", number, seccomp.AUDIT[machine], 0, *padded)
    code = [struct.unpack_from("<HBBI", program, 8 * index) for index in range(len(program) // 8)]
    accumulator = position = 0
    while True:
        operation, true, false, constant = code[position]
        position += 1
        if operation == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == seccomp.AND:
            accumulator &= constant
        elif operation == seccomp.EQUAL:
            position += true if accumulator == constant else false
        elif operation == seccomp.BITS:
            position += true if accumulator & constant else false
        else:
            assert operation == seccomp.RETURN
            return constant


DENIED, UNKNOWN = seccomp.ERRNO | errno.EPERM, seccomp.ERRNO | errno.ENOSYS


@pytest.mark.parametrize("words", [["--seed", "424242"], ["--seed=424242"], ["--see", "424242", "--seconds", "5"]])
def test_the_command_line_does_not_show_a_hidden_argument(words):
    code = ("from pathlib import Path; from scoring.sandbox.environment import hide_argument; hide_argument('seed'); "
            "print(Path('/proc/self/cmdline').read_bytes().split(bytes(1))[3:-1])")
    shown = subprocess.run(
        [sys.executable, "-c", code, *words, "424242"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    first = words[0] if "=" not in words[0] else "--seed=******"
    stars = [b"******"] * ("=" not in words[0])
    assert shown.strip() == str([first.encode(), *stars, *(word.encode() for word in words[2:]), b"424242"])


@pytest.mark.parametrize("machine", seccomp.AUDIT)
@pytest.mark.parametrize("namespaces", [True, False])
def test_the_filter_denies_what_is_listed_and_nothing_else(machine, namespaces):
    program = seccomp.program(namespaces, machine)
    column = list(seccomp.AUDIT).index(machine)
    shared = set() if namespaces else {numbers[column] for numbers in seccomp.SHARED.values()}
    listed = {numbers[column] for numbers in seccomp.CALLS.values()} - {None} | shared
    closer = {numbers[column] for numbers in seccomp._CLOSER.values()}
    for number in range(600):
        if number not in closer:
            wanted = DENIED if number in listed else seccomp.ALLOW
            assert interpret(program, number, (1, 2, 3), machine) == wanted, number
    assert len(program) < 8 * 4096, "the longest the kernel takes"


@pytest.mark.parametrize("machine", seccomp.AUDIT)
def test_calls_that_depend_on_their_arguments(machine):
    closed, open_ = (seccomp.program(namespaces, machine) for namespaces in (False, True))
    number = {name: numbers[list(seccomp.AUDIT).index(machine)] for name, numbers in seccomp._CLOSER.items()}

    def answer(name: str, *arguments: int, program: bytes = closed) -> int:
        return interpret(program, number[name], arguments, machine)

    thread = 0x3D0F00
    assert answer("clone", thread) == answer("clone", 17) == seccomp.ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer("clone", flag | 17) == DENIED
    assert answer("clone3", 1, 2) == UNKNOWN
    assert answer("personality", 0) == answer("personality", 0xFFFFFFFF) == seccomp.ALLOW
    assert answer("personality", 0x0400000) == DENIED
    stream, letters, packets, nonblocking = 1, 2, 5, 0o4000
    assert answer("socket", 1, stream | nonblocking) == answer("socket", 1, packets) == seccomp.ALLOW
    assert answer("socket", 1, letters) == answer("socket", 1, 3) == DENIED
    for family in (2, 10, 16, 17, 40):
        assert answer("socket", family, stream) == DENIED
        assert answer("socket", family, stream, program=open_) == seccomp.ALLOW
    assert answer("socketpair", 1, stream) == seccomp.ALLOW
    assert answer("socketpair", 1, letters) == answer("connect", 3) == DENIED
    assert answer("sendto", 3, 0, 0, 0, 0) == seccomp.ALLOW
    assert answer("sendto", 3, 0, 0, 0, 0x7F0000000000) == answer("sendto", 3, 0, 0, 0, 4096) == DENIED


def test_other_instruction_sets_are_killed():
    program = seccomp.program(True, "x86_64")
    assert interpret(program, 39, machine="aarch64") == seccomp.KILL
    assert interpret(program, seccomp.X32 | 39) == seccomp.KILL
    with pytest.raises(OSError, match="no system call numbers for riscv64"):
        seccomp.program(True, "riscv64")


def test_what_drivers_need_is_never_denied():
    """ioctl, mmap, mprotect, mbind, set_mempolicy, get_mempolicy, memfd_create, futex, prctl, sched_setaffinity."""
    program = seccomp.program(False, "x86_64")
    for number in (16, 9, 10, 237, 238, 239, 319, 202, 157, 203):
        assert interpret(program, number, (1, 2, 3)) == seccomp.ALLOW


# Devices -------------------------------------------------------------------------------------------------------------

UUIDS = ("GPU-404dd017-98bf-f070-ceff-12f79a8cb0a0", "GPU-e11afe21-b50a-0dfa-6d85-b891d5fb40e6")


@pytest.fixture
def nvidia_machine(tmp_path: Path) -> Path:
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap21"):
        (tmp_path / "dev" / name).touch(mode=0o666)
        (tmp_path / "dev" / name).chmod(0o666)
    for minor, address in ((1, "0000:19:00.0"), (0, "0000:2d:00.0")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t {UUIDS[minor]}\nDevice Minor: \t {minor}\n")
    return tmp_path


def test_one_gpus_files_and_no_others(nvidia_machine):
    nodes = devices.nvidia(0, "0000:19:00.0", "", nvidia_machine)
    assert nodes.paths == ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert (nodes.index, nodes.environment) == (0, {"CUDA_VISIBLE_DEVICES": UUIDS[1]})
    assert devices.nvidia(1, "0000:2d:00.0", "1,0", nvidia_machine).paths[0] == "/dev/nvidia0"


def test_several_gpus_keep_their_order(nvidia_machine):
    nodes = devices.together([
        devices.nvidia(index, address, "", nvidia_machine)
        for index, address in enumerate(("0000:2d:00.0", "0000:19:00.0"))])
    assert nodes.paths == ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia1")
    assert nodes.environment == {"CUDA_VISIBLE_DEVICES": f"{UUIDS[0]},{UUIDS[1]}"}
    assert (nodes.index, nodes.note) == (None, "")


def test_a_part_of_a_gpu_is_chosen_by_its_own_name(nvidia_machine):
    nodes = devices.nvidia(0, "0000:19:00.0", "MIG-1234", nvidia_machine)
    assert nodes.environment == {"CUDA_VISIBLE_DEVICES": "MIG-1234"}
    assert "/dev/nvidia-caps/nvidia-cap21" in nodes.paths


def test_a_driver_that_says_nothing_gets_all_its_devices_and_a_note(nvidia_machine):
    nodes = devices.nvidia(1, "0000:99:00.0", "", nvidia_machine)
    assert {"/dev/nvidia0", "/dev/nvidia1"} <= set(nodes.paths)
    assert nodes.index == 1
    assert "0000:99:00.0" in nodes.note


def test_an_amd_gpu_is_its_render_node(tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:0c:00.0/drm/renderD129").mkdir(parents=True)
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("kfd", "dri/renderD128", "dri/renderD129"):
        (tmp_path / "dev" / name).touch()
        (tmp_path / "dev" / name).chmod(0o660)
    nodes = devices.amd(1, "0000:0c:00.0", tmp_path)
    assert nodes.paths == ("/dev/kfd", "/dev/dri/renderD129")
    assert nodes.index == 0
    assert set(nodes.environment.values()) == {None}
    group = (tmp_path / "dev/kfd").stat().st_gid
    assert nodes.groups == ((group,) if group else ())
    assert devices.amd(1, "0000:ff:00.0", tmp_path).note


def test_no_device_no_files():
    assert devices.of(None) == devices.Nodes()


# Control groups ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("memberships", "mounted", "expected"), [
    ("0::/user.slice\n", "30 25 0:26 / {0} rw - cgroup2 cgroup2 rw\n", [("user.slice", True)]),
    ("0::/docker/x/y\n", "30 25 0:26 /docker/x {0} rw - cgroup2 cgroup2 rw\n", [("y", True)]),
    ("5:memory:/a\n3:pids:/\n1:name=systemd:/\n0::/\n",
     "31 25 0:27 / {0}/memory rw - cgroup cgroup rw,memory\n32 25 0:28 / {0}/pids rw - cgroup cgroup rw,pids\n",
     [("memory/a", False), ("pids", False)]),
    ("0::/elsewhere\n", "30 25 0:26 /docker/x {0} rw - cgroup2 cgroup2 rw\n", []),
    ("", "", []),
])
def test_where_control_groups_are(tmp_path, memberships, mounted, expected):
    (tmp_path / "cgroup").write_text(memberships)
    (tmp_path / "mountinfo").write_text(mounted.format("/cg"))
    found = cgroup.hierarchies(tmp_path)
    assert [(str(entry.here.relative_to("/cg")), entry.unified) for entry in found] == expected


def test_events_are_counted_in_both_versions(tmp_path):
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "pids.events").write_text("max 5\n")
    group = cgroup.Group({"memory": tmp_path, "pids": tmp_path})
    assert group.events() == {"oom_kill": 2, "pids": 5}
    (tmp_path / "memory.events").unlink()
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.events()["oom_kill"] == 1
    assert cgroup.Group({}).events() == {"oom_kill": 0, "pids": 0}


def test_no_place_for_a_group_is_no_error(monkeypatch):
    nowhere = cgroup.Hierarchy(("memory", "pids"), Path("/proc"), Path("/proc/no/such"), True)
    monkeypatch.setattr(cgroup, "hierarchies", lambda: [nowhere])
    assert cgroup.create("warpwave-x", 1 << 30, 100) is None


# Names, text, rubbish ------------------------------------------------------------------------------------------------

def test_an_owner_is_gone_when_its_process_is():
    mine = cleanup.own_name()
    pid, started, namespace = mine.split("-")
    assert not cleanup.is_gone(mine + "-more")
    assert cleanup.is_gone(f"{pid}-{int(started) + 1}-{namespace}"), "another process of the same id"
    assert not cleanup.is_gone(f"{pid}-{int(started) + 1}-{int(namespace) + 1}"), "of another container: unknown here"
    assert not cleanup.is_gone("anything")


@pytest.mark.parametrize(("given", "shown"), [
    ("plain µs × ✓\n\tx", "plain µs × ✓\n\tx"), ("\x1b[1;31mred\x1b[0m", "red"), ("a\x1b]8;;http://x\x07b", "ab"),
    ("a\x9b2Kb", "ab"), ("\x1bPq#0\x1b\\x", "x"), ("a\x1bcb", "ab"), ("1\r\n2\r3", "1\n2\n3"),
    ("a\0b\x08", "a\ufffdb\ufffd"),
    ("\u202etxt", "\ufffdtxt"), ("a\u2028b", "a\ufffdb"), ("\ud800", "\ufffd"), ("\x1b[31", ""), ("\x1b", ""),
])
def test_text_is_made_plain(given, shown):
    assert harmless(given) == shown
    assert harmless(shown) == shown


def test_values_are_made_plain_throughout():
    assert harmless_json({"\x1b[1mk": [{"x": "\x07"}, 1.5, None, True]}) == {"k": [{"x": "\ufffd"}, 1.5, None, True]}


def test_a_tree_deeper_than_names_reach_is_removed(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (tmp_path / "keep").write_text("x")
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 40, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("d" * 40, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert cleanup.folder_bytes(folder) is None, "it cannot be looked into"
    assert cleanup.remove_folder(folder)
    assert not folder.exists()
    assert (tmp_path / "keep").exists()
    assert cleanup.remove_folder(folder), "again is no error"


def test_a_planted_link_is_left_alone(tmp_path, monkeypatch):
    """A name that a killed judge would have left, but a link: what it leads to keeps its mode and its files."""
    foreign, shared = tmp_path / "foreign", tmp_path / "shared"
    foreign.mkdir(mode=0o755)
    (foreign / "file").write_text("x")
    foreign.chmod(0o755)
    shared.mkdir()
    planted = shared / f"{cgroup.PREFIX}999999999-1-{cleanup._namespace()}-x"
    planted.symlink_to(foreign)
    monkeypatch.setattr(cleanup.tempfile, "gettempdir", lambda: str(shared))
    cleanup.clean()
    assert not cleanup.remove_folder(planted)
    assert foreign.stat().st_mode & 0o777 == 0o755
    assert (foreign / "file").exists()
    assert planted.is_symlink()


def test_usage_is_what_files_take(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"x" * 100_000)
    used = cleanup.folder_bytes(tmp_path)
    assert used is not None
    assert 100_000 <= used < 300_000
