# SPDX-License-Identifier: MIT
"""How the emulator's library is built: what it exports, what is compiled again and what is not, what goes wrong."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.emulator import __main__ as command
from backends.emulator import build, declarations
from backends.errors import BackendError, CompileError, ToolchainMissing
from tests.emulator import runtime
from tests.emulator.runtime import own_process

toolchain = pytest.mark.toolchain("rocm")


# --- what AMD's headers declare -------------------------------------------------------------------------------------

HEADER = """
#define hipNot hipMacro(void)
/* hipError_t hipComment(int); */
extern "C" {
hipError_t hipMalloc(void** pointer, size_t size __dparm(4));
HIP_DEPRECATED("old")
const char*
    hipName(uint32_t id);
hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream __dparm(hipStreamPerThread));
hipError_t hipFree(void* pointer);  // hipError_t hipOther(void);
}
template <class T> hipError_t hipMalloc(T** pointer, size_t size) {
  return hipMalloc((void**)pointer, size);
}
typedef hipError_t (*t_hipOnlyInTheTable)(int x);
"""
SOURCE = """
EMU_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t queue) { return 0; }
EMU_API const char*
hipName(uint32_t) { return hipUsed(1); }
static hipError_t hipHelper(int x) { return 0; }
"""


def test_declarations_are_found_in_a_header() -> None:
    assert declarations.declared([HEADER]) == {
        "hipMalloc": "void** pointer, size_t size", "hipName": "uint32_t id", "hipFree": "void* pointer",
        "hipEventRecord_spt": "hipEvent_t event, hipStream_t stream", "hipOnlyInTheTable": "",
    }


def test_definitions_are_found_in_a_source() -> None:
    assert declarations.defined([SOURCE]) == {"hipEventRecord", "hipName"}


def test_the_rest_is_what_nobody_defines(tmp_path: Path) -> None:
    header, source = tmp_path / "hip.h", tmp_path / "a.cpp"
    header.write_text(HEADER)
    source.write_text(SOURCE)
    text = declarations.rest([header], [source])
    assert set(re.findall(r'unsupported\("(\w+)"\)', text)) == {"hipMalloc", "hipFree", "hipOnlyInTheTable"}
    assert "{ return hipEventRecord(event, stream); }" in text


# --- the library ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def api() -> Path:
    return runtime.built(lambda: build.build(runtime.api_sources(), [build.ROOT]))


def exports(library: Path) -> set[str]:
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"}


@toolchain
def test_all_of_the_api_is_exported_and_nothing_else(api: Path) -> None:
    declared = set(declarations.declared(path.read_text() for path in runtime.headers()))
    found = exports(api)
    assert len(declared) > 500
    assert declared - found == set()
    assert {f"__hip{name}" for name in (
        "RegisterFatBinary", "RegisterFunction", "RegisterVar", "RegisterManagedVar", "UnregisterFatBinary",
        "PushCallConfiguration", "PopCallConfiguration")} <= found
    ours = r"(__)?hip(rtc)?[A-Z]|warpwave_emulator_|_ZN3c10\d(alloc|free)_cpuE"
    assert {name for name in found if not re.match(ours, name)} == set()


@toolchain
def test_hip_python_finds_what_the_headers_have(api: Path) -> None:
    """Every function that its bindings load by name, but those newer than the headers."""
    bindings = pytest.importorskip("rocm.bindings.hip", reason="hip-python is not installed")
    text = (Path(bindings.__file__).parent / "cyhip.pyx").read_text()
    names = set(re.findall(r'__init_symbol\(&\w+,\s*"(\w+)"', text))
    declared = set(declarations.declared(path.read_text() for path in runtime.headers()))
    assert len(names & declared) > 450
    assert (names & declared) - exports(api) == set()


@toolchain
def test_the_library_needs_the_c_library_alone(api: Path) -> None:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    with api.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        tags = list(section.iter_tags())
    assert {tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"} == {"libamdhip64.so"}
    needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    assert {name for name in needed if not re.match(r"lib(c|m|dl|pthread)\.so|ld-linux", name)} == set()


# --- building -------------------------------------------------------------------------------------------------------

FILES = {
    "hip/api.h": """
        #pragma once
        #include <hip/hip_runtime_api.h>
        #define EMU_API extern "C" __attribute__((visibility("default")))
        namespace emu { hipError_t unsupported(const char*) noexcept; }""",
    "answer.h": "constexpr int kAnswer = 42;",
    "init.cpp": """
        #include "hip/api.h"
        hipError_t emu::unsupported(const char*) noexcept { return hipErrorNotSupported; }
EMU_API hipError_t hipInit(unsigned) { return hipSuccess; }""",
    "count.cpp": """
        #include "hip/api.h"
        #include "answer.h"
