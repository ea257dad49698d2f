# SPDX-License-Identifier: MIT
"""The emulator's loader against pyelftools and msgpack on real code objects, and against broken ones.

The loader runs as a program of its own (``data/loader_dump.cpp``), under the address and undefined-behaviour
sanitizers where the compiler has them: a broken file must be refused, never read past its end.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import backends
from backends import _llvm
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from tests.emulator.code_objects import DATA, Program, check, expected_kernels

ROOT = Path(__file__).parents[2]
ELSEWHERE = 0x123456789ABCDEF0  # where it says that the undefined symbol `elsewhere` is
ABS32_LO, ABS32_HI, ABS64, REL32, REL64, ABS32, REL32_LO, REL32_HI, RELATIVE64 = 1, 2, 3, 4, 5, 6, 10, 11, 13
KERNELS = sorted(path.parent.name for path in ROOT.glob("kernels/hip/*/mfma.hip"))

pytestmark = pytest.mark.toolchain("rocm")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program.built(tmp_path_factory.mktemp("loader"))


Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile ``data/device_globals.c`` with these flags; link it unless ``linked`` is false."""
    try:
        llvm = _llvm.find()
    except ToolchainMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("objects")

    def get(*flags: str, linked: bool = True, cpu: str = "gfx942") -> Path:
        name = re.sub(r"\W+", "_", "_".join((cpu, *flags)))
        made, code = folder / f"{name}.o", folder / f"{name}.co"
        if not made.exists():
            subprocess.run([*llvm.clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-nogpulib", "-O2", *flags,
                            "-c", str(DATA / "device_globals.c"), "-o", str(made)], check=True)
            subprocess.run([*llvm.lld, "-shared", str(made), "-o", str(code)], check=True)
        return code if linked else made

    return get


LINES = "-gline-tables-only"
SMALL = {
    "v4-dwarf4": ("-mcode-object-version=4", "-gdwarf-4", LINES, "-fdebug-compilation-dir=/made/up"),
    "v5-dwarf5": ("-mcode-object-version=5", "-gdwarf-5", LINES, "-fvisibility=default"),
    "v6-dwarf64": ("-mcode-object-version=6", "-gdwarf64", LINES, "-fdebug-compilation-dir=/made/up"),
    "relative-names": ("-mcode-object-version=5", LINES, "-fdebug-compilation-dir=.", f"-ffile-prefix-map={DATA}=some"),
    "no-lines": ("-mcode-object-version=5",),
}


@pytest.fixture(scope="session")
def small(compile_c: Compile) -> Path:
    return compile_c(*SMALL["v5-dwarf5"])


@pytest.fixture(scope="session")
def triton_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled in a process of its own: Triton takes its settings from the environment of the process."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("triton")
    code = ("import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import triton_add\n"
            "Path(sys.argv[2], 'add.hsaco').write_bytes(triton_add.code_object(Path(sys.argv[2], 'cache')))")
    subprocess.run([sys.executable, "-c", code, str(DATA), str(folder)], check=True)
    return folder / "add.hsaco"


def project_kernel(problem: str) -> Path:
    backend = backends.get("rocm")
    source = KernelSource.read(ROOT / "kernels" / "hip" / problem / "mfma.hip", ROOT)
    try:
        binary = backend.compile(source, backend.target())
    except ToolchainMissing as error:
        pytest.skip(str(error))
    assert binary.code_object is not None
    return binary.code_object


# Good files ----------------------------------------------------------------------------------------------------------

@pytest.mark.sampled(3)
@pytest.mark.parametrize("problem", KERNELS)
def test_a_kernel_of_the_project(program: Program, problem: str) -> None:
    loaded = check(program, project_kernel(problem))
    assert max(map(len, loaded["calls"])) > 1
    files = {line[0] for line in loaded["lines"] if line}
    assert any(name.startswith("kernels/hip/") for name in files)   # as this project names them, wherever it lies
    assert not any(name.startswith(f"{ROOT}/kernels") for name in files)


def test_a_kernel_of_triton(program: Program, triton_object: Path) -> None:
    loaded = check(program, triton_object)
    (kernel,) = loaded["kernels"]
    assert kernel["name"] == "add"
    assert [argument["kind"] for argument in kernel["arguments"]][:4] == ["global_buffer"] * 3 + ["by_value"]
    assert {line[0] for line in loaded["lines"] if line} >= {str(DATA / "triton_add.py")}


