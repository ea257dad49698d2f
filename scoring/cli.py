# SPDX-License-Identifier: MIT
"""The command line: verbs, flags, exit codes. Standard library only until a verb is chosen, so that help is instant.

Exit codes (``scoring.model.ExitCode``): 0 everything selected passed · 1 something failed · 2 usage or configuration ·
3 internal error · 4 requested backend or device not here · 5 nothing matched · 130 interrupted ·
143 terminated · 129 hung up.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from scoring.model import ExitCode, Mode
from scoring.signals import Terminated, ending

_SELECTION = ("backend", "problem", "kernel", "gpu")
_JSON = {"run": "one JSON document per record", "build": "one JSON document per record",
         "tune": "one JSON document per kernel and target", "audit": "one JSON document per answer and case",
         "leaderboard": "one JSON document per row"}
_ENDED = "Ctrl-C or SIGTERM: what is judged by then is shown and kept, marked INCOMPLETE (exit code 130 or 143)."
_CODES = ("Exit codes: 0 everything passed, 1 something failed, 2 usage or configuration, 3 internal, "
          "4 not available here, 5 nothing matched.")


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is what went wrong and where all flags are told, not a screen of them."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"error: {message}\n  {self.prog} --help shows what there is\n")


def parser() -> argparse.ArgumentParser:
    """All verbs and flags."""
    top = Parser(
        prog="python -m scoring", description="Score CUDA, HIP and CPU kernels: check, then time, in one table."
    )
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
    tune = verb("tune", "check and time every value of kernels' tunables, case by case", *_SELECTION)
    run.epilog = f"{_ENDED} {_CODES}"
    run.add_argument("--mode", choices=[mode.value for mode in Mode], help="default: benchmark")
    run.add_argument("--peers", action="store_true", default=None, help="time vendors' libraries in the same rounds")
    run.add_argument("--submission", metavar="FILE", help="score a Python file with custom_kernel(data) instead")
    run.add_argument("--task", metavar="DIR", help="a GPU MODE problem folder to score --submission on")
    run.add_argument("--junit", metavar="PATH", help="also write JUnit XML")
    run.add_argument("--no-save", action="store_true", help="do not keep the records")
    run.add_argument("--resume", action="store_true",
                     help="go on with what a run that was ended early has kept: what passed there is not judged again")
    run.add_argument("--checks", metavar="LIST",
                     help="what an emulated device looks for: all (default in test mode), none, or names (bounds, …)")
    tune.add_argument("--vary", action="append", metavar="NAME",
                      help="vary this tunable alone, or these; the others keep their defaults (default: all vary)")
    tune.add_argument("--markdown", action="store_true", help="as GitHub tables, to be kept in a file")
    for sub in (run, tune):
        sub.add_argument("--case", action="append", metavar="GLOB",
                         help="only cases whose name matches, e.g. 'm=64,*'; repeatable")
        sub.add_argument("--seed", type=int,
                         help="base of all seeds, to repeat a run or a case (not in leaderboard mode)")
        sub.add_argument("--seconds", type=float, metavar="S", help="time to spend on one timed case")
        sub.add_argument("--isolation", choices=["auto", "bubblewrap", "landlock", "process"],
                         help="what the code under test runs in (default: the strongest this machine can give)")
    for sub in (doctor, run, tune):
        sub.add_argument("--emulate", action=argparse.BooleanOptionalAction,
                         help="run HIP kernels on the emulated MI300X, or never (default: where no real one is found)")
    audit = verb("audit", "prove that wrong answers are refused, case by case", "problem")
    audit.add_argument("--case", action="append", metavar="GLOB", help="only cases whose name matches; repeatable")
    audit.add_argument("--device", metavar="DEVICE", help="torch device to compute on (default: cuda if there is one)")
    board = verb("leaderboard", "best scores kept so far", "problem")
    board.add_argument("--gpu", metavar="GPU", help="only this GPU label")
    board.add_argument("--markdown", action="store_true", help="as a GitHub table")
    report = verb("report", "one self-contained HTML page of everything kept", "problem")
    report.add_argument("--output", metavar="FILE", help="default: paths.report of the settings")
    report.add_argument("--limit", type=_count, default=500, metavar="N", help="newest records to show (default: 500)")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; user errors become one message on stderr, never a traceback."""
    if not (sys.argv[1:] if arguments is None else arguments):
        parser().print_help(sys.stderr)
        return ExitCode.USAGE
    options, others = parser().parse_known_args(arguments)
    if others:
        print(f"error: {_stray(options.verb, others)}\n  python -m scoring {options.verb} --help shows what there is",
              file=sys.stderr)
        return ExitCode.USAGE
    with ending():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.verb == "run" and (complaint := _contradiction(options)):
        print(f"error: {complaint}", file=sys.stderr)
        return ExitCode.USAGE
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")       # µs and × on a terminal that has no such letters
        module = importlib.import_module(f"scoring.verbs.{options.verb}")
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


def _define(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` in its two parts; raises what argparse turns into a usage error."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and name.isascii() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _contradiction(options: argparse.Namespace) -> str:
    """What is wrong with flags of ``run`` that are right one by one; "" if nothing is."""
    if options.resume and options.no_save:
        return "--resume goes on with what was kept, and --no-save keeps nothing"
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
    from backends.base import BackendError, ToolchainMissing
    from scoring.config import ConfigError
    from scoring.popcorn import CaseError, TaskError
    from scoring.problem import ProblemError
    from scoring.selection import SelectionError
    from scoring.store import StoreError

    if isinstance(error, SelectionError):
        return ExitCode(error.code)
    if isinstance(error, ToolchainMissing):
        return ExitCode.UNAVAILABLE
    if isinstance(error, BackendError | ConfigError | ProblemError | StoreError | CaseError | TaskError):
        return ExitCode.USAGE
    return None
