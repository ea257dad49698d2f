# SPDX-License-Identifier: MIT
"""``python -m submissions pack | lint | eval``. Exit codes: ``scoring.record.ExitCode``."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from backends._home import HOME, INSTALLED
from scoring.cli import Parser, Terminated, ending
from scoring.record import ExitCode

if TYPE_CHECKING:
    from backends.source import KernelSource



class UsageError(Exception):
    """The command line names something that does not exist; the message says what does."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with ending():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:        # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (UsageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except ModuleNotFoundError as error:
        from scoring.cli import missing

        if not (reason := missing(error)):
            raise
        print(f"error: {reason}", file=sys.stderr)
        return ExitCode.UNAVAILABLE
    except Terminated as error:
        return error.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m submissions", description="Pack a kernel for a leaderboard, lint a submission, run one.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    pack = commands.add_parser("pack", help="write one submission.py from a kernel of the tree",
                               description="Write one submission.py from a kernel of the tree.")
    pack.add_argument("kernel", help="a kernel file, or its name: problem/variant or language/problem/variant")
    pack.add_argument("--leaderboard", metavar="NAME", help="default: the problem's name with dashes")
    pack.add_argument("--gpu", nargs="+", default=[], metavar="LABEL", help="default: the best GPU the kernel supports")
    pack.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE", help="a tunable's value")
    pack.add_argument("-o", "--output", metavar="FILE",
                      help="default: submissions/<leaderboard>/<gpu>/submission.py; - is standard output")
    pack.add_argument("--root", type=Path, default=HOME, help=argparse.SUPPRESS)
    pack.set_defaults(run=_pack)

    lint = commands.add_parser("lint", help="say what a server would refuse a file for",
                               description="Say what a server would refuse a file for. The file is read, never run.")
    lint.add_argument("file", type=Path, help="a submission.py")
    lint.add_argument("--leaderboard", metavar="NAME", help="as on popcorn-cli's command line")
    lint.add_argument("--gpu", nargs="+", default=[], metavar="LABEL", help="as on popcorn-cli's command line")
    lint.add_argument("--task", type=Path, metavar="FOLDER", help="the problem folder: which functions it calls")
    lint.add_argument("--json", action="store_true", help="a JSON list instead of lines")
    lint.set_defaults(run=_lint)

    evaluate = commands.add_parser("eval", help="run a submission as GPU MODE's runner would",
                                   description="Run a submission as GPU MODE's runner would, on this machine.")
    evaluate.add_argument("problem", type=Path, help="a folder with task.yml, or its name below problems/")
    evaluate.add_argument("submission", type=Path, help="a submission.py for a device that is here")
    evaluate.add_argument("--mode", choices=("test", "benchmark", "leaderboard", "profile"), default="test",
                          help="leaderboard runs test and benchmark first (default: test)")
    evaluate.add_argument("--seed", type=int, help="the secret seed (POPCORN_SEED)")
    evaluate.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="per run; default: the task's")
    evaluate.add_argument("--ours", action="store_true", help="use our evaluator even if the task brings one")
    evaluate.add_argument("--json", action="store_true", help="one JSON object per run instead of lines")
    evaluate.set_defaults(run=_eval)
    return parser