@pytest.mark.parametrize("name", SMALL)
def test_every_version_and_line_format(program: Program, compile_c: Compile, name: str) -> None:
    loaded = check(program, compile_c(*SMALL[name]))
    first, second = loaded["kernels"]
    assert first["lds_bytes"] == 512
    assert second["scratch_bytes"] >= 160
    assert {symbol["name"] for symbol in loaded["symbols"]} >= {"numbers", "zeroes", "tables", "hidden", "twice"}
    files = {line[0] for line in loaded["lines"] if line}
    source = "some/device_globals.c" if name == "relative-names" else str(DATA / "device_globals.c")
    assert files == (set() if name == "no-lines" else {source})


def test_accumulation_registers_follow_the_others(program: Program, compile_c: Compile, tmp_path: Path) -> None:
    code = (DATA / "device_globals.c").read_text()
    assert "AGPR" not in code   # none is in use there
    assert all(kernel["agprs"] == 0 for kernel in program.answer("dump", compile_c())["kernels"])
    llvm = _llvm.find()
    source, made = tmp_path / "agpr.ll", tmp_path / "agpr.co"
    source.write_text(
        'target triple = "amdgcn-amd-amdhsa"\n'
        "define amdgpu_kernel void @both(i32 %x) {\n"
        '  call void asm sideeffect "; $0", "~{v9},~{a20}"()\n  ret void\n}\n')
    subprocess.run([*llvm.clang, "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "ir", "-O1",
                    "-Wno-override-module", "-c", str(source), "-o", str(tmp_path / "agpr.o")], check=True)
    subprocess.run([*llvm.lld, "-shared", str(tmp_path / "agpr.o"), "-o", str(made)], check=True)
    (kernel,) = check(program, made)["kernels"]
    assert (kernel["vgprs"], kernel["agprs"], kernel["accum_offset"]) == (12, 21, 12)


# Relocations ---------------------------------------------------------------------------------------------------------

def test_relocations_are_applied(program: Program, compile_c: Compile) -> None:
    seen = set()
    for visibility in ("default", "hidden"):
        path = compile_c("-mcode-object-version=5", f"-fvisibility={visibility}")
        loaded = check(program, path)
        address = {symbol["name"]: loaded["base"] + symbol["address"] for symbol in loaded["symbols"]}
        words = {r["offset"]: r["word"] for r in loaded["relocations"]}
        table = address["tables"] - loaded["base"]
        assert [words[table + 8 * index] for index in range(4)] == [
            address["numbers"], address["zeroes"] + 12, ELSEWHERE + 8, 0]   # the last is weak and nowhere
        seen |= {r["type"] for r in loaded["relocations"]}
    assert seen == {ABS64, RELATIVE64}


