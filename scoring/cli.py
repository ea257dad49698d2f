# SPDX-License-Identifier: MIT
"""The command line: verbs, flags, exit codes. Standard library only until a verb is chosen, so that help is instant.

Exit codes (``scoring.record.ExitCode``): 0 everything selected passed · 1 something failed · 2 usage or configuration ·
3 internal error · 4 requested backend or device not here · 5 nothing matched · 130 interrupted ·
143 terminated · 129 hung up.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import keyword
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scoring import __version__
from scoring.record import ExitCode, Mode

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SELECTION = ("backend", "problem", "kernel", "gpu")
_JSON = {"run": "one JSON document per record", "compare": "one JSON document per record",
         "build": "one JSON document per record", "tune": "one JSON document per kernel and target",
         "audit": "one JSON document per answer and case",
         "leaderboard": "one JSON document per row", "inspect": "one JSON document per kernel or file",
         "profile": "one JSON document per kernel"}
_ENDED = "Ctrl-C or SIGTERM: what is judged by then is shown and kept, marked INCOMPLETE (exit code 130 or 143)."
_CODES = ("Exit codes: 0 everything passed, 1 something failed, 2 usage or configuration, 3 internal, "
          "4 not available here, 5 nothing matched.")


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is what went wrong and where all flags are told, not a screen of them."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"error: {message}\n  {self.prog} --help shows what there is\n")


def program() -> str:
    """What the user typed to start us: the console script, or Python with the package."""
    return "warpwave" if Path(sys.argv[0]).stem == "warpwave" else "python -m scoring"


def parser() -> argparse.ArgumentParser:
    """All verbs and flags."""
    top = Parser(prog=program(), description="Score CUDA, HIP and CPU kernels: check, then time, in one table.")
    top.add_argument("--version", action="version", version=f"warpwave {__version__}")
    top.add_argument("--config", metavar="FILE", help="settings (default: ./config.yaml and others, see doctor)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, *flags: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if "backend" in flags:
            sub.add_argument("--backend", action="append", metavar="NAME", help="cpu, cuda or rocm; repeatable")
        if "problem" in flags:
            sub.add_argument("--problem", action="append", metavar="GLOB", help="repeatable")
        if "kernel" in flags:
            sub.add_argument("--kernel", action="append", metavar="GLOB",
                             help="variant, problem/variant or the kernel's file; repeatable")
        if "gpu" in flags:
            sub.add_argument("--gpu", metavar="GPU", help="label or arch, e.g. H100, L4, MI300, sm_89")
            sub.add_argument("--arch", metavar="ARCH", help="compile for this arch instead of the GPU's own")
            sub.add_argument("-D", dest="define", action="append", type=_define, metavar="NAME=VALUE",
                             help="a value of a kernel's tunable (`list` shows them); repeatable")
        what = _JSON.get(name, "one JSON document")
        sub.add_argument("--json", action="store_true", help=f"{what} on stdout, nothing else")
        return sub

    verb("list", "problems, kernels and backends", "problem", "backend")
    doctor = verb("doctor", "toolchains, devices, versions, settings and where they come from")
    verb("build", "compile kernels and show what the compiler made of them", *_SELECTION)
    run = verb("run", "compile, check, time, and show a table", *_SELECTION)
    compare = verb("compare", "race two kernels or more in the same rounds", "backend", "gpu")
    compare.add_argument("kernel", metavar="A", help="a kernel as --kernel names it, with values of its tunables in "
                                                     "brackets (fp8_gemm/mine[TILE=64]), or a Python submission")
    compare.add_argument("against", nargs="+", metavar="B", help="what races A, each as --against names it")
    compare.add_argument("--problem", metavar="NAME", help="the problem, where A does not name it")
    tune = verb("tune", "check and time every value of kernels' tunables, case by case", *_SELECTION)
    bundle = verb("bundle", "write all that a run needs into one file, for another machine", *_SELECTION)
    run.epilog = f"{_ENDED} {_CODES}"
    for sub in (run, bundle):
        sub.add_argument("--mode", choices=[mode.value for mode in Mode], help="default: benchmark")
        sub.add_argument("--peers", action="store_true", default=None,
                         help="time vendors' libraries in the same rounds")
        sub.add_argument("--against", action="append", metavar="KERNEL[NAME=VALUE,...]",
                         help="race this in the same rounds: a kernel of the problem, by name or file, with values of "
                              "its tunables, or a Python submission; repeatable")
        sub.add_argument("--submission", metavar="FILE", help="score a Python file with custom_kernel(data) instead")
        sub.add_argument("--task", metavar="DIR", help="a GPU MODE problem folder to score --submission on")
        sub.add_argument("--checks", metavar="LIST",
                         help="what an emulated device looks for: all (default in test mode), none, or names "
                              "(bounds, …)")
        sub.add_argument("--schedule", metavar="NAME",
                         help="how an emulated NVIDIA GPU orders what the kernel does not: late (default), eager, or "
                              "random:SEED")
    bundle.add_argument("-o", "--output", metavar="FILE", default="job.tgz", help="default: job.tgz")
    bundle.add_argument("--libraries", action=argparse.BooleanOptionalAction, default=True,
                        help="compile here and carry the libraries (default), or compile there")
    run.add_argument("--host", metavar="USER@MACHINE",
                     help="run there, by ssh: it needs Python and torch; records come back here")
    run.add_argument("--host-python", metavar="PYTHON", default="python3", help="the Python there that has torch")
    run.add_argument("--ray", metavar="ADDRESS",
                     help="run on all devices of this Ray cluster (host:port, or auto), one bundle per problem and GPU")
    run.add_argument("--all", action="store_true",
                     help="everything: all problems, kernels, targets and cases (default if nothing is selected: a "
                          "first look at some problems, on the devices here)")
    run.add_argument("--sanitize", type=_sanitizers, metavar="TOOLS",
                     help="look for faults in test mode, with some of compute-sanitizer's memcheck, racecheck, "
                          "synccheck and initcheck, or the emulated MI300X's checks for the same")
    run.add_argument("--records", metavar="PATH", help="also add every record to this file, one JSON document a line")
    run.add_argument("--junit", metavar="PATH", help="also write JUnit XML")
    run.add_argument("--no-save", action="store_true", help="do not keep the records")
    run.add_argument("--resume", action="store_true",
                     help="go on with what a run that was ended early has kept: what passed there is not judged again")
    tune.add_argument("--vary", action="append", metavar="NAME",
                      help="vary this tunable alone, or these; the others keep their defaults (default: all vary)")
    tune.add_argument("--trials", type=_count, metavar="N",
                      help="try at most N combinations, chosen by optuna from what was timed before (default: all up "
                           "to 64 combinations, 64 of more)")
    tune.add_argument("--cache", metavar="FILE",
                      help="keep results of one kernel in this file, in Kernel Tuner's cache format, and go on from "
                           "what is in it")
    tune.add_argument("--markdown", action="store_true", help="as GitHub tables, to be kept in a file")
    for sub in (run, compare):
        sub.add_argument("--calls", type=_count, default=0, metavar="N",
                         help="also time N single calls of every timed case, one by one")
        sub.add_argument("--warm", action="store_true",
                         help="also time calls that repeat one set of inputs and find it in the cache; never ranked")
        sub.add_argument("--verbose", "-v", action="store_true",
                         help="also the first wrong elements, and the spread of every time")
    for sub in (run, compare, tune, bundle):
        sub.add_argument("--case", action="append", metavar="GLOB",
                         help="only cases whose name matches, e.g. 'm=64,*', or another shape by all its "
                              "parameters; repeatable")
        sub.add_argument("--seed", type=int,
                         help="base of all seeds, to repeat a run or a case (not in leaderboard mode)")
        sub.add_argument("--seconds", type=float, metavar="S", help="time to spend on one timed case")
        sub.add_argument("--isolation", choices=["auto", "bubblewrap", "landlock", "process"],
                         help="what the code under test runs in (default: the strongest this machine can give)")
    for sub in (doctor, run, compare, tune, bundle):
        sub.add_argument("--emulate", action=argparse.BooleanOptionalAction,
                         help="run kernels on emulated GPUs, or never (default: HIP kernels, where no MI300X is found)")
    importing = verb("import", "keep records that another machine has made")
    importing.add_argument("files", nargs="+", metavar="FILE", help="records.jsonl of a bundle, or - for stdin")
    importing.add_argument("--host", metavar="NAME", help="the machine that made them (default: what it calls itself)")
    profile = verb("profile", "one checked call, and what a profiler or an emulated GPU counted: limits, conflicts",
                   "problem", "kernel", "gpu")
    profile.add_argument("--case", action="append", metavar="GLOB",
                         help="only cases whose name matches, or another shape by all its parameters; repeatable")
    profile.add_argument("--tool", choices=["ncu", "rocprofv3", "torch", "emulator"],
                         help="default: the vendor's where a device is, else the emulator")
    profile.add_argument("--output", metavar="FILE", help="keep the tool's own file of one case")
    profile.add_argument("--seed", type=int, help="base of all seeds, to repeat a call")
    profile.add_argument("--isolation", choices=["auto", "bubblewrap", "landlock", "process"],
                         help="what the code under test runs in")
    inspect = verb("inspect", "what was compiled: units, loops, overlap, registers, spills; needs no GPU", "gpu")
    inspect.add_argument("file", nargs="*", metavar="FILE",
                         help="a .cu, .hip or .ptx file, a submission, a cubin, a code object, a library, a program")
    inspect.add_argument("--kernel", action="append", metavar="GLOB",
                         help="problem/variant, with values of tunables as problem/variant[NAME=VALUE,...]; repeatable")
    inspect.add_argument("--function", metavar="REGEX", help="only functions whose name matches, in full")
    inspect.add_argument("--stage", choices=["ir", "ptx", "asm"],
                         help="print LLVM IR (HIP), PTX (CUDA) or machine code with its source lines")
    inspect.add_argument("--raw", action="store_true", help="print the disassembler's own text, as it is")
    inspect.add_argument("--diff", metavar="OTHER", help="compare with another kernel, file or kernel[NAME=VALUE,...]")
    inspect.add_argument("--shared", type=_count, metavar="BYTES",
                         help="dynamic shared memory of the launches, for the true occupancy")
    inspect.add_argument("--html", metavar="FILE", help="write a self-contained page: source beside machine code")
    audit = verb("audit", "prove that wrong answers are refused, case by case", "problem")
    audit.add_argument("--case", action="append", metavar="GLOB", help="only cases whose name matches; repeatable")
    audit.add_argument("--device", metavar="DEVICE", help="torch device to compute on (default: cuda if there is one)")
    new = verb("new", "write a problem or a kernel that works, to start from")
    new.add_argument("what", choices=["problem", "kernel"])
    new.add_argument("name", metavar="NAME", help="of a problem, or PROBLEM/NAME of a kernel")
    new.add_argument("--backend", action="append", metavar="BACKEND", help="of a kernel: cpu, cuda or rocm")
    new.add_argument("--like", metavar="VARIANT", help="start from a copy of this kernel of the problem")
    verb("schema", "the JSON Schema of a record")
    board = verb("leaderboard", "best scores kept so far", "problem")
    board.add_argument("--gpu", metavar="GPU", help="only this GPU label")
    board.add_argument("--markdown", action="store_true", help="as a GitHub table")
    report = verb("report", "one self-contained HTML page of everything kept", "problem")
    report.add_argument("--output", metavar="FILE", help="default: paths.report of the settings")
    report.add_argument("--inspect", action="store_true",
                        help="also write pages of the kernels' machine code beside it, and link to them")
    serve = verb("serve", "a contest server for popcorn-cli and browsers")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=_count, default=8080, help="default: 8080")
    serve.add_argument("--database", metavar="WHERE",
                       help="an SQLite file, or postgresql://USER@HOST/NAME (default: contest.db in the state folder)")
    serve.add_argument("--token-file", metavar="FILE",
                       help="the organiser's token, made if it is not there; $WARPWAVE_ADMIN_TOKEN goes before it")
    serve.add_argument("--https", action="store_true", help="it is reached by https: cookies are sent by nothing else")
    serve.add_argument("--emulate", action=argparse.BooleanOptionalAction,
                       help="judge HIP kernels on the emulated MI300X, or never (default: where no real one is found)")
    serve.add_argument("--ray", metavar="ADDRESS", help="judge on the devices of this Ray cluster (host:port, or auto)")
    serve.add_argument("--export", dest="export_season", metavar="FILE", help="write the season to a file, and end")
    serve.add_argument("--import", dest="import_season", metavar="FILE",
                       help="fill an empty database from such a file, and end")
    report.add_argument("--limit", type=_count, default=500, metavar="N", help="newest records to show (default: 500)")
    completion = verbs.add_parser("completion", help="a shell's completion script",
                                  description="Print the completion script of a shell for the command warpwave.")
    completion.add_argument("shell", choices=["bash", "zsh", "tcsh"])
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; user errors become one message on stderr, never a traceback."""
    if not (sys.argv[1:] if arguments is None else arguments):
        parser().print_help(sys.stderr)
        return ExitCode.USAGE
    options, others = parser().parse_known_args(arguments)
    if others:
        print(f"error: {_stray(options.verb, others)}\n  {program()} {options.verb} --help shows what there is",
              file=sys.stderr)
        return ExitCode.USAGE
    with ending():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.verb in ("run", "bundle") and (complaint := _contradiction(options)):
        print(f"error: {complaint}", file=sys.stderr)
        return ExitCode.USAGE
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")       # µs and × on a terminal that has no such letters
        module = importlib.import_module(f"scoring.verbs.{_module(options)}")
        result = int(module.run(options))
        sys.stdout.flush()           # here, where a failure can still be told
        return result
    except Terminated as error:
        print(error, file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:          # the reader of our output went away, e.g. `| head`
        _discard_output()
        return ExitCode.OK
    except OSError as error:         # a folder that is not there, a disk that is full, …
        _discard_output()
        if os.environ.get("WARPWAVE_DEBUG"):
            raise
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (reason := missing(error)):
            print(f"error: {reason}", file=sys.stderr)
            return ExitCode.UNAVAILABLE
        code = _user_error(error)
        if code is None:
            if os.environ.get("WARPWAVE_DEBUG"):
                raise
            print(f"internal error: {type(error).__name__}: {error}\n"
                  "  set WARPWAVE_DEBUG=1 for the traceback and please report it", file=sys.stderr)
            return ExitCode.INTERNAL
        print(f"error: {error}", file=sys.stderr)
        return code


def _module(options: argparse.Namespace) -> str:
    """The file of a verb: ``run`` on other machines has its own, and none can be called like a word of Python."""
    verb = str(options.verb)
    if verb == "run":
        verb = "elsewhere" if options.host else "on_cluster" if options.ray else verb
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def _stray(verb: str, others: Sequence[str]) -> str:
    """What is wrong with arguments that no flag takes, and by which flag what they name is selected."""
    told = f"{verb} takes no {' '.join(others)}"
    word = others[0]
    if word.startswith("-"):
        return told + ("; it goes before the verb" if word.startswith("--config") else "")
    if word.endswith(".py"):
        return f"{told}: a submission is given by --submission FILE" if verb == "run" else told
    named = "" if verb == "doctor" else ": a problem is selected by --problem NAME"
    return told + named + (", a kernel by --kernel PROBLEM/VARIANT" if verb in ("run", "build", "tune") else "")


def missing(error: ModuleNotFoundError) -> str:
    """What to do about a package that this Python does not have; "" for a module of our own."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "backends", "scoring", "submissions"):
        return ""
    return (f"{sys.executable} has no package {package!r}\n  `make setup` builds an environment with all of them; "
            "then it is .venv/bin/python instead")


def _count(text: str) -> int:
    """A number of things, at least one; raises what argparse turns into a usage error."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _sanitizers(text: str) -> tuple[str, ...]:
    """Names of compute-sanitizer's tools; raises what argparse turns into a usage error."""
    from backends.instruments import sanitizer

    try:
        return sanitizer.parse_tools(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _define(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` in its two parts; raises what argparse turns into a usage error."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and name.isascii() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _contradiction(options: argparse.Namespace) -> str:
    """What is wrong with flags of ``run`` that are right one by one; "" if nothing is."""
    if options.verb == "run" and options.resume and options.no_save:
        return "--resume goes on with what was kept, and --no-save keeps nothing"
    if options.verb == "run" and options.sanitize and (options.host or options.resume):
        return f"--sanitize goes without {'--host' if options.host else '--resume'}"
    if not options.submission:
        return "--task needs --submission FILE" if options.task else ""
    given = [flag for flag, value in (
        ("--kernel", options.kernel), ("--arch", options.arch), ("-D", options.define)) if value]
    return f"{', '.join(given)}: for kernels of the checkout, not for --submission" if given else ""


def _discard_output() -> None:
    """Where stdout takes nothing any more, let the interpreter's last flush go nowhere instead of failing, too."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _user_error(error: Exception) -> ExitCode | None:
    """The exit code of an error that a user can act on, None for a bug of ours."""
    from backends.errors import BackendError, ToolchainMissing
    from scoring.config.load import ConfigError
    from scoring.popcorn.cases import CaseError
    from scoring.popcorn.task import TaskError
    from scoring.problem import ProblemError
    from scoring.run.select import SelectionError
    from scoring.store.store import StoreError

    if isinstance(error, SelectionError):
        return ExitCode(error.code)
    if isinstance(error, ToolchainMissing):
        return ExitCode.UNAVAILABLE
    if isinstance(error, BackendError | ConfigError | ProblemError | StoreError | CaseError | TaskError):
        return ExitCode.USAGE
    return None


# SIGTERM and SIGHUP as a Ctrl-C with another exit code, so that temporary folders go and workers end with us.

class Terminated(KeyboardInterrupt):
    """Raised where the program is when a signal tells it to end; ``code`` is the exit code shells expect."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = 128 + number


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Inside, the first of these signals raises ``Terminated``; the second ends the process, as it does by default.

    A signal that is ignored (SIGHUP under nohup) stays so. Does nothing outside the main thread.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        before = {number: handler for number, handler in before.items() if handler == signal.SIG_DFL}
    for number in before:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)
