# SPDX-License-Identifier: MIT
"""Packs a kernel of the tree into one ``submission.py`` that needs only torch. Deterministic.

The kernel file is included unchanged, with its headers inlined (``submissions.inline``). The lines of the problem's
``binding.py`` build the arguments (``submissions.embed``). So a leaderboard runs what was scored here.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import backends
from scoring.popcorn.directives import BANNED, MAX_SUBMISSION_BYTES
from submissions import embed, glue, inline, template

if TYPE_CHECKING:
    from backends.base import Backend
    from backends.source import KernelSource, Signature


class PackError(Exception):
    """The kernel cannot be packed this way; the message says why and what to do."""


@dataclass(frozen=True)
class Packed:
    """A packed file: its ``text`` and its targets."""

    text: str
    leaderboard: str
    gpus: tuple[str, ...]
    arches: tuple[str, ...]


def pack(
    kernel: KernelSource, gpus: Sequence[str] = (), leaderboard: str | None = None,
    defines: Mapping[str, str | int] | None = None,
) -> Packed:
    """One submission file for ``kernel``.

    ``gpus``: leaderboard labels (default: the best GPU the kernel supports); ``leaderboard`` (default: the problem's
    name with dashes); ``defines`` override tunables. Raises ``PackError``; ``SourceError`` for a broken kernel file.
    """
    labels = tuple(gpus) or (default_gpu(kernel),)
    arches = tuple(dict.fromkeys(_arch(kernel, label) for label in labels))
    board = leaderboard or kernel.problem.replace("_", "-")
    if not re.fullmatch(r"[\w.-]+", board, re.ASCII):
        raise PackError(f"{board!r} is no leaderboard name: letters, digits, '_', '-' and '.' only")
    signature = kernel.signature()
    if unknown := sorted(set(defines or ()) - set(kernel.tunables) - set(kernel.defines)):
        known = ", ".join([*kernel.tunables, *kernel.defines]) or "none"
        raise PackError(f"{kernel.name}: {', '.join(unknown)} is no tunable and no define of it; there are: {known}")
    source = pack_source(kernel, defines)
    code = _glue(kernel, signature)
    backend = backends.of_language(kernel.language)
    flags = device_flags(backend, arches, kernel)
    host_flags = backend.flags_of(kernel, arches[0]) if backend.on_host else ()
    identity = hashlib.sha256("\n".join([source, *flags]).encode()).hexdigest()[:12]
    values = {
        "LEADERBOARD": board, "GPUS": " ".join(labels),
        "KERNEL": f"{kernel.language}/{kernel.problem}/{kernel.variant}", "SUMMARY": _comment(kernel.summary),
        "QUOTE": _quote(source, kernel), "SOURCE": source, "PROBLEM": kernel.problem, "ARCHES": ";".join(arches),
        "MODULE": re.sub(r"\W", "_", f"warpwave_{kernel.problem}_{kernel.variant}_{identity}", flags=re.ASCII),
        "DEVICE_FLAGS": _list(flags), "HOST_FLAGS": _list(host_flags),
        "VALUES": _wrap(code.values), "ARGTYPES": _wrap(code.argtypes), "TENSOR": code.tensor,
        "RESULT": code.result,
    }
    text = template.render(values, backend.packing, backend.on_host, code.text)
    _refuse_banned(text, kernel)
    size = len(text.encode())
    if size > MAX_SUBMISSION_BYTES:
        raise PackError(f"{kernel.name}: {size} bytes packed, {MAX_SUBMISSION_BYTES} are allowed; include less")
    return Packed(text, board, labels, arches)


def pack_source(kernel: KernelSource, defines: Mapping[str, str | int] | None = None) -> str:
    """The kernel as one self-contained translation unit: defines and tunables first, headers inlined, packed launches.

    Compile it with ``device_flags`` (or as plain C++ for the CPU) and no include folder of the project.
    Raises ``PackError`` and ``SourceError``.
    """
    packing = backends.of_language(kernel.language).packing
    known = {"WARPWAVE_PACKED": True, "__cplusplus": True, **packing.macros}
    folders = [folder for folder in kernel.include_dirs if folder.is_dir()]
    try:
        lines = inline.inline(kernel.path, folders, known, kernel.root)
    except (inline.InlineError, UnicodeDecodeError, OSError) as error:
        raise PackError(str(error)) from error
    for line in lines:
        if BANNED in line.text.lower():
            raise PackError(f"{line.path}:{line.number}: the letters {BANNED!r}, which leaderboards refuse "
                            "even in a comment; launch through launch.h and say queue")
    macros = [f"#define {name} {value}".rstrip() for name, value in kernel.resolve(defines).items()]
    head = [packing.first_line] if packing.first_line else []
    return "\n".join([*head, "#define WARPWAVE_PACKED 1", *macros, "", *(line.text for line in lines)]) + "\n"


def device_flags(backend: Backend, arches: Sequence[str], kernel: KernelSource | None = None) -> tuple[str, ...]:
    """Flags for the device compiler of ``backend``, those of the tree's own builds and those that ``kernel`` asks
    for; empty for host code.

    If any flag contains "arch", torch adds no architecture of its own, so these flags are complete.
    """
    if backend.on_host:
        return ()
    each = [flag for arch in arches
            for flag in (backend.flags_of(kernel, arch) if kernel else backend.portable_flags(arch))]
    return (*dict.fromkeys(flag for flag in each if "arch" not in flag), *backend.packing.flags,
            *dict.fromkeys(flag for flag in each if "arch" in flag))


def default_gpu(kernel: KernelSource) -> str:
    """The label of the best GPU a kernel supports.

    Raises ``PackError`` if no leaderboard has one.
    """
    backend, known = backends.of_language(kernel.language), backends.labels()
    for label in backend.default_gpus():
        if backend.on_host or (label in known and known[label].arches[0] in kernel.arches):
            return label
    raise PackError(f"{kernel.name}: no leaderboard GPU for {' '.join(kernel.arches)}; name one with --gpu")


def _glue(kernel: KernelSource, signature: Signature) -> glue.Glue:
    path = kernel.header.with_name("binding.py")
    shown = path.relative_to(path.parents[2])
    try:
        return glue.glue(path, signature, shown)
    except embed.EmbedError as error:
        raise PackError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{shown}: cannot be read: {error}") from error


def _arch(kernel: KernelSource, label: str) -> str:
    gpus = backends.labels()
    gpu = gpus.get(label)
    if gpu is None:
        close = [known for known in gpus if known.lower() == label.lower()]
        raise PackError(f"unknown GPU label {label!r}" + (f"; did you mean {close[0]}?" if close else
                                                          f"; there are: {', '.join(gpus)}"))
    backend = backends.of_language(kernel.language)
    if gpu.backend != backend.name:
        raise PackError(f"{kernel.name} is a {kernel.language} kernel and cannot run on {label}")
    if backend.on_host:
        return gpu.arches[0]
    known = {target.arch for target in backend.targets()}
    usable = [arch for arch in gpu.arches if arch in kernel.arches and arch in known]
    if not usable:
        raise PackError(f"{kernel.name} supports {' '.join(kernel.arches)}; {label} runs {' '.join(gpu.arches)}")
    return usable[0]


def _refuse_banned(text: str, kernel: KernelSource) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if BANNED in line.lower():
            raise PackError(f"{kernel.name}: line {number} of the packed file has the letters {BANNED!r}, "
                            f"which leaderboards refuse: {line.strip()}")


def _quote(source: str, kernel: KernelSource) -> str:
    """Quotes of a raw string around ``source``, with the prefix: C++ text keeps its backslashes."""
    for quote in ("'''", '"""'):
        if quote not in source and not source.endswith(("\\", quote[0])):
            return quote
    raise PackError(f"{kernel.name}: the source holds both kinds of triple quotes, so no raw string can hold it")


def _list(values: Sequence[str]) -> str:
    text = ", ".join(f'"{value}"' for value in values)
    return f"[\n{_wrap(text, 4)}\n]" if len(text) > 90 else f"[{text}]"


def _wrap(text: str, indent: int = 8) -> str:
    """Comma-separated ``text`` in lines of a readable length."""
    return textwrap.fill(f"{text},", 110, initial_indent=" " * indent, subsequent_indent=" " * indent,
                         break_long_words=False, break_on_hyphens=False)


def _comment(text: str) -> str:
    return " ".join(text.split()) or "(no summary)"