def retyped(path: Path, made: Path, changes: dict[int, int]) -> Path:
    """A copy whose dynamic relocations have other types."""
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".rela.dyn")
        for index in range(section["sh_size"] // 24):
            at = section["sh_offset"] + 24 * index + 8
            old = struct.unpack_from("<I", data, at)[0]
            struct.pack_into("<I", data, at, changes.get(old, old))
    made.write_bytes(data)
    return made


@pytest.mark.parametrize("kind", [ABS32_LO, ABS32_HI, ABS32, REL32, REL32_LO, REL32_HI, REL64])
def test_other_relocations(program: Program, small: Path, tmp_path: Path, kind: int) -> None:
    """Linkers leave none of these for the loader as a rule, so give a good file's another type."""
    before = program.answer("dump", small)
    loaded = program.answer("dump", retyped(small, tmp_path / "other.co", {ABS64: kind}))
    assert len(loaded["relocations"]) == len(before["relocations"]) > 4
    base = loaded["base"]
    for r in loaded["relocations"]:
        value = base + r["symbol"] if not r["name"] else ELSEWHERE if r["name"] == "elsewhere" else 0
        value += r["addend"]
        if kind in (REL32, REL32_LO, REL32_HI, REL64):
            value -= base + r["offset"]
        if kind in (ABS32_HI, REL32_HI):
            value >>= 32
        mask = 2**64 - 1 if kind == REL64 else 2**32 - 1
        assert r["word"] & mask == value & mask


def test_a_symbol_that_nothing_defines_is_named(program: Program, small: Path, tmp_path: Path) -> None:
    changed = tmp_path / "renamed.co"
    changed.write_bytes(small.read_bytes().replace(b"\0elsewhere\0", b"\0elsewhxre\0"))
    assert "nothing defines its symbol elsewhxre" in program.refusal("dump", changed)


def test_a_relocation_of_an_unknown_type_is_refused(program: Program, small: Path, tmp_path: Path) -> None:
    assert "relocation type 77" in program.refusal("dump", retyped(small, tmp_path / "x.co", {ABS64: 77}))


# Files for somebody else ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("cpu", "flags", "names"), [
    ("gfx90a", (), "gfx90a"),
    ("gfx950", (), "gfx950"),
    ("gfx1100", (), "gfx1100"),
    ("gfx942:xnack+", (), "gfx942:xnack+"),
    ("gfx942:sramecc-", (), "gfx942:sramecc-"),
])
def test_code_for_another_device_is_refused(
    program: Program, compile_c: Compile, cpu: str, flags: tuple[str, ...], names: str
) -> None:
    message = program.refusal("dump", compile_c(*flags, cpu=cpu))
    assert f"was compiled for {names} and cannot run on the emulated gfx942:sramecc+:xnack-" in message
    assert "--offload-arch=gfx942" in message


@pytest.mark.parametrize(("cpu", "flags", "target"), [
    ("gfx942:sramecc+:xnack-", (), "gfx942:sramecc+:xnack-"),
    ("gfx9-4-generic", ("-mcode-object-version=6",), "gfx9-4-generic"),
])
def test_code_that_names_the_device_otherwise_is_welcome(
    program: Program, compile_c: Compile, cpu: str, flags: tuple[str, ...], target: str
) -> None:
    assert check(program, compile_c(*flags, cpu=cpu))["target"] == target