def _seconds(text: str) -> float:
    """A time limit in seconds; raises what argparse turns into a usage error."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _pack(options: argparse.Namespace) -> int:
    from backends.errors import BackendError
    from backends.source import parse_define
    from submissions import lint, pack

    root: Path = options.root.resolve()
    try:
        defines = dict(map(parse_define, options.define))
        kernel = _kernel(options.kernel, root, options.gpu)
        packed = pack.pack(kernel, options.gpu, options.leaderboard, defines)
    except (pack.PackError, BackendError) as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.USAGE
    if options.output == "-":
        sys.stdout.write(packed.text)
        path = Path("submission.py")
    else:
        folder = Path.cwd() if INSTALLED else HOME
        default = folder / "submissions" / packed.leaderboard / "-".join(packed.gpus) / "submission.py"
        path = Path(options.output) if options.output else default
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(packed.text, encoding="utf-8")
    name = path.name if path.suffix == ".py" else "submission.py"
    findings = lint.lint(packed.text.encode(), name, boards=_boards())
    for finding in findings:
        print(finding, file=sys.stderr)
    if options.output != "-":
        print(f"{path}: {len(packed.text.encode())} bytes for {packed.leaderboard} on {' '.join(packed.gpus)}")
    return lint.exit_code(findings)


def _kernel(name: str, root: Path, gpus: Sequence[str]) -> KernelSource:
    """The kernel file ``name``: a path, or a name that matches one file (of the language that the GPUs need)."""
    import backends
    from backends.source import KernelSource, kernels

    path = Path(name)
    suffixes, known_gpus = backends.suffixes().values(), backends.labels()
    if path.suffix in suffixes and path.is_file():
        return KernelSource.read(path, _root_of(path, root))
    files = {f"{file.parent.parent.name}/{file.parent.name}/{file.stem}": file for file in kernels(root)}
    wanted = name.removesuffix(path.suffix) if path.suffix in suffixes else name
    fits = {known: file for known, file in files.items() if known == wanted or known.partition("/")[2] == wanted}
    owners = {known_gpus[gpu].backend for gpu in gpus if gpu in known_gpus}
    if len(fits) > 1 and owners:
        fits = {known: file for known, file in fits.items()
                if backends.of_language(known.partition("/")[0]).name in owners}
    if len(fits) == 1:
        return KernelSource.read(next(iter(fits.values())), root)
    if fits:
        raise UsageError(f"{name} is {' and '.join(fits)}; say which, or name the GPU")
    close = difflib.get_close_matches(wanted, [*files, *(known.partition("/")[2] for known in files)], 3)
    there = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(files) or 'none'}"
    raise UsageError(f"no kernel {name!r}; {there}")


def _root_of(path: Path, root: Path) -> Path:
    """The folder above the ``kernels`` that a kernel file lies in, if that has problems of its own; else ``root``."""
    homes = (folder.parent for folder in path.absolute().parents if folder.name == "kernels")
    return next((home for home in homes if (home / "problems").is_dir()), root)


def _boards() -> dict[str, Sequence[str]]:
    """GPUs by leaderboard: of the public ones, and of the competitions in the settings."""
    from scoring.config.load import ConfigError, load_config
    from scoring.popcorn.labels import LEADERBOARDS

    try:
        competitions = load_config().settings.competitions
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return {**LEADERBOARDS, **{entry.leaderboard: entry.gpus for entry in competitions if entry.gpus}}


def _lint(options: argparse.Namespace) -> int:
    from submissions import lint

    if not options.file.is_file():
        raise UsageError(f"{options.file} is not a file")
    functions = _functions(_folder(options.task)) if options.task is not None else ()
    findings = lint.lint(
        options.file.read_bytes(), str(options.file), options.leaderboard, options.gpu, _boards(), functions)
    if options.json:
        print(lint.to_json(findings))
    else:
        for finding in findings:
            print(finding)
        if not findings:
            print(f"{options.file}: nothing found")
    return lint.exit_code(findings)


def _folder(folder: Path) -> Path:
    """A folder with a task.yml, given as such or as the name of one below problems/. Raises ``UsageError``."""
    if not (folder / "task.yml").is_file() and (HOME / "problems" / folder / "task.yml").is_file():
        folder = HOME / "problems" / folder
    if not (folder / "task.yml").is_file() and folder.suffix != ".yml":
        raise UsageError(f"no problem {str(folder)!r}: that is neither a folder with a task.yml in it nor one of "
                         f"{', '.join(sorted(path.parent.name for path in (HOME / 'problems').glob('*/task.yml')))}")
    return folder


def _functions(folder: Path) -> tuple[str, ...]:
    """What a task calls in a submission. Raises ``UsageError`` for a folder that cannot be read."""
    from scoring.entry_points import names_of
    from scoring.popcorn.task import TaskError, load_task

    try:
        task = load_task(folder)
        sources = {file.name: task.path.parent / file.source for file in task.files}
        reference = sources.get("reference.py", task.path.parent / "reference.py")
        evaluator = sources.get(task.main)
        text = evaluator.read_text(encoding="utf-8") if evaluator is not None and evaluator.is_file() else ""
        return names_of(reference.read_text(encoding="utf-8"), text)
    except (TaskError, SyntaxError, ValueError) as error:
        raise UsageError(f"{folder}: {error}") from error


def _eval(options: argparse.Namespace) -> int:
    from scoring.popcorn.directives import not_text
    from scoring.popcorn.task import TaskError, load_task
    from submissions import stage

    folder = _folder(options.problem)
    if not options.submission.is_file():
        raise UsageError(f"{options.submission} is not a file")
    if wrong := not_text(options.submission.read_bytes()):
        raise UsageError(f"{options.submission}:{wrong[0]}: {wrong[1]}")
    try:
        outcomes = stage.evaluate(folder, options.submission, options.mode, options.seed, options.timeout, options.ours)
        ranking = load_task(folder).ranking_by
    except (stage.StageError, TaskError) as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.USAGE
    for outcome in outcomes:
        if options.json:
            print(json.dumps(asdict(outcome) | {"passed": outcome.passed}, default=str))
        else:
            print("\n".join(stage.describe(outcome)))
    last = outcomes[-1]
    seconds = last.report.score(ranking) if last.mode == "leaderboard" else None
    if seconds is not None and not options.json:
        print(f"score: {seconds * 1e6:.2f} µs ({ranking})")
    return last.exit_code


if __name__ == "__main__":
    sys.exit(main())
