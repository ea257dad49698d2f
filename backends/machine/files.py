# SPDX-License-Identifier: MIT
"""From a file to its machine code: cubins, AMD code objects, and the libraries and programs that carry them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from backends import _codeobject, _emulated, _names, _process, _ptxas, cuda
from backends.base import Binary
from backends.errors import BackendError, CompileError
from backends.machine import cubin as cubins_
from backends.machine import gfx, sass
from backends.machine.model import Function, Image, Place
from backends.toolchain import LOG, which

_FATBIN = b"\x50\xed\x55\xba"
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_SHARED_UNITS = ("shared", "tma")
_EXTERN_SHARED = re.compile(r"extern\s+(?:__attribute__\S+\s+|__align__\S+\s+|alignas\S+\s+)*__shared__|"
                            r"HIP_DYNAMIC_SHARED")

Wanted = re.Pattern[str] | None       # of the names of functions; None: all


def of_binary(binary: Binary, source: str, origin: str, wanted: Wanted = None) -> Image:
    """The functions of one of our builds, with what its compiler reported.

    ``source`` is the text of the kernel file with its headers.

    Raises ``ToolchainMissing`` without the vendor's disassembler, ``BackendError`` for host code and for functions
    that are not there.
    """
    log = (binary.path.parent / LOG).read_text(errors="replace")
    if binary.target.backend == "cuda":
        found = [each for cubin in _ptxas.cubins(binary.path.read_bytes()) for each in of_cubin(cubin, wanted)]
    elif binary.code_object is not None:
        found = of_code_object(binary.code_object.read_bytes(), wanted)
    else:
        raise BackendError(f"{origin} is host code for {binary.target.gpu}: there is no GPU machine code in it")
    return image(found, origin, wanted, binary.compiler_version, log, source)


def read(path: Path, wanted: Wanted = None) -> Image:
    """The functions of any compiled file. Raises as ``of_binary`` does."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(b"\x7fELF") and _machine(data) == "EM_CUDA":
        return image(of_cubin(data, wanted), str(path), wanted)
    if data.startswith(b"\x7fELF") and _machine(data) == "EM_AMDGPU":
        return image(of_code_object(data, wanted), str(path), wanted)
    if path.suffix == ".ptx":
        return image(of_cubin(assemble(path), wanted), str(path), wanted)
    found: list[Function] = []
    for cubin in _carried_cubins(path, data):
        found += of_cubin(cubin, wanted)
    try:
        carried = _codeobject.carried(data)
    except ValueError as error:
        raise BackendError(f"{path}: {error}") from error
    for code_object in carried:
        found += of_code_object(code_object, wanted)
    if not found and wanted is None:
        raise BackendError(f"{path} holds no GPU machine code: it is no cubin, code object or .ptx, and no library or "
                           "program with one inside")
    return image(found, str(path), wanted)


def assemble(ptx: Path) -> bytes:
    """The cubin that ptxas makes of a .ptx file for its own ``.target``. Raises ``CompileError``."""
    match = _TARGET.search(ptx.read_text(errors="replace"))
    if match is None:
        raise BackendError(f"{ptx}: no .target line, so it is no PTX")
    first = ""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.cubin"
        for tool in cuda.tools("ptxas"):
            command = [str(tool), f"-arch={match[1]}", "-lineinfo", str(ptx.absolute()), "-o", str(out)]
            done = _process.run(command, Path(folder) / "log", Path(folder), 300.0)
            if done.returncode == 0:
                return out.read_bytes()
            first = first or done.output.strip().partition("\n")[0]
    raise CompileError(f"{ptx}: ptxas refused it: {first}", (), first, command)


def of_cubin(cubin: bytes, wanted: Wanted = None) -> list[Function]:
    """Functions of a cubin; those ``wanted`` alone are disassembled. Raises as ``of_binary`` does."""
    try:
        entries = cubins_.entries(cubin)
    except ValueError as error:
        raise BackendError(str(error)) from error
    names = short_names([entry.name for entry in entries])
    chosen = [entry for entry in entries if _matches(wanted, entry.name, names[entry.name])]
    if not chosen:
        return []
    every = len(chosen) == len(entries)
    text = sass.disassemble(cubin, cuda.tools("nvdisasm"), () if every else [entry.symbol for entry in chosen])
    target = _TARGET.search(text)
    code, raw = sass.parse(text), sass.sections(text)
    return [
        Function(entry.name, names[entry.name], target[1] if target else "", body,
                 entry.size, entry.resources, raw=raw[entry.name])
        for entry in chosen if (body := code.get(entry.name, ()))
    ]


