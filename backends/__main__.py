# SPDX-License-Identifier: MIT
"""For kernel authors: ``python -m backends compile FILE --gpu MI300`` compiles one file and prints what it uses;
``hipcc`` builds any HIP program, and ``emulate`` runs it, or a CUDA program, on an emulated GPU."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import backends
from backends._home import HOME
from backends.base import Binary, KernelUsage
from backends.emulator import hipcc
from backends.emulator.emulate import emulate as run_emulated
from backends.errors import BackendError, CompileError
from backends.machine import files
from backends.source import KernelSource, parse_define


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 compiled, 1 refused by the compiler, 2 anything else a user can put right; of ``emulate``, the
    program's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["hipcc"]:          # its options are another program's
        return hipcc.main(words[1:])
    parser = argparse.ArgumentParser(prog="python -m backends", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    compile_ = verbs.add_parser("compile", help="compile one kernel file and print its resource usage",
                                description="Compile one kernel file and print its resource usage.")
    compile_.add_argument("file", type=Path, help="a .cu, .hip or .cpp file with //!KERNEL lines")
    compile_.add_argument("--gpu", help="H200, H100, L4, MI300, CPU or an arch; default: the first the file supports")
    compile_.add_argument("--define", "-D", action="append", default=[], metavar="NAME=VALUE",
                          help="a tunable's value, or any other macro; repeatable")
    compile_.add_argument("--problem", help="default: the name of the file's folder")
    compile_.add_argument("--command", action="store_true", help="print the commands and compile nothing")
    compile_.add_argument("--sass", nargs="?", const="", metavar="REGEX",
                          help="print the machine code, too, of the functions whose name matches (CUDA and HIP)")
    verbs.add_parser("probe", help="compilers and devices of every backend")
    verbs.add_parser("hipcc", help="hipcc's command line, for the emulated MI300X where ROCm is not", add_help=False)
    emulate = verbs.add_parser("emulate", help="run a HIP or CUDA program on an emulated GPU and check its kernels",
                               description="Run a HIP or CUDA program on an emulated GPU and check its kernels.")
    emulate.add_argument("--gpu", default="MI300", help="MI300 (default), for HIP; H100, H200 or L4, for CUDA")
    emulate.add_argument("--checks", default="all", help="all (default), none, or names separated by commas")
    emulate.add_argument("--schedule", default="late", help="of H100, H200 and L4: late (default), eager, random:SEED")
    emulate.add_argument("--json", action="store_true", help="print what was found as JSON; the program's output goes "
                                                             "to stderr")
    emulate.add_argument("program", nargs=argparse.REMAINDER, help="-- program arguments")
    options = parser.parse_args(words)
    try:
        if options.verb == "emulate":
            return _emulate(options)
        return _probe() if options.verb == "probe" else _compile(options)
    except CompileError as error:
        print(error.log or error, file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BackendError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _emulate(options: argparse.Namespace) -> int:
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise BackendError("which program? python -m backends emulate -- ./program arguments")
    return run_emulated(program, options.checks, options.json, options.gpu, options.schedule)


def _compile(options: argparse.Namespace) -> int:
    backend = next((found for found in backends.every() if found.suffix == options.file.suffix), None)
    source = KernelSource.read(options.file, HOME, options.problem)
    assert backend is not None, "read() accepts the suffixes of the backends alone"
    supported = [target for target in backend.targets() if not source.arches or target.arch in source.arches]
    target = backend.target(options.gpu) if options.gpu or not supported else supported[0]
    defines = dict(map(parse_define, options.define))
    if options.command:
        print(*backend.command(source, Path("kernel.so"), target, defines))
        return 0
    binary = backend.compile(source, target, defines)
    for diagnostic in binary.diagnostics:
        print(diagnostic, file=sys.stderr)
    _show(binary)
    if options.sass is not None:
        _code(binary, source, options.sass)
    return 0


def _code(binary: Binary, source: KernelSource, pattern: str) -> None:
    for function in files.of_binary(binary, source.text, source.name, re.compile(pattern)).functions:
        print(f"{function.name}:")
        for instruction in function.code:
            place = f"  ; {instruction.places[0]}" if instruction.places else ""
            print(f"  {instruction.address:05x}  {instruction.text}{place}")


def _show(binary: Binary) -> None:
    how = "from the cache" if binary.cached else f"{binary.seconds:.1f} s"
    print(f"{binary.path}  ({binary.target.gpu}, {binary.target.arch}, {binary.compiler_version}, {how})")
    for kernel in binary.usage.kernels:
        print(f"  {kernel.name}: {', '.join(_facts(kernel))}")


def _facts(kernel: KernelUsage) -> list[str]:
    facts = [f"{kernel.registers} registers"]
    if kernel.agprs is not None:
        facts[0] += f" ({kernel.agprs} accumulation)"
    if kernel.scalar_registers is not None:
        facts.append(f"{kernel.scalar_registers} scalar")
    facts += [f"{kernel.shared_bytes} B shared", f"{kernel.spill_bytes} B spilled", f"{kernel.scratch_bytes} B scratch"]
    if kernel.threads is not None:
        facts.append(f"up to {kernel.threads} threads")
    if kernel.occupancy is not None:
        facts.append(f"occupancy ≤ {kernel.occupancy:.0%}")
    return facts


def _probe() -> int:
    for name in backends.names():
        found = backends.get(name).probe()
        print(f"{name}: {found.compiler_version or 'no compiler'}  {found.compiler or ''}")
        for device in found.devices:
            print(f"  device {device.index}: {device.name} ({device.arch})")
        for reason in found.reasons:
            print(f"  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