def patched(path: Path, made: Path, at: int, value: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[at:at + len(value)] = value
    made.write_bytes(data)
    return made


@pytest.mark.parametrize(("at", "value", "message"), [
    (0, b"MZ", "does not begin like an ELF file"),
    (4, b"\1", "not a 64 bit little-endian ELF file"),
    (7, b"\0", "not HSA"),
    (8, b"\1", "rebuild with -mcode-object-version=5"),
    (8, b"\x63", "rebuild with -mcode-object-version=5"),
    (16, b"\2", "ELF type 2 is no shared object"),
    (18, b"\x3e\0", "machine 62, not for AMD GPUs"),
    (54, b"\x01\0", "too short for a 64 bit ELF file"),
    (60, b"\0\0", "no section headers"),
    (62, b"\xf0\xff", "the table of its section names"),
], ids=lambda value: str(value) if isinstance(value, int) else None)
def test_a_wrong_header_says_what_is_wrong(
    program: Program, small: Path, tmp_path: Path, at: int, value: bytes, message: str
) -> None:
    assert message in program.refusal("dump", patched(small, tmp_path / "x.co", at, value))


def test_files_of_other_kinds_say_what_to_give(program: Program, compile_c: Compile, tmp_path: Path) -> None:
    assert "link it with ld.lld -shared" in program.refusal("dump", compile_c(linked=False))
    host = program.path
    assert "give the device code" in program.refusal("dump", host)
    (tmp_path / "empty").write_bytes(b"")
    assert "does not begin like an ELF file" in program.refusal("dump", tmp_path / "empty")


def descriptor_in_file(path: Path) -> int:
    """Offset of the first kernel's descriptor."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        first = next(expected_kernels(elf))
        return next(iter(elf.address_offsets(first["descriptor"], 64)))


def test_a_descriptor_that_leads_nowhere_is_refused(program: Program, small: Path, tmp_path: Path) -> None:
    at = descriptor_in_file(small)
    (entry,) = struct.unpack_from("<q", small.read_bytes(), at + 16)
    away = patched(small, tmp_path / "away.co", at + 16, struct.pack("<q", 2**62))
    assert "outside the machine code" in program.refusal("dump", away)
    askew = patched(small, tmp_path / "askew.co", at + 16, struct.pack("<q", entry + 4))
    assert "aligned to 256 bytes" in program.refusal("dump", askew)


def test_metadata_of_the_wrong_kind_are_refused(program: Program, small: Path, tmp_path: Path) -> None:
    def refusal(old: bytes, new: bytes) -> str:
        data = small.read_bytes()
        assert old in data
        assert len(old) == len(new)
        (tmp_path / "x.co").write_bytes(data.replace(old, new))
        return program.refusal("dump", tmp_path / "x.co")

    size = b"\xaf.wavefront_size"
    assert "waves of 32 lanes" in refusal(size + b"\x40", size + b"\x20")
    assert ".wavefront_size is -1, outside 32 bits" in refusal(size + b"\x40", size + b"\xff")
    assert ".wavefront_size is no number" in refusal(size + b"\x40", size + b"\xc3")
    assert "tag 0xc1" in refusal(size + b"\x40", size + b"\xc1")
    assert "first.k! is not among the symbols" in refusal(b"\xa8first.kd", b"\xa8first.k!")
    assert "no AMDGPU metadata note" in refusal(b"AMDGPU\0\0", b"AMDGPV\0\0")


# Broken files --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["v5-dwarf5", "v4-dwarf4"])
def test_every_truncation_is_refused(program: Program, compile_c: Compile, name: str) -> None:
    path = compile_c(*SMALL[name])
    assert program.answer("truncate", path, 1) == {"tried": path.stat().st_size, "loaded": 0}


@pytest.mark.parametrize("name", ["v5-dwarf5", "v4-dwarf4", "v6-dwarf64"])
def test_changed_bytes_never_crash_it(program: Program, compile_c: Compile, name: str) -> None:
    found = program.answer("mutate", compile_c(*SMALL[name]), 20250101, 800)
    assert 0 < found["loaded"] < found["tried"]


def test_damaged_line_tables_cost_only_lines(program: Program, small: Path, tmp_path: Path) -> None:
    with small.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".debug_line")
        at, size = section["sh_offset"], section["sh_size"]
    loaded = program.answer("dump", patched(small, tmp_path / "x.co", at, b"\xff" * size))
    assert not any(loaded["lines"])
    assert len(loaded["kernels"]) == 2


# Bundles -------------------------------------------------------------------------------------------------------------

def bundle(entries: dict[str, bytes]) -> bytes:
    """An uncompressed offload bundle, as clang-offload-bundler lays it out."""
    table = 32 + sum(24 + len(name) for name in entries)
    head, body = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)), b""
    body = bytes(-table % 4096)
    for name, data in entries.items():
        head += struct.pack("<QQQ", table + len(body), len(data), len(name)) + name.encode()
        body += data
    return head + body


HOST = "host-x86_64-unknown-linux-gnu-"


@pytest.mark.parametrize("mode", ["bundle", "wrapped"])
@pytest.mark.parametrize(("names", "taken"), [
    (["hipv4-amdgcn-amd-amdhsa--gfx942"], 0),
    (["hipv4-amdgcn-amd-amdhsa--gfx90a", "hip-amdgcn-amd-amdhsa-gfx942"], 1),
    (["hipv4-amdgcn-amd-amdhsa--gfx942:xnack+", "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-"], 1),
    (["hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", "hipv4-amdgcn-amd-amdhsa--gfx942"], 0),
    (["hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", "hipv4-amdgcn-amd-amdhsa--gfx942"], 1),
    (["hipv4-amdgcn-amd-amdhsa--gfx950", "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic"], 1),
])
def test_the_fitting_entry_of_a_bundle_is_taken(
    program: Program, small: Path, tmp_path: Path, mode: str, names: list[str], taken: int
) -> None:
    code = small.read_bytes()
    data = bundle({HOST: b"", **{name: code[:-index or None] for index, name in enumerate(names)}})
    (tmp_path / "fat").write_bytes(data)
    found = program.answer(mode, tmp_path / "fat", "gfx942:sramecc+:xnack-")
    assert found["size"] == len(code) - taken
    assert data[found["offset"]:found["offset"] + 4] == b"\x7fELF"
    if taken:
        assert found["offset"] > data.find(b"\x7fELF")


@pytest.mark.parametrize("mode", ["bundle", "wrapped"])
def test_a_bare_code_object_is_found_with_its_size(program: Program, small: Path, tmp_path: Path, mode: str) -> None:
    (tmp_path / "fat").write_bytes(small.read_bytes() + b"and what lies behind it")
    found = program.answer(mode, tmp_path / "fat", "gfx942")
    assert found["offset"] == 0
    (tmp_path / "cut").write_bytes(small.read_bytes()[: found["size"]])
    check(program, tmp_path / "cut")


def test_a_bundle_without_our_code_says_what_it_holds(program: Program, tmp_path: Path) -> None:
    fat = tmp_path / "fat"
    fat.write_bytes(bundle({HOST: b"", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-": b"x",
                            "hipv4-amdgcn-amd-amdhsa--gfx1100": b"y"}))
    message = program.refusal("bundle", fat, "gfx942:sramecc+:xnack-")
    assert "it holds gfx90a:xnack-, gfx1100" in message
    assert "--offload-arch=gfx942" in message
    fat.write_bytes(bundle({HOST: b""}))
    assert "it holds none" in program.refusal("bundle", fat, "gfx942")


def compressed(data: bytes, version: int, method: int, packed: bytes) -> bytes:
    """``data`` as clang's compressed bundle of that version; method 0 is zlib, 1 zstd."""
    head = {1: lambda: struct.pack("<IQ", len(data), 0), 2: lambda: struct.pack("<IIQ", 24 + len(packed), len(data), 0),
            3: lambda: struct.pack("<QQQ", 32 + len(packed), len(data), 0)}[version]()
    return b"CCOB" + struct.pack("<HH", version, method) + head + packed


def zstd(data: bytes) -> bytes:
    """A frame that stores ``data`` as it is: RFC 8878, raw blocks of at most 64 KiB."""
    blocks = [data[at:at + 65536] for at in range(0, len(data), 65536)]
    frame = struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(data))
    for block in blocks:
        frame += struct.pack("<I", len(block) << 3 | (block is blocks[-1]))[:3] + block
    return frame


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [0, 1])
def test_compressed_bundles_are_read(program: Program, small: Path, tmp_path: Path, version: int, method: int) -> None:
    plain = bundle({HOST: b"", "hipv4-amdgcn-amd-amdhsa--gfx942": small.read_bytes()})
    for name, data in (("plain", plain), ("packed", compressed(plain, version, method,
                                                               zstd(plain) if method else zlib.compress(plain)))):
        (tmp_path / name).write_bytes(data)
    found = [program.answer("bundle", tmp_path / name, "gfx942") for name in ("plain", "packed")]
    assert found[0]["size"] == found[1]["size"] == small.stat().st_size