EMU_API hipError_t hipGetDeviceCount(int* count) { *count = kAnswer; return hipSuccess; }""",
}
CALL = """
import ctypes, sys
hip, count = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
print(hip.hipInit(0), hip.hipGetDeviceCount(ctypes.byref(count)), count.value)
"""


class Tree:
    """A small emulator with a cache of its own, to be built again and again."""

    def __init__(self, folder: Path, cache: Path):
        self.folder, self._cache = folder, cache
        self.said: list[str] = []
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text + "\n")

    def make(self) -> Path:
        self.said = []
        return build.build(sorted(self.folder.glob("*.cpp")), [self.folder], self._cache, self.said.append)

    def compiled(self) -> str:
        """How many files the last ``make`` compiled: "1 of 3", or "none"."""
        return " ".join(self.said[0].split()[3:6]) if self.said else "none"

    def append(self, name: str, text: str) -> None:
        (self.folder / name).write_text((self.folder / name).read_text() + text)


@pytest.fixture
def tree(api: Path, tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree", tmp_path / "cache")


@toolchain
def test_only_what_changed_is_compiled_again(tree: Tree, tmp_path: Path) -> None:
    first = tree.make()
    assert tree.compiled() == "3 of 3"
    assert own_process(CALL, first) == "0 0 42\n"
    assert tree.make() == first
    assert tree.compiled() == "none"
    tree.append("init.cpp", "// Another line.\n")
    assert tree.make() != first
    assert tree.compiled() == "1 of 3"
    (tree.folder / "answer.h").write_text("constexpr int kAnswer = 43;\n")
    assert own_process(CALL, tree.make()) == "0 0 43\n"
    assert tree.compiled() == "1 of 3"
    # The cache goes by contents, not by places and times.
    copy = Tree(tmp_path / "copy", tmp_path / "cache")
    assert copy.make() == first
    assert copy.compiled() == "none"


@pytest.mark.slow
@toolchain
def test_a_removed_function_becomes_an_unsupported_one(tree: Tree) -> None:
    before = exports(tree.make())
    (tree.folder / "count.cpp").unlink()
    library = tree.make()
    assert tree.compiled() == "1 of 2"          # the generated part
    assert exports(library) == before
    assert own_process(CALL, library) == f"0 {runtime.NOT_SUPPORTED} 0\n"


@toolchain
def test_a_mistake_is_reported_with_its_line(tree: Tree) -> None:
    tree.append("count.cpp", "int mistake = nothing;\n")
    with pytest.raises(CompileError, match=r"count\.cpp:\d+: error: .*nothing") as caught:
        tree.make()
    assert [found.line for found in caught.value.diagnostics if found.severity == "error"] == [5]
    assert "nothing" in caught.value.log


@pytest.mark.slow
@toolchain
def test_a_source_that_changes_meanwhile_is_not_filed_under_its_old_address(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = iter(range(1, 100))
    run = build._Runner.__call__

    def edit(self: build._Runner, argv: list[str], name: str) -> None:
        if name == "count.cpp":
            tree.append("count.cpp", f"// {next(edits)}\n")
        run(self, argv, name)

    with monkeypatch.context() as patch:
        patch.setattr(build._Runner, "__call__", edit)
        with pytest.raises(BackendError, match="kept changing"):
            tree.make()
    tree.make()
    assert tree.compiled() == "1 of 3"


@pytest.mark.slow
@toolchain
def test_two_processes_build_it_once(tree: Tree, tmp_path: Path) -> None:
    program = f"""
import pathlib
from backends.emulator import build
folder = pathlib.Path({str(tree.folder)!r})
print(build.build(sorted(folder.glob("*.cpp")), [folder], pathlib.Path({str(tmp_path / "cache")!r}), print))
"""
    with ThreadPoolExecutor(2) as pool:
        said = [job.result().splitlines() for job in [pool.submit(own_process, program) for _ in range(2)]]
    assert sorted(len(lines) for lines in said) == [1, 3]
    assert said[0][-1] == said[1][-1]


@toolchain
def test_another_processor_is_another_library(api: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, cache = build.find(), build.Cache()
    before = {each.key for each in build._plan(tools, runtime.api_sources(), [build.ROOT], cache)}
    monkeypatch.setattr(build, "processor", lambda: "another")
    after = {each.key for each in build._plan(tools, runtime.api_sources(), [build.ROOT], cache)}
    assert before & after == set()


def test_without_the_wheels_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "package_folder", lambda name: [])
    monkeypatch.setattr("backends._llvm.rocm_prefixes", lambda: [Path("/none")])
    with pytest.raises(ToolchainMissing, match="rocm-toolchain") as caught:
        build.library()
    assert caught.value.tried == ("wheel: ziglang is not installed", "wheel: triton is not installed",
                                  "/none/include (no HIP headers)")
    assert command.main([]) == 2
    assert "pip install" in capsys.readouterr().err


@toolchain
def test_the_command_prints_the_path(
    api: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "library", lambda *_, **__: api)
    assert command.main([]) == 0
    assert command.main(["--prefix"]) == 0
    assert command.main(["--prefix"]) == 0          # it is there by now
    path, prefix, again = capsys.readouterr().out.splitlines()
    assert path == str(api)
    assert prefix == again
    libraries = {f"lib{name}.so{version}" for name in ("amdhip64", "hiprtc") for version in ("", ".6", ".7")}
    assert {each.name for each in (Path(prefix) / "lib").iterdir()} == {*libraries, "cmake"}
    assert (Path(prefix) / "lib" / "libamdhip64.so.7").resolve() == api
