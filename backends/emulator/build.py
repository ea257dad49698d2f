# SPDX-License-Identifier: MIT
"""Builds the emulators, ``libamdhip64.so`` and ``libcudart.so``: C++ in, one shared library in the cache out.

The compiler is the one the wheels bring anyway, ``zig c++``, which has its own C++ library and links it statically, so
that the result lives beside any other in a process and asks the system for nothing but the C library. The standard
library's headers (``standard.h``) are compiled once for all sources, which takes two thirds off. Objects are
cached one by one by the content of all they are made from, the library by that of its objects; a second process that
wants it meanwhile waits for the first one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from backends import _diagnostics, _llvm, _process
from backends._cache import HINTS, Build, Cache, default_folder
from backends.emulator import declarations
from backends.emulator.prefix import furnish
from backends.errors import BackendError, CompileError, ToolchainMissing
from backends.toolchain import ENVIRONMENT, package_folder, package_version

ROOT = Path(__file__).resolve().parent
NAME = "libamdhip64.so"
HINT = ('the emulator needs a C++ compiler and AMD\'s HIP headers from wheels: pip install -e ".[rocm-toolchain]" '
        "(ziglang and triton)")
FLAGS = (
    "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-fast-math", "-fPIC", "-fvisibility=hidden",
    "-fno-sanitize=all",        # zig's default in some modes; UB checks trap without a word
    "-g0",                      # zig's default is not: 15 MB of it
    "-Wall", "-Wextra", "-Werror", "-D__HIP_PLATFORM_AMD__=1",
)
LINK_FLAGS = ("-shared", "-O2", "-Wl,-z,now", "-Wl,-z,nodelete")    # its handler runs at the process's end
# What other programs may call; the C++ library inside must not meet another one's.
_COMMON = "warpwave_emulator_*; _ZN3c109alloc_cpuE*; _ZN3c108free_cpuE*; local: *; };\n"
EXPORTS = f"{{ global: hip*; __hip*; {_COMMON}"
# Programs ask for the CUDA runtime's functions by a version, which is the library's name.
CUDA_EXPORTS = f"{{ global: cu*; __cuda*; {_COMMON}"
_CUDA = ("cuda", "ptx")         # folders of the CUDA emulator alone
_CORE = "core"                  # what both have
_STANDARD = ROOT / _CORE / "standard.h"
_WORTH = 4                      # sources that pay for compiling the standard library's headers first
TIMEOUT = 600.0
_FORMAT = 1                     # of the cache entries
_TRIES = 3
_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
Report = Callable[[str], None]


@dataclass(frozen=True)
class Tools:
    """What compiles: the ``zig`` program, the folder of <hip/hip_runtime.h>, and one line that names both."""

    zig: Path
    headers: Path
    version: str


@dataclass(frozen=True)
class Product:
    """A library: its name, what it exports, macros of its sources, and whether the rest of HIP's API is generated."""

    name: str = NAME
    exports: str = EXPORTS
    macros: tuple[str, ...] = ()
    rest: bool = True

    @property
    def link_flags(self) -> tuple[str, ...]:
        return (*LINK_FLAGS, f"-Wl,-soname,{self.name}")


HIP = Product()


@dataclass(frozen=True)
class Object:
    """One translation unit: its command lacks the output, ``key`` is its address in the cache."""

    source: Path
    command: tuple[str, ...]
    digest: str                 # of the source and its headers
    key: str


def find() -> Tools:
    """Raises ``ToolchainMissing``."""
    zig = next((folder / "zig" for folder in package_folder("ziglang") if (folder / "zig").is_file()), None)
    headers, tried = _headers()
    if zig is None:
        tried = ["wheel: ziglang is not installed", *tried]
    if zig is None or headers is None:
        raise ToolchainMissing("what the emulator is built with", tried, HINT)
    return Tools(zig, headers, f"ziglang {package_version('ziglang', zig.parent)}")


def _headers() -> tuple[Path | None, list[str]]:
    """AMD's, of ROCm 7: earlier ones lack types that the API uses now."""
    folders = [folder / "backends" / "amd" / "include" for folder in package_folder("triton")]
    tried = [] if folders else ["wheel: triton is not installed"]
    folders += [prefix / "include" for prefix in _llvm.rocm_prefixes()]
    for folder in folders:
        version = folder / "hip" / "hip_version.h"
        if version.is_file() and (folder / declarations.HEADERS[0]).is_file():
            major = re.search(r"HIP_VERSION_MAJOR\s+(\d+)", version.read_text(errors="replace"))
            if major and int(major[1]) >= 7:
                return folder, []
            tried.append(f"{folder} (HIP {major[1] if major else 'of unknown version'}, needs 7)")
        else:
            tried.append(f"{folder} (no HIP headers)")
    return None, tried


def library(cache_dir: Path | None = None, report: Report | None = None) -> Path:
    """The path of ``libamdhip64.so`` for this machine, built if it is not in the cache.

    Raises ``ToolchainMissing``, ``CompileError`` and ``BackendError``.
    """
    return build(_sources(), [ROOT], cache_dir, report)