def test_damaged_compressed_bundles_are_refused(program: Program, tmp_path: Path) -> None:
    for data, words in ((b"CCOB" + bytes(60), "rebuild with --no-offload-compress"),
                        (compressed(b"x" * 99, 2, 0, b"no stream"), "damaged")):
        (tmp_path / "fat").write_bytes(data)
        assert words in program.refusal("bundle", tmp_path / "fat", "gfx942")


def test_broken_bundles_are_refused(program: Program, small: Path, tmp_path: Path) -> None:
    good = bundle({HOST: b"", "hipv4-amdgcn-amd-amdhsa--gfx942": small.read_bytes()})
    fat = tmp_path / "fat"
    for size in [*range(0, 140, 7), len(good) - 1]:
        fat.write_bytes(good[:size])
        assert len(program.refusal("bundle", fat, "gfx942")) > 40
    fat.write_bytes(good[:24] + b"\xff" * 8 + good[32:])
    assert "claims" in program.refusal("bundle", fat, "gfx942")
    fat.write_bytes(good[:48] + b"\xff" * 8 + good[56:])
    assert "name has" in program.refusal("bundle", fat, "gfx942")
    fat.write_bytes(b"neither of them")
    assert "neither an ELF file nor a clang offload bundle" in program.refusal("bundle", fat, "gfx942")


def test_the_library_of_a_kernel_holds_what_lies_beside_it(program: Program) -> None:
    """Clang's host code registers the code object as it is; so does this project's."""
    path = project_kernel(KERNELS[0])
    assert path.read_bytes() in path.with_name("kernel.so").read_bytes()
    assert program.answer("wrapped", path, "gfx942")["size"] == path.stat().st_size
