# SPDX-License-Identifier: MIT
"""``inspect``: what was compiled, from a kernel, a source, a cubin, a code object or a library. Needs no GPU."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import backends
from backends.errors import CompileError
from backends.machine import difference, document, stages
from backends.machine.model import Function
from scoring.config.load import load_config
from scoring.output import html, inspection, inspection_html
from scoring.output.table import Style, use_color, width_of
from scoring.record import ExitCode
from scoring.run import inspected
from scoring.run.select import SelectionError


def run(options: argparse.Namespace) -> int:
    settings = load_config({}, options.config)
    backends.use_cache(settings.cache)
    wanted = _pattern(options.function)
    names = [*options.file, *(options.kernel or [])]
    if not names:
        raise SelectionError("what is to be inspected? --kernel PROBLEM/VARIANT, or a file", ExitCode.USAGE)
    defines = dict(options.define or [])
    subjects = inspected.subjects(settings, names, options.gpu, defines)
    others = inspected.subjects(settings, [options.diff], options.gpu, defines) if options.diff else []
    if ((options.diff or options.html) and len(subjects) != 1) or len(others) > 1:
        raise SelectionError("--diff and --html take one kernel or file on each side", ExitCode.USAGE)
    if options.raw and (options.diff or options.html or options.stage not in (None, "asm")):
        raise SelectionError("--raw prints machine code alone: leave --diff, --html and --stage out", ExitCode.USAGE)
    try:
        for subject in subjects:
            _show(subject, others, wanted, options)
    except CompileError as error:
        print(error.log, file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.OK


def _show(
    subject: inspected.Subject, others: list[inspected.Subject], wanted: re.Pattern[str] | None,
    options: argparse.Namespace,
) -> None:
    style = Style(color=use_color(sys.stdout), width=width_of(sys.stdout))
    if options.html:
        _page(subject, others, wanted, options)
        return
    if options.stage in ("ir", "ptx"):
        texts = {title: stages.chosen(text, wanted) for title, text in subject.texts(options.stage).items()}
        print(json.dumps({"schema": document.SCHEMA, "origin": subject.title, "stage": options.stage, "texts": texts})
              if options.json else "\n".join(f"{style.heading(title)}\n{text}" for title, text in texts.items()))
        return
    image = subject.image(wanted)
    if options.raw:
        texts = {function.mangled: function.raw or _plain(function) for function in image.functions}
        print(json.dumps({"schema": document.SCHEMA, "origin": subject.title, "stage": "raw", "texts": texts})
              if options.json else "\n".join(f"{name}:\n{text}" for name, text in texts.items()))
        return
    if others:
        compared = difference.document(image, others[0].image(wanted))
        print(json.dumps(compared) if options.json else inspection.difference(compared, style))
        return
    found = document.document(image, wanted is None, code=options.stage == "asm", dynamic_shared=options.shared)
    if options.json:
        print(json.dumps(found))
    elif options.stage == "asm":
        print(inspection.listing(found, style))
    else:
        print(inspection.report(found, subject.title, style, wanted is not None), end="\n\n")


def _plain(function: Function) -> str:
    """As the emulator's disassembler writes it: addresses and instructions."""
    return "\n".join(f"\t{each.text:<60} // {each.address:08X}" for each in function.code)


def _page(
    subject: inspected.Subject, others: list[inspected.Subject], wanted: re.Pattern[str] | None,
    options: argparse.Namespace,
) -> None:
    image = subject.image(wanted)
    found = document.document(image, wanted is None, code=True, dynamic_shared=options.shared)
    if reason := inspection_html.excess(found):
        raise SelectionError(f"--html: {reason}", ExitCode.USAGE)
    texts = {}
    if options.stage in ("ir", "ptx"):
        texts = {title: stages.lines(stages.chosen(text, wanted), text)
                 for title, text in subject.texts(options.stage).items()}
    compared = difference.document(image, others[0].image(wanted)) if others else None
    path = Path(options.html)
    html.save(path, inspection_html.page(found, subject.title, subject.read, texts, compared))
    print(json.dumps({"page": str(path)}) if options.json else f"{path}: {path.stat().st_size} bytes")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise SelectionError(f"--function {text}: no regular expression: {error}", ExitCode.USAGE) from error