def prefix(cache_dir: Path | None = None, report: Report | None = None) -> Path:
    """A folder to set ROCM_PATH to, or LD_LIBRARY_PATH to its ``lib``: see ``prefix.py``. Raises what ``library``
    raises."""
    path, tools = library(cache_dir, report), find()
    # By the checkout, too, since its scripts start this one's Python.
    key = hashlib.sha256(f"{path.parents[1].name}{ROOT}{sys.executable}".encode()).hexdigest()[:16]
    folder = Cache(cache_dir).folder / "emulator" / f"prefix-{key}"
    try:
        furnish(folder, path, tools.headers, hip_version(tools.headers))
    except OSError as error:
        raise BackendError(f"{folder} cannot be written ({error}); {HINTS['cache']}") from error
    return folder


def hip_version(headers: Path) -> str:
    """Of the headers below ``headers``: ``7.1.25424``."""
    text = (headers / "hip" / "hip_version.h").read_text(errors="replace")
    numbers = [re.search(rf"HIP_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(match[1] if match else "0" for match in numbers)


def ready(cache_dir: Path | None = None) -> Path | None:
    """What ``library`` returns if it need not compile anything, else None. Raises ``ToolchainMissing``."""
    tools, cache = find(), Cache(cache_dir)
    key = _key(_plan(tools, _sources(), [ROOT], cache, HIP), HIP)
    return cache.place(key) / "lib" / NAME if cache.get(key) is not None else None


def cuda_library(major: int, cache_dir: Path | None = None, report: Report | None = None) -> Path:
    """The path of ``libcudart.so.MAJOR``, the emulated NVIDIA GPUs, for programs of that CUDA release; built if it is
    not in the cache. Raises what ``library`` raises."""
    name = f"libcudart.so.{major}"
    product = Product(name, f"{name} {CUDA_EXPORTS}", (f"-DWARPWAVE_CUDA_MAJOR={major}",), False)
    sources = [path for folder in (*_CUDA, _CORE) for path in (ROOT / folder).rglob("*.cpp")]
    return build(sorted(sources), [ROOT], cache_dir, report, product)


def _sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.cpp") if path.relative_to(ROOT).parts[0] not in _CUDA)


def _key(objects: Sequence[Object], product: Product) -> str:
    return _address("library", product.link_flags, product.exports, [each.key for each in objects])


def build(
    sources: Sequence[Path], includes: Sequence[Path], cache_dir: Path | None = None, report: Report | None = None,
    product: Product = HIP,
) -> Path:
    """A library from ``sources``, with the generated rest of the API."""
    tools, cache = find(), Cache(cache_dir)
    try:
        for _ in range(_TRIES + 1):      # the last time to find what the one before has made
            objects = _plan(tools, sources, includes, cache, product)
            key = _key(objects, product)
            if cache.get(key) is not None:
                return cache.place(key) / "lib" / product.name
            with contextlib.suppress(_ChangedError), _alone(cache, key):
                if cache.get(key) is None:       # nobody else has made it meanwhile
                    _make(tools, objects, key, includes, cache, product, report or (lambda line: None))
    except OSError as error:
        raise BackendError(f"the emulator cannot be built in {cache.folder} ({error}); {HINTS['cache']}") from error
    raise BackendError("the emulator's sources kept changing while they were compiled; try again")


class _ChangedError(Exception):
    """A source was edited between the plan and the end of its compilation."""


def _plan(
    tools: Tools, sources: Sequence[Path], includes: Sequence[Path], cache: Cache, product: Product = HIP
) -> list[Object]:
    headers = [tools.headers / name for name in declarations.HEADERS if (tools.headers / name).is_file()]
    sources = list(sources)
    if product.rest:
        text = declarations.rest(headers, sources)
        generated = cache.folder / "emulator" / f"rest-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
        if not generated.is_file():
            _write(generated, text)
        sources.append(generated)
    # AMD's headers are not scanned: their version and the text of the largest stand for them.
    common = [tools.version, *map(_digest, headers), processor(),
              {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}]
    folders = [word for folder in includes for word in ("-I", str(folder))]
    flags = [*FLAGS, *product.macros, *folders, "-isystem", str(tools.headers)]
    digests = _Digests(includes)
    return [
        Object(source, (str(tools.zig), "c++", *flags, "-c", str(source)), digest := digests(source),
               _address("object", [*FLAGS, *product.macros], common, digest))
        for source in sources
    ]


class _Digests:
    """Of sources with all that they include by a quoted name: what ``_includes`` does for one file, for many that
    share most of their headers, each of which is read once."""

    def __init__(self, includes: Sequence[Path]):
        self._folders = list(includes)
        self._read: dict[Path, tuple[str, list[str]]] = {}

    def __call__(self, source: Path) -> str:
        seen: dict[Path, str] = {}
        queue = [source]
        while queue:
            path = queue.pop()
            if path in seen:
                continue
            seen[path], names = self._one(path)
            for name in names:
                places = (Path(os.path.normpath(folder / name)) for folder in [path.parent, *self._folders])
                queue += [place for place in places if place in self._read or place.is_file()]
        return _address("digest", sorted((path.name, digest) for path, digest in seen.items()))

    def _one(self, path: Path) -> tuple[str, list[str]]:
        if path not in self._read:
            content = path.read_bytes()
            names = [name.decode(errors="replace") for name in _QUOTED.findall(content)]
            self._read[path] = hashlib.sha256(content).hexdigest(), names
        return self._read[path]


def _make(
    tools: Tools, objects: Sequence[Object], key: str, includes: Sequence[Path], cache: Cache, product: Product,
    say: Report,
) -> None:
    started = time.monotonic()
    missing = [each for each in objects if cache.get(each.key) is None]
    say(f"building the emulator: {len(missing)} of {len(objects)} files to compile, then a link")
    with cache.building() as build, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        scratch = build.folder / "tmp"
        scratch.mkdir()
        (build.folder / "lib").mkdir()
        exports = scratch / "exports"
        exports.write_text(product.exports)
        run = _Runner(build, scratch, {"ZIG_GLOBAL_CACHE_DIR": str(default_folder() / "zig"), "TMPDIR": str(scratch)})
        # zig compiles its C++ library when it first links: one job like the others, and a long one.
        runtime = pool.submit(_link, tools, [], scratch / "empty.so", exports, run, LINK_FLAGS)
        flags = _precompiled(missing, scratch, run)
        compiled = [pool.submit(_compile, each, includes, cache, run, flags) for each in missing]
        try:
            for job in [*compiled, runtime]:
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        paths = [cache.place(each.key) / "object.o" for each in objects]
        _link(tools, paths, build.folder / "lib" / product.name, exports, run, product.link_flags)
        _clear(scratch)
        cache.put(key, build.folder, {"version": tools.version, "processor": processor()})
    say(f"built in {time.monotonic() - started:.0f} s")


class _Runner:
    """Runs compilers in the private folder of a build."""

    def __init__(self, build: Build, scratch: Path, environment: dict[str, str]):
        self._build, self._scratch, self._environment = build, scratch, environment

    def __call__(self, argv: Sequence[str], name: str) -> None:
        log = self._scratch / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.log"
        try:
            result = _process.run(argv, log, self._scratch, TIMEOUT, self._environment, [self._build.lock])
        except OSError as error:
            raise CompileError(f"{argv[0]} cannot be started: {error.strerror}", (), "", argv) from error
        if result.returncode == 0:
            return
        found = _diagnostics.parse(result.output, ROOT, name)
        refused = [str(each) for each in _diagnostics.errors(found)]
        how = f"not done after {TIMEOUT:.0f} s" if result.returncode is None else f"exit status {result.returncode}"
        what = refused[0] if refused else f"{name}: {how}: {result.output.strip()[-400:] or 'no output'}"
        raise CompileError(f"the emulator: {what}", found, result.output, argv)


def _precompiled(missing: Sequence[Object], scratch: Path, run: _Runner) -> list[str]:
    """Compiles ``standard.h`` with the sources' flags; what a source's command gets for it."""
    if len(missing) < _WORTH:
        return []
    out = scratch / "standard.pch"
    *flags, _, _ = missing[0].command           # -c SOURCE
    run([*flags, "-x", "c++-header", str(_STANDARD), "-o", str(out)], _STANDARD.name)
    return ["-include-pch", str(out)]


def _compile(
    each: Object, includes: Sequence[Path], cache: Cache, run: _Runner, flags: Sequence[str]
) -> None:
    with cache.building() as own:
        run([*each.command, *flags, "-o", str(own.folder / "object.o")], each.source.name)
        if _Digests(includes)(each.source) != each.digest:
            raise _ChangedError
        cache.put(each.key, own.folder, {"source": each.source.name})


def _link(
    tools: Tools, objects: Sequence[Path], out: Path, exports: Path, run: _Runner, flags: Sequence[str]
) -> None:
    words = [str(tools.zig), "c++", *flags, f"-Wl,--version-script={exports}", *map(str, objects)]
    if not objects:
        empty = out.with_suffix(".cpp")
        empty.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
        words += ["-fPIC", str(empty)]
    run([*words, "-o", str(out)], out.name)


@contextlib.contextmanager
def _alone(cache: Cache, key: str) -> Iterator[None]:
    """Until another process that builds the same library has finished; where there are no locks, at once."""
    path = cache.folder / "emulator" / f"{key[:16]}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def processor() -> str:
    """What ``-march=native`` depends on: the CPU's architecture, model and features, as one hash."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        text = ""
    lines = re.findall(r"^(?:model name|model|stepping|flags|CPU part|CPU variant|Features)\s*:.*$", text, re.MULTILINE)
    return hashlib.sha256("\n".join([platform.machine(), *lines]).encode()).hexdigest()


def _address(*parts: object) -> str:
    return hashlib.sha256(json.dumps([_FORMAT, *parts], sort_keys=True, default=list).encode()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