def of_code_object(code_object: bytes, wanted: Wanted = None) -> list[Function]:
    """Functions of an AMD code object. Raises as ``of_binary`` does."""
    try:
        found = gfx.functions(code_object, gfx.disassembler(_emulated.library()))
    except ValueError as error:
        raise BackendError(f"not a code object of AMD: {error}") from error
    names = short_names([function.mangled for function in found])
    named = [replace(function, name=names[function.mangled]) for function in found]
    return [function for function in named if _matches(wanted, function.mangled, function.name)]


def short_names(mangled: Sequence[str]) -> dict[str, str]:
    """Names for people by symbol."""
    return _names.demangle(mangled, [which("cu++filt"), which("llvm-cxxfilt"), which("c++filt")])


def _matches(wanted: Wanted, mangled: str, name: str) -> bool:
    return wanted is None or bool(wanted.search(name) or wanted.search(mangled))


def _machine(data: bytes) -> str:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        return str(ELFFile(BytesIO(data)).header.e_machine)
    except ELFError:
        return ""


def _carried_cubins(path: Path, data: bytes) -> Iterator[bytes]:
    """Cubins inside a library, program or fatbin: those that lie there plainly, else what cuobjdump unpacks."""
    if _FATBIN not in data:
        return
    found = list(_ptxas.cubins(data))
    # A library has an empty cubin of the device runtime's beside its own, which may be compressed.
    if any(cubins_.entries(cubin) for cubin in found):
        yield from found
        return
    with tempfile.TemporaryDirectory() as folder:
        _process.run([str(cuda.tools("cuobjdump")[0]), "-xelf", "all", str(path.absolute())], Path(folder) / "log",
                     Path(folder), 300.0)
        yield from (file.read_bytes() for file in sorted(Path(folder).glob("*.cubin")))


def _with_spills(function: Function, report: _ptxas.FunctionReport | None) -> Function:
    if report is None:
        return function
    spilled = report.spill_stores + report.spill_loads
    return replace(function, resources=replace(function.resources, spill_bytes=spilled))


def image(
    found: Sequence[Function], origin: str, wanted: Wanted, compiler: str = "", log: str = "",
    source: str = "",
) -> Image:
    """``found`` with what the source and the code say about dynamic shared memory.

    Raises ``BackendError`` if nothing is ``wanted``.
    """
    if not found:
        what = f"no function matches {wanted.pattern!r}" if wanted else "no function"
        raise BackendError(f"{what} in {origin}; without --function all are listed")
    reports = {report.name: report for report in _ptxas.functions(log)}
    told = [_with_spills(_with_dynamic(each, source), reports.get(each.mangled)) for each in found]
    return Image(origin, tuple(told), compiler, log, source)


def _with_dynamic(function: Function, source: str) -> Function:
    """Dynamic shared memory is none where no instruction reaches shared memory, or where all of it is static."""
    reached = any(each.unit in _SHARED_UNITS or "LDGSTS" in each.opcode for each in function.code)
    static_only = function.resources.static_shared and source and not _EXTERN_SHARED.search(source)
    if reached and not static_only:
        return function
    return replace(function, resources=replace(function.resources, dynamic_shared=0))


def renamed(function: Function, old: str, new: str) -> Function:
    """The function with the file ``old`` called ``new``."""
    def moved(places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(Place(new, place.line) if place.file == old else place for place in places)

    code = tuple(replace(each, places=moved(each.places)) for each in function.code)
    return replace(function, code=code, raw=function.raw.replace(f'"{old}"', f'"{new}"'))


def localised(functions: Iterable[Function], root: Path) -> list[Function]:
    """The functions with places relative to ``root``: a build from the cache may name another checkout's files."""
    seen: dict[str, str] = {}

    def local(file: str) -> str:
        if file not in seen:
            parts = Path(file).parts
            tails = (Path(*parts[at:]) for at in range(1 if Path(file).is_absolute() else 0, len(parts)))
            seen[file] = next((tail.as_posix() for tail in tails if (root / tail).is_file()), file)
        return seen[file]

    known: dict[tuple[Place, ...], tuple[Place, ...]] = {}

    def moved(places: tuple[Place, ...]) -> tuple[Place, ...]:
        if places not in known:
            known[places] = tuple(Place(local(place.file), place.line) for place in places)
        return known[places]

    return [replace(f, code=tuple(replace(i, places=moved(i.places)) for i in f.code)) for f in functions]

