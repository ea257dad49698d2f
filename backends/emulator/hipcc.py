# SPDX-License-Identifier: MIT
"""hipcc's command line on whatever gfx942 compiler is there: hipcc itself, else the parts that ``_llvm`` finds.

Every source is compiled twice, for gfx942 and for the host, and its host object carries the code object. So objects,
archives and shared libraries are linked like any others. With ``-fgpu-rdc`` a host object carries device bitcode
instead, in a section of its own; the link collects it, links all device code once and adds it to the program.
Programs are linked to the emulator's ``libamdhip64.so`` and find it without ``LD_LIBRARY_PATH``.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from backends import _llvm, rocm
from backends.emulator import build, headers
from backends.errors import BackendError, CompileError
from backends.toolchain import Tool

NAME = "warpwave-hipcc"
ARCH = "gfx942"
HEADERS = Path(__file__).with_name("include")     # ours, of names that AMD ships with ROCm alone
_LANGUAGES = {".hip": "hip", ".cu": "hip", ".cpp": "c++", ".cc": "c++", ".cxx": "c++", ".C": "c++", ".c++": "c++",
              ".c": "c", ".s": "assembler", ".S": "assembler-with-cpp"}
_COMPILE_PAIRS = {"-I", "-D", "-U", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-Xclang", "-mllvm",
                  "-Xpreprocessor", "-Xarch_device", "-Xarch_host", "-Xarch_" + ARCH}
_HOST_PAIRS = {"-MF", "-MT", "-MQ"}
_LINK_PAIRS = {"-L", "-l", "-u", "-z", "-T", "-e", "-Xlinker", "-rpath"}
_HOST = re.compile(r"-M[MDGPFTQ]*$|-M[FTQ].|-march=|-mtune=|-mcpu=native|-m(?:no-)?(?:avx|sse|fma|bmi|f16c)|"
                   r"-pthread$|-flto")
_LINK = re.compile(r"-L.|-l.|-Wl,|-shared$|-static|-pthread$|-fopenmp|-rdynamic$|-(?:no-)?pie$|-s$|-fuse-ld=")
# Of ROCm's own layout, or about what this driver does anyway.
_IGNORED = re.compile(r"--hip-link$|--rocm-path=|--hip-path=|--rocm-device-lib-path=|--hip-device-lib-path=|"
                      r"--gcc-toolchain=|-parallel-jobs=|--(?:no-)?offload-compress$|-fno-gpu-rdc$|--offload-new-driver$|-pipe$|--hipcc-")
# The wheels bring no OpenMP for clang: directives are left out, and the host's loops run on one thread. omp.h and the
# library for calls such as omp_get_wtime are the system compiler's.
_OPENMP = re.compile(r"-fopenmp(?:=|$)")
_ARCHES = re.compile(r"--?(?:offload-arch|amdgpu-target)(?:=(.*))?$")
_STAGES = {"-c": "object", "-S": "assembly", "-E": "preprocess", "--genco": "code object", "-fsyntax-only": "check"}
_HALVES = {"--cuda-host-only": "host", "--offload-host-only": "host", "--cuda-device-only": "device",
           "--offload-device-only": "device"}
_SECTION, _MAGIC = ".warpwave_device", b"WARPWAVE"
# Which headers belong to what, where a compiler misses one.
_LIBRARIES = {
    "rocprim": "rocPRIM (Debian: librocprim-dev)", "hipcub": "hipCUB (Debian: libhipcub-dev)",
    "thrust": "rocThrust (Debian: librocthrust-dev)", "rocblas": "rocBLAS (Debian: librocblas-dev)",
    "hipblas": "hipBLAS (Debian: libhipblas-dev)", "rocrand": "rocRAND (Debian: librocrand-dev)",
    "hiprand": "hipRAND (Debian: libhiprand-dev)", "rocfft": "rocFFT (Debian: librocfft-dev)",
    "hipfft": "hipFFT (Debian: libhipfft-dev)", "rocsolver": "rocSOLVER (Debian: librocsolver-dev)",
    "hipsolver": "hipSOLVER (Debian: libhipsolver-dev)", "rocsparse": "rocSPARSE (Debian: librocsparse-dev)",
    "hipsparse": "hipSPARSE (Debian: libhipsparse-dev)", "rccl": "RCCL (Debian: librccl-dev)",
    "miopen": "MIOpen (Debian: libmiopen-dev)", "rocwmma": "rocWMMA (Debian: librocwmma-dev)",
}


@dataclass
class Command:
    """A parsed command line. ``link`` keeps the order of objects and libraries; a source stands there as its index."""

    sources: list[tuple[str, str]] = field(default_factory=list)       # path, language
    compile: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)                      # for the host's half alone
    link: list[str | int] = field(default_factory=list)
    output: str = ""
    stage: str = "link"
    half: str = ""                                                     # "host" or "device": only that
    rdc: bool = False
    archive: bool = False                                              # the link makes one instead of a program
    arches: list[str] = field(default_factory=list)
    verbose: bool = False


def parse(words: Sequence[str], hip: bool = True) -> Command:
    """``hip``: C++ files are HIP, as hipcc takes them. Raises ``BackendError`` for an option without its argument."""
    command, language = Command(), ""
    rest = iter(_expanded(words))

    def argument(option: str) -> str:
        value = next(rest, None)
        if value is None:
            raise BackendError(f"{NAME}: {option} needs an argument")
        return value

    for word in rest:
        if word in _STAGES:
            command.stage = _STAGES[word]
        elif word in _HALVES:
            command.half = _HALVES[word]
        elif word == "-o" or (word.startswith("-o") and not word.startswith(("-of", "-ob"))):
            command.output = word[2:] or argument(word)
        elif word == "-x" or (word.startswith("-x") and len(word) > 2):
            language = word[2:] or argument(word)
            language = "" if language == "none" else language
        elif word == "-fgpu-rdc":
            command.rdc = True
        elif word == "--emit-static-lib":
            command.archive = True
        elif word in ("-v", "-###"):
            command.verbose = True
        elif match := _ARCHES.match(word):
            command.arches += (match[1] if match[1] is not None else argument(word)).split(",")
        elif _IGNORED.match(word):
            continue
        elif word in _COMPILE_PAIRS:
            command.compile += [word, argument(word)]
        elif word in _HOST_PAIRS:
            command.host += [word, argument(word)]
        elif word in _LINK_PAIRS:
            command.link += [word, argument(word)]
        elif word.startswith("-") and word != "-":
            if _LINK.match(word):
                command.link.append("-fopenmp" if _OPENMP.match(word) else word)
            if _HOST.match(word):
                command.host.append(word)
            elif not _LINK.match(word):
                command.compile.append(word)
        else:
            found = language or _LANGUAGES.get(Path(word).suffix, "")
            if not found:
                command.link.append(word)
                continue
            command.link.append(len(command.sources))
            command.sources.append((word, "hip" if hip and found == "c++" else found))
    return command


def _expanded(words: Sequence[str]) -> Iterator[str]:
    """Response files, which build systems write for long command lines, in place of their names."""
    for word in words:
        if word.startswith("@") and Path(word[1:]).is_file():
            yield from _expanded(shlex.split(Path(word[1:]).read_text()))
        else:
            yield word


class Driver:
    """Runs the steps of one command line; ``parts`` are the compiler's."""

    def __init__(self, command: Command, parts: _llvm.Llvm, scratch: Path):
        self._command, self._parts, self._scratch = command, parts, scratch
        optimised = any(re.match(r"-O", word) for word in command.compile)
        lines = any(re.match(r"-g", word) for word in command.compile)
        # Programs rely on ROCm's headers for <cstring> and <cassert>.
        before = [f"--offload-arch={ARCH}", "-include", "cstring", "-include", "cassert"]
        after = [*self._installed(), *([] if optimised else ["-O3"])]
        self._added, self._flags = [*before, *after], [*before, *command.compile, *after]
        self._device = [] if lines else ["-gline-tables-only"]      # findings name source lines; no code changes

    def run(self) -> None:
        """Raises ``CompileError`` when a step fails."""
        command = self._command
        if command.stage == "link":
            objects = [self._object(index, self._scratch / f"{index}.o") for index in range(len(command.sources))]
            return self._link([str(objects[word]) if isinstance(word, int) else word for word in command.link])
        for index, (source, _) in enumerate(command.sources):
            out = self._target(source)
            if command.stage == "object" and command.half != "device":
                self._object(index, out)
            elif command.stage == "code object" or command.half == "device":
                self._device_output(index, out)
            else:
                self._host_output(index, out)
        return None

    def _target(self, source: str) -> Path:
        suffix = {"object": ".o", "assembly": ".s", "code object": ".co"}.get(self._command.stage, "")
        if self._command.output or not suffix:
            return Path(self._command.output or "-")
        return Path(Path(source).stem + suffix)

    def _installed(self) -> list[str]:
        """Headers of whatever ROCm there is, then our own stand-ins, behind all others."""
        folders = [prefix / "include" for prefix in _llvm.rocm_prefixes()]
        if "-fopenmp" in self._command.link:
            asked = subprocess.run([self._parts.cxx, "-print-file-name=include"], capture_output=True, text=True,
                                   check=False)
            folders.append(Path(asked.stdout.strip()))
        return [word for folder in [*folders, HEADERS] if folder.is_dir() for word in ("-idirafter", str(folder))]

    # --- one source -------------------------------------------------------------------------------------------------

    def _object(self, index: int, out: Path) -> Path:
        source, language = self._command.sources[index]
        if language != "hip":
            self._do([*self._plain(language), "-c", "-fPIC", source, "-o", str(out), *self._dependencies(out)])
        elif self._command.half == "host":
            self._do([*self._hip(source), "--cuda-host-only", "-c", "-fPIC", source, "-o", str(out),
                      *self._dependencies(out)])
        elif self._command.rdc:
            self._relocatable(source, out)
        else:
            library = self._scratch / f"{index}.so"
            flags = [_unit(source), *self._flags]
            *device, host, _ = self._parts.steps(ARCH, flags, source, library, self._device)
            for step in device:
                self._compile(step, source)
            host[-1] = str(out)
            if self._command.host:
                self._do([*host, *self._dependencies(out)])
            else:
                self._compile(host, source)
        return out

    def _hip(self, source: str) -> list[str]:
        return [*self._parts.front_end(), _unit(source), *self._flags]

    def _plain(self, language: str) -> list[str]:
        folders = self._parts.system if language.startswith("c++") else [
            folder for folder in self._parts.system if "c++" not in folder]
        places = [*(folder for folder in folders if "c++" in folder), str(self._parts.resources),
                  *(folder for folder in folders if "c++" not in folder), str(self._parts.headers)]
        isystem = [word for folder in places for word in ("-isystem", folder)]
        return [*self._parts.clang, "-x", language, "-target", self._parts.host, "-nostdinc", "-nostdinc++", *isystem,
                "-D__HIP_PLATFORM_AMD__", "-Wno-unused-command-line-argument", *self._command.compile,
                *self._installed()]

    def _dependencies(self, out: Path) -> list[str]:
        """The host's own flags; a file of dependencies is named after the object, not after a temporary one."""
        words = list(self._command.host)
        if any(word in ("-MD", "-MMD") for word in words):
            if not any(word.startswith("-MF") for word in words):
                words += ["-MF", str(out.with_suffix(".d"))]
            if not any(word.startswith(("-MT", "-MQ")) for word in words):
                words += ["-MT", str(out)]
        return words

    def _relocatable(self, source: str, out: Path) -> None:
        device, host, both = (self._scratch / f"rdc{suffix}" for suffix in (".device.bc", ".host.o", ".s"))
        self._device_compile(source, ["-fgpu-rdc", "-c", "-emit-llvm"], device)
        self._do([*self._hip(source), "-fgpu-rdc", "--cuda-host-only", "-c", "-fPIC", source, "-o", str(host),
                  *self._dependencies(out)])
        both.write_text(f'.section {_SECTION},"",@progbits\n.ascii "{_MAGIC.decode()}"\n.quad {device.stat().st_size}\n'
                        f'.incbin "{device}"\n.section .note.GNU-stack,"",@progbits\n')
        carrier = self._scratch / "rdc.carrier.o"
        self._do([self._parts.cxx, "-c", str(both), "-o", str(carrier)])
        self._do([self._parts.cxx, "-r", "-nostdlib", str(host), str(carrier), "-o", str(out)])

    def _device_compile(self, source: str, how: Sequence[str], out: Path) -> None:
        controls, compilation, *_ = self._parts.steps(ARCH, [], source, self._scratch / "device.so")
        self._do(controls)
        linked = [compilation[place + offset] for place, word in enumerate(compilation)
                  if word == "-mlink-builtin-bitcode" for offset in (-1, 0, 1, 2)]
        self._do([*self._hip(source), *self._device, "--cuda-device-only", *how, *linked, source, "-o", str(out)])

    def _device_output(self, index: int, out: Path) -> None:
        source = self._command.sources[index][0]
        if self._command.stage == "assembly":
            return self._device_compile(source, ["-S"], out)
        if "-emit-llvm" in self._command.compile:
            return self._device_compile(source, ["-c"], out)
        device = self._scratch / "code.o"
        self._device_compile(source, ["-S", "-Xclang", "-emit-obj"], device)
        return self._do([*self._parts.lld, "-shared", "--no-undefined", str(device), "-o", str(out)])

    def _host_output(self, index: int, out: Path) -> None:
        source, language = self._command.sources[index]
        front = [*self._hip(source), "--cuda-host-only"] if language == "hip" else self._plain(language)
        how = {"assembly": ["-S"], "preprocess": ["-E"], "check": ["-fsyntax-only"]}[self._command.stage]
        to = [] if self._command.stage == "check" else ["-o", str(out)]
        self._do([*front, *self._command.host, *how, source, *to])

    # --- the program ------------------------------------------------------------------------------------------------

    def _link(self, words: Sequence[str]) -> None:
        if self._command.archive:
            return self._do(["ar", "rcs", self._command.output or "a.out", *(map(str, _inputs(words)))])
        library = build.prefix(report=_say) / "lib"
        extra = self._device_link(_inputs(words))
        return self._do([self._parts.cxx, *words, *extra, f"-L{library}", f"-Wl,-rpath,{library}", "-lamdhip64",
                         "-o", self._command.output or "a.out"])

    def _device_link(self, inputs: Sequence[Path]) -> list[str]:
        """Links the device code that host objects carry, and makes the object that gives the program the result."""
        carried: list[bytes] = []
        wanted: set[str] = set()
        for path in inputs:
            for content in _objects_in(path):
                found, names = _carried(content)
                carried += found
                wanted |= names
        if not carried:
            return []
        devices = []
        for number, content in enumerate(carried):
            devices.append(str(self._scratch / f"linked{number}.bc"))
            Path(devices[-1]).write_bytes(content)
        code, text, stub = (self._scratch / f"linked{suffix}" for suffix in (".hsaco", ".s", ".stub.o"))
        self._do([*self._parts.lld, "-shared", "--no-undefined", f"-plugin-opt=mcpu={ARCH}", *devices, "-o", str(code)])
        text.write_text(_stub(code, sorted(wanted)))
        self._do([self._parts.cxx, "-c", str(text), "-o", str(stub)])
        return [str(stub)]

    def _compile(self, step: Sequence[str], source: str) -> None:
        """As ``_do``; with precompiled headers where there are some, for they cost more time than most sources."""
        if self._command.verbose:
            return self._do(step)      # what is shown can be run anywhere
        quick = headers.quicker(self._parts, step, Path(source), self._command.compile, self._added, self._device)
        if quick is not None:
            result = subprocess.run(quick, capture_output=True, text=True, errors="replace", check=False)
            if result.returncode == 0:
                sys.stderr.write(result.stderr)
                return None
        return self._do(step)      # what it says is about the source alone

    def _do(self, words: Sequence[str]) -> None:
        if self._command.verbose:
            _say(" ".join(words))
        result = subprocess.run(words, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        sys.stderr.write(result.stderr)
        if result.returncode:
            raise CompileError("\n".join(_hints(result.stderr)), (), result.stderr, list(words))


def _unit(source: str) -> str:
    """Names the static device variables of a source: objects of one program must not share them."""
    return f"-cuid={hashlib.sha256(os.fsencode(Path(source).resolve())).hexdigest()[:16]}"


def _inputs(words: Sequence[str]) -> list[Path]:
    """Objects and archives of a link, those that ``-l`` names among them."""
    folders = [Path(word[2:] or words[place + 1]) for place, word in enumerate(words) if word.startswith("-L")]
    names = [word[2:] for word in words if re.match(r"-l.", word)]
    archives = [next((path for path in places if path.is_file()), None)
                for places in ([folder / f"lib{name}.a" for folder in folders] for name in names)]
    return [*(Path(word) for word in words if word.endswith((".o", ".a", ".lo", ".obj"))), *filter(None, archives)]


def _objects_in(path: Path) -> Iterator[bytes]:
    """The ELF files in an object or an archive; nothing for a file that is not there: the linker will say so."""
    content = path.read_bytes() if path.is_file() else b""
    if not content.startswith(b"!<arch>\n"):
        yield content
        return
    at = 8
    while at + 60 <= len(content):       # ar(5): 60 bytes of header, the size in decimal from byte 48
        size = int(content[at + 48:at + 58])
        yield content[at + 60:at + 60 + size]
        at += 60 + size + size % 2


def _carried(content: bytes) -> tuple[list[bytes], set[str]]:
    """The device bitcode that a host object carries, and what it wants of whoever links that."""
    if not content.startswith(b"\x7fELF") or _SECTION.encode() not in content:
        return [], set()
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    elf = ELFFile(io.BytesIO(content))
    section, symbols = elf.get_section_by_name(_SECTION), elf.get_section_by_name(".symtab")
    if section is None or not isinstance(symbols, SymbolTableSection):
        return [], set()
    data = section.data()
    found = []
    while data.startswith(_MAGIC):
        size = int.from_bytes(data[8:16], "little")
        found.append(data[16:16 + size])
        data = data[16 + size:]
    return found, {symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"
                   and symbol.name.startswith(("__hip_fatbin_", "__hip_gpubin_handle_"))}


def _stub(code: Path, wanted: Sequence[str]) -> str:
    """Assembler: one code object and one handle under all names, so that the first object to start registers it."""
    def labels(prefix: str) -> list[str]:
        names = [name for name in wanted if name.startswith(prefix)]
        return [line for name in names for line in (f".globl {name}", f".hidden {name}", f"{name}:")]

    return "\n".join([
        '.section .hip_fatbin,"a",@progbits', ".p2align 12", *labels("__hip_fatbin_"), f'.incbin "{code}"',
        '.section .bss.warpwave,"aw",@nobits', ".p2align 3", *labels("__hip_gpubin_handle_"), ".zero 8",
        '.section .note.GNU-stack,"",@progbits', "",
    ])


def _hints(log: str) -> list[str]:
    """What to do about libraries that are not here."""
    missing = {match[1].lower() for match in re.finditer(r"fatal error: '([a-zA-Z]+)[^']*' file not found", log)}
    missing |= {match[1] for match in re.finditer(r"cannot find -l(\w+)", log)}
    return [f"{NAME}: {_LIBRARIES[name]} is a library of ROCm's: install it, or set ROCM_PATH to where it is"
            for name in sorted(missing) if name in _LIBRARIES]


def _say(line: str, where: TextIO = sys.stderr) -> None:
    where.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None, hip: bool = True) -> int:
    """hipcc's exit status: 0, or 1 with the compiler's words on stderr. ``hip``: C++ sources are HIP."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for variable in ("CXX", "HIPCC"):       # build systems name this very driver there
        named = shutil.which((os.environ.get(variable, "").split() or [""])[0])
        if named and (Path(named).name == NAME or rocm.is_ours(Path(named))):
            del os.environ[variable]
    try:
        compiler = rocm.find()
        if isinstance(compiler, Tool):
            os.execv(compiler.path, [str(compiler.path), *words])
        if any(word in ("--version", "-print-targets", "-dumpversion", "-dumpmachine") for word in words):
            return _facts(words, compiler)
        if any(word == "-target" or word.startswith("--target=") for word in words):
            return subprocess.run([*compiler.clang, *words], check=False).returncode
        command = parse(words, hip)
        if not command.sources and not any(isinstance(word, str) and not word.startswith("-") for word in command.link):
            raise BackendError(f"{NAME}: no input files")
        if command.arches and not any(arch.startswith((ARCH, "native", "gfx9-4-generic")) for arch in command.arches):
            _say(f"{NAME}: compiles for {ARCH}, the device that is emulated, not for {', '.join(command.arches)}")
        if command.sources and "-fopenmp" in command.link:
            _say(f"{NAME}: note: no OpenMP here: the host's parallel loops run on one thread")
        with tempfile.TemporaryDirectory(prefix="warpwave-hipcc-") as scratch:
            Driver(command, compiler, Path(scratch)).run()
    except CompileError as error:
        if str(error):
            _say(str(error))
        return 1
    except BackendError as error:
        _say(str(error))
        return 1
    return 0


def _facts(words: Sequence[str], parts: _llvm.Llvm) -> int:
    version = build.hip_version(parts.headers)
    if "-dumpversion" in words:
        _say(re.sub(r"[^\d.].*", "", parts.version.removeprefix("clang ")), sys.stdout)
    elif "-dumpmachine" in words:
        _say(parts.host, sys.stdout)
    elif "-print-targets" in words:       # what CMake asks for to find ROCm
        _say(f"Found HIP installation: {build.prefix(report=_say)}, version {version}")
    else:
        _say(f"HIP version: {version}-warpwave\n{parts.version}\nTarget: {parts.host}", sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
