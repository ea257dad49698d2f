# SPDX-License-Identifier: MIT
"""``python -m submissions pack | lint | eval``. Exit codes: ``scoring.model.ExitCode``."""

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

from scoring.cli import Parser
from scoring.model import ExitCode
from scoring.signals import Terminated, ending

if TYPE_CHECKING:
    from backends.source import KernelSource

ROOT = Path(__file__).resolve().parents[1]


class UsageError(Exception):
    """The command line asks for something that is not there; the message says what is."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with ending():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:        # the reader, `head` say, has seen enough
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
    pack.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    pack.set_defaults(run=_pack)

    lint = commands.add_parser("lint", help="say what a server would refuse a file for",
                               description="Say what a server would refuse a file for. The file is read, never run.")
    lint.add_argument("file", type=Path, help="a submission.py")
    lint.add_argument("--leaderboard", metavar="NAME", help="as on popcorn-cli's command line")
    lint.add_argument("--gpu", nargs="+", default=[], metavar="LABEL", help="as on popcorn-cli's command line")
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
    """A time; raises what argparse turns into a usage error."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _pack(options: argparse.Namespace) -> int:
    from backends.base import BackendError
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
        default = ROOT / "submissions" / packed.leaderboard / "-".join(packed.gpus) / "submission.py"
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
    """The kernel file called ``name``: a path, or a name that fits one file (of the language the GPUs need)."""
    from backends.source import LANGUAGES, KernelSource, kernels
    from scoring import popcorn

    path = Path(name)
    if path.suffix in LANGUAGES.values() and path.is_file():
        return KernelSource.read(path, root)
    files = {f"{file.parent.parent.name}/{file.parent.name}/{file.stem}": file for file in kernels(root)}
    wanted = name.removesuffix(path.suffix) if path.suffix in LANGUAGES.values() else name
    fits = {known: file for known, file in files.items() if known == wanted or known.partition("/")[2] == wanted}
    backends = {popcorn.GPUS[gpu].backend for gpu in gpus if gpu in popcorn.GPUS}
    if len(fits) > 1 and backends:
        from submissions.pack import backend_of

        fits = {known: file for known, file in fits.items()
                if backend_of(known.partition("/")[0]).name in backends}
    if len(fits) == 1:
        return KernelSource.read(next(iter(fits.values())), root)
    if fits:
        raise UsageError(f"{name} is {' and '.join(fits)}; say which, or name the GPU")
    close = difflib.get_close_matches(wanted, [*files, *(known.partition("/")[2] for known in files)], 3)
    there = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(files) or 'none'}"
    raise UsageError(f"no kernel {name!r}; {there}")


def _boards() -> dict[str, Sequence[str]]:
    """GPUs by leaderboard: the public ones, and those that the competitions of the settings name."""
    from scoring import config, popcorn

    try:
        competitions = config.load().settings.competitions
    except config.ConfigError as error:
        raise UsageError(str(error)) from error
    return {**popcorn.LEADERBOARDS, **{entry.leaderboard: entry.gpus for entry in competitions if entry.gpus}}


def _lint(options: argparse.Namespace) -> int:
    from submissions import lint

    if not options.file.is_file():
        raise UsageError(f"{options.file} is not a file")
    findings = lint.lint(
        options.file.read_bytes(), str(options.file), options.leaderboard, options.gpu, _boards())
    if options.json:
        print(lint.to_json(findings))
    else:
        for finding in findings:
            print(finding)
        if not findings:
            print(f"{options.file}: nothing found")
    return lint.exit_code(findings)


def _eval(options: argparse.Namespace) -> int:
    from scoring import popcorn
    from submissions import stage

    folder: Path = options.problem
    if not (folder / "task.yml").is_file() and (ROOT / "problems" / folder / "task.yml").is_file():
        folder = ROOT / "problems" / folder
    if not (folder / "task.yml").is_file() and folder.suffix != ".yml":
        raise UsageError(f"no problem {str(folder)!r}: that is neither a folder with a task.yml in it nor one of "
                         f"{', '.join(sorted(path.parent.name for path in (ROOT / 'problems').glob('*/task.yml')))}")
    if not options.submission.is_file():
        raise UsageError(f"{options.submission} is not a file")
    if wrong := popcorn.not_text(options.submission.read_bytes()):
        raise UsageError(f"{options.submission}:{wrong[0]}: {wrong[1]}")
    try:
        outcomes = stage.evaluate(folder, options.submission, options.mode, options.seed, options.timeout, options.ours)
        ranking = popcorn.load_task(folder).ranking_by
    except (stage.StageError, popcorn.TaskError) as error:
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
