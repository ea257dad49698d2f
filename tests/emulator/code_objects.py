# SPDX-License-Identifier: MIT
"""What the emulator's loader makes of a code object, held against what pyelftools and msgpack read in it."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from backends.cpu import find_cxx
from tests.emulator.inlined_calls import expected_calls

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
LOADER = ROOT / "backends" / "emulator" / "loader"
REFUSED = 3                     # exit status of the program for a LoadError


class Program:
    """The loader as a program."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def built(cls, folder: Path) -> Program:
        cxx = find_cxx().path
        common = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-I", str(LOADER)]
        probe = folder / "probe.cpp"
        probe.write_text("int main() {}")
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        tried = subprocess.run([str(cxx), *sanitizers, str(probe), "-o", str(folder / "probe")], capture_output=True,
                               check=False)
        if tried.returncode != 0:
            sanitizers = []

        def compile_one(path: Path) -> str:
            made = str(folder / f"{path.stem}.o")
            subprocess.run([str(cxx), *common, *sanitizers, "-c", str(path), "-o", made], check=True)
            return made

        with ThreadPoolExecutor(2) as pool:
            made = list(pool.map(compile_one, [DATA / "loader_dump.cpp", *sorted(LOADER.glob("*.cpp"))]))
        subprocess.run([str(cxx), *sanitizers, *made, "-o", str(folder / "dump")], check=True)
        return cls(folder / "dump")

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.path), *map(str, words)], capture_output=True, text=True, check=False)

    def answer(self, *words: object) -> Any:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *words: object) -> str:
        """The message with which it refuses."""
        done = self.run(*words)
        assert done.returncode == REFUSED, done.stdout + done.stderr
        return done.stderr.strip()


def note(elf: ELFFile) -> dict[str, Any]:
    for segment in elf.iter_segments("PT_NOTE"):
        for found in segment.iter_notes():
            if found["n_name"] == "AMDGPU":
                raw = found["n_descdata"]
                return msgpack.unpackb(raw) if isinstance(raw, bytes) else msgpack.unpackb(raw.encode("latin1"))
    raise AssertionError("no note")


def image_of(elf: ELFFile) -> bytearray:
    loads = list(elf.iter_segments("PT_LOAD"))
    image = bytearray(max(load["p_vaddr"] + load["p_memsz"] for load in loads))
    for load in loads:
        image[load["p_vaddr"]:load["p_vaddr"] + load["p_filesz"]] = load.data()
    return image


def expected_kernels(elf: ELFFile) -> Iterator[dict[str, Any]]:
    image = image_of(elf)
    (symbols,) = (section for section in elf.iter_sections("SHT_DYNSYM"))
    for facts in note(elf)["amdhsa.kernels"]:
        (symbol,) = symbols.get_symbol_by_name(facts[".symbol"])
        at = symbol["st_value"]
        lds, scratch, kernarg, _, entry, rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from(
            "<IIIIq20xIIIHH4x", image, at)
        (code,) = symbols.get_symbol_by_name(facts[".name"])
        assert at + entry == code["st_value"]
        assert kernarg == facts[".kernarg_segment_size"]
        offset = ((rsrc3 & 63) + 1) * 4
        yield {
            "name": facts[".name"], "symbol": facts[".symbol"], "descriptor": at, "entry": at + entry,
            "kernarg_bytes": kernarg, "kernarg_align": facts[".kernarg_segment_align"],
            "lds_bytes": lds, "scratch_bytes": scratch, "sgprs": facts[".sgpr_count"], "accum_offset": offset,
            "vgprs": facts[".vgpr_count"] - facts.get(".agpr_count", 0), "agprs": facts.get(".agpr_count", 0),
            "max_threads": facts[".max_flat_workgroup_size"], "wave_size": facts[".wavefront_size"],
            "rsrc1": rsrc1, "rsrc2": rsrc2, "rsrc3": rsrc3, "properties": properties, "kernarg_preload": preload,
            "dynamic_stack": int(facts.get(".uses_dynamic_stack", False)),
            "uniform_workgroup": int(facts.get(".uniform_work_group_size", 0)),
            "spilled_vgprs": facts[".vgpr_spill_count"], "spilled_sgprs": facts[".sgpr_spill_count"],
            "arguments": [
                {"name": argument.get(".name", ""), "kind": argument[".value_kind"], "offset": argument[".offset"],
                 "size": argument[".size"]} for argument in facts.get(".args", [])
            ],
        }


def expected_symbols(elf: ELFFile) -> set[tuple[str, int, int, int]]:
    found = set()
    for table in elf.iter_sections():
        if isinstance(table, SymbolTableSection):
            for symbol in table.iter_symbols():
                if symbol.name and isinstance(symbol["st_shndx"], int) and symbol["st_info"]["type"] != "STT_FILE":
                    function = symbol["st_info"]["type"] == "STT_FUNC"
                    found.add((symbol.name, symbol["st_value"], symbol["st_size"], int(function)))
    return found


def expected_lines(elf: ELFFile, text: range) -> dict[int, list[Any]]:
    """File, line and column by address, for each instruction word that has them."""
    if not elf.has_dwarf_info():
        return {}
    dwarf, found = elf.get_dwarf_info(), {}
    for unit in dwarf.iter_CUs():
        lines = dwarf.line_program_for_CU(unit)
        old = lines.header.version < 5
        folders = [folder.decode() for folder in lines.header.include_directory]
        if old:
            folders.insert(0, "")

        def path(number: int, lines: Any = lines, folders: list[str] = folders, old: bool = old) -> str:
            entry = lines.header.file_entry[number - old]
            folder = folders[entry.dir_index]
            base = Path(folders[0], folder)
            return str(base / entry.name.decode())

        previous = None
        for row in (entry.state for entry in lines.get_entries() if entry.state is not None):
            if previous is not None and previous.address in text:
                for address in range(previous.address, row.address, 4):
                    found[address] = [path(previous.file), previous.line, previous.column]
            previous = None if row.end_sequence else row
    return {address: line for address, line in found.items() if line[1] != 0}


def check(program: Program, path: Path) -> dict[str, Any]:
    """Compare all that the loader says about a file with what the oracle says."""
    loaded = program.answer("dump", path)
    with path.open("rb") as file:
        elf = ELFFile(file)
        image = image_of(elf)
        assert loaded["image_bytes"] == len(image)
        sum_ = 14695981039346656037
        for byte in image:
            sum_ = (sum_ ^ byte) * 1099511628211 & 2**64 - 1
        assert loaded["image_fnv"] == sum_
        assert loaded["target"] == "gfx" + note(elf)["amdhsa.target"].rpartition("-gfx")[2]
        assert loaded["abi_version"] == elf["e_ident"]["EI_ABIVERSION"] + 2
        assert loaded["kernels"] == list(expected_kernels(elf))
        symbols = [(s["name"], s["address"], s["size"], s["function"]) for s in loaded["symbols"]]
        assert len(symbols) == len(set(symbols))
        assert set(symbols) == expected_symbols(elf)
        text = elf.get_section_by_name(".text")
        assert (loaded["text_begin"], loaded["text_end"]) == (text["sh_addr"], text["sh_addr"] + text["sh_size"])
        addresses = range(loaded["text_begin"], loaded["text_end"], 4)
        lines = {address: line for address, line in zip(addresses, loaded["lines"], strict=True) if line}
        assert lines == expected_lines(elf, range(loaded["text_begin"], loaded["text_end"]))
        calls = {address: each for address, each in zip(addresses, loaded["calls"], strict=True) if each}
        assert calls == expected_calls(elf, range(loaded["text_begin"], loaded["text_end"]))
        relocations = [
            (r["r_offset"], r["r_info_type"], r["r_addend"], r["r_info_sym"])
            for section in elf.iter_sections() if isinstance(section, RelocationSection)
            for r in section.iter_relocations()
        ]
        assert [(r["offset"], r["type"], r["addend"]) for r in loaded["relocations"]] == [r[:3] for r in relocations]
    return loaded
