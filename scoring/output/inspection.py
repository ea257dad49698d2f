# SPDX-License-Identifier: MIT
"""What ``inspect`` found, as text: functions with their resources, mixes, loops, warnings; listings; differences.

Everything is drawn from the documents of ``backends.machine``. Names of functions and files are untrusted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scoring.output import units
from scoring.output.table import Column, Style, draw, shorten
from scoring.output.text import one_line

MOST_DETAILED = 6      # functions; more are a table, and --function shows details
_DIFF_LINES = 80       # of one function; --json has all
_LOOPS = 8             # of one function


def report(document: Mapping[str, Any], title: str, style: Style, narrowed: bool) -> str:
    """The default output: details of few functions, a table of many; warnings behind them.

    ``narrowed`` says that the functions were chosen, so that each is shown in full.
    """
    functions = document["functions"]
    size = sum(function["bytes"] for function in functions)
    head = f"{style.heading(one_line(title))}\n{units.plural(len(functions), 'function')}, "
    head += f"{units.size(size)} of machine code"
    if document["compiler"]:
        head += f", {one_line(document['compiler'].partition(';')[0])}"
    if len(functions) > MOST_DETAILED and not narrowed:
        blocks = [table(functions, style), "--function REGEX shows the loops of the functions that match"]
    else:
        blocks = ["\n".join(details(function, style)) for function in functions]
    return "\n\n".join([head, *blocks, *filter(None, [warnings(document, style)])])


def table(functions: Sequence[Mapping[str, Any]], style: Style) -> str:
    """One row for each function."""
    resources = [function["resources"] for function in functions]
    return draw([
        Column("function", [shorten(one_line(function["name"]), 60) for function in functions], right=False),
        Column("bytes", [f"{function['bytes']}" for function in functions]),
        Column("registers", [_registers(each) for each in resources]),
        Column("shared", [_shared(each) for each in resources], optional=1),
        Column("occupancy", [_occupancy(function) for function in functions]),
        Column("local", [_local(each) for each in resources]),
        *(Column(unit, [_count(function, unit) for function in functions], optional=2)
          for unit in ("tensor", "special", "tma", "buffer", "barrier")),
    ], style)


def details(function: Mapping[str, Any], style: Style) -> Iterator[str]:
    """A function's lines: place, resources, mix, then its loops, those with products first."""
    yield style.paint("strong", one_line(function["name"])) + _where(function["source"], "   ")
    yield f"  {', '.join(facts(function))}"
    yield from _wrapped("mix", _mix(function["mix"]), style)
    if function["local_memory"]:
        told = ", ".join(f"{one_line(each['place'])} ({each['count']})" for each in function["local_memory"][:_LOOPS])
        yield from _wrapped("local memory", told, style)
    loops = sorted(function["loops"], key=lambda loop: (-loop["mix"].get("tensor", 0), -loop["instructions"]))
    for loop in loops[:_LOOPS]:
        yield (f"  loop {loop['start']:#x}–{loop['end']:#x}, {loop['instructions']} instructions"
               + _where(loop["source"], ", "))
        yield from _wrapped("  mix", _mix(loop["mix"]), style)
        if loop["overlap"]:
            yield from _wrapped("  order", loop["overlap"]["line"], style)
            yield from _wrapped("  overlap", loop["overlap"]["summary"], style)
    if len(loops) > _LOOPS:
        yield f"  and {units.plural(len(loops) - _LOOPS, 'smaller loop')}: --json has all"


def warnings(document: Mapping[str, Any], style: Style) -> str:
    """A line for each warning; equal ones of several functions are told once."""
    seen: dict[str, list[str]] = {}
    for each in document["warnings"]:
        seen.setdefault(one_line(each["text"]), []).append(one_line(each["function"]))
    lines = []
    for text, names in seen.items():
        where = ", ".join(shorten(name, 60) for name in names[:3] if name)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(style.paint("warn", "warning: ") + text + (f" (in {where}{more})" if where else ""))
    return "\n".join(lines)


def listing(document: Mapping[str, Any], style: Style) -> str:
    """Machine code of every function, each run of instructions under the source lines it came from."""
    return "\n".join(line for function in document["functions"] for line in _listed(function, style))


def _listed(function: Mapping[str, Any], style: Style) -> Iterator[str]:
    yield style.paint("strong", f"{one_line(function['name'])}:")
    before = None
    for each in function["code"]:
        if each["places"] != before and each["places"]:
            yield "  ; " + one_line(" < ".join(f"{file}:{line}" for file, line in each["places"]))
        before = each["places"]
        yield f"  {each['address']:05x}  {each['unit']:<10}  {one_line(each['text'])}"
    yield ""


def difference(document: Mapping[str, Any], style: Style) -> str:
    """Two builds: mixes side by side and a diff of normalised text, of the functions that changed."""
    blocks = [style.heading(f"{one_line(document['old'])} → {one_line(document['new'])}")]
    same = 0
    for pair in document["functions"]:
        if not pair["diff"] and numbers(pair["old"]) == numbers(pair["new"]):
            same += 1
            continue
        blocks.append("\n".join(_changed(pair, style)))
    for key, what in (("only_old", "only in the first"), ("only_new", "only in the second")):
        if document[key]:
            blocks.append(f"{what}: {', '.join(map(one_line, document[key]))}")
    if same:
        blocks.append(f"{units.plural(same, 'function')} the same")
    return "\n\n".join(blocks)


def _changed(pair: Mapping[str, Any], style: Style) -> Iterator[str]:
    old, new = pair["old"], pair["new"]
    names = [one_line(old["name"]), one_line(new["name"])]
    yield style.paint("strong", " → ".join(dict.fromkeys(names)))
    keys = list(dict.fromkeys([*numbers(old), *numbers(new)]))
    rows = [(key, numbers(old).get(key, ""), numbers(new).get(key, "")) for key in keys]
    rows = [row for row in rows if row[1] != row[2]]
    if rows:
        yield draw([Column("", [row[0] for row in rows], right=False), Column("first", [row[1] for row in rows]),
                    Column("second", [row[2] for row in rows])], style)
    lines = [line[:1] + one_line(line[1:]) for line in pair["diff"]]
    yield from (style.paint({"+": "good", "-": "bad"}.get(line[:1], ""), line) for line in lines[:_DIFF_LINES])
    if len(lines) > _DIFF_LINES:
        yield f"… {len(lines) - _DIFF_LINES} more lines: --json has all"


def numbers(function: Mapping[str, Any]) -> dict[str, str]:
    """What can be compared of a function, as cells."""
    resources = function["resources"]
    return {"instructions": f"{function['instructions']}", "registers": _registers(resources),
            "shared": _shared(resources), "local": _local(resources), "occupancy": _occupancy(function),
            **{unit: f"{count}" for unit, count in function["mix"].items()}}


def facts(function: Mapping[str, Any]) -> Iterator[str]:
    """Size and resources of a function, in words."""
    resources = function["resources"]
    yield f"{function['bytes']} bytes, {function['instructions']} instructions"
    if text := _registers(resources):
        yield f"{text} registers"
    yield f"{_shared(resources)} shared"
    if resources["threads"]:
        yield f"up to {resources['threads']} threads"
    if text := _occupancy(function):
        yield f"occupancy {text}"
    if resources["spill_bytes"]:
        yield f"{resources['spill_bytes']} B spilled"
    if resources["scratch_bytes"]:
        yield f"{resources['scratch_bytes']} B of local memory per thread"
    if not resources["spill_bytes"] and not resources["scratch_bytes"]:
        yield "no spills"


def _registers(resources: Mapping[str, Any]) -> str:
    if resources["registers"] is None:
        return ""
    agprs = f" ({resources['agprs']} accumulation)" if resources["agprs"] else ""
    return f"{resources['registers']}{agprs}"


def _shared(resources: Mapping[str, Any]) -> str:
    dynamic = resources["dynamic_shared"]
    static = units.size(resources["static_shared"])
    return f"{static} + dynamic" if dynamic is None else f"{static} + {units.size(dynamic)}" if dynamic else static


def _occupancy(function: Mapping[str, Any]) -> str:
    bound = "≤ " if function["occupancy_is_bound"] else ""
    return "" if function["occupancy"] is None else bound + units.percent(function["occupancy"])


def _local(resources: Mapping[str, Any]) -> str:
    spilled, scratch = resources["spill_bytes"], resources["scratch_bytes"]
    return f"{spilled} B spilled" if spilled else units.size(scratch)


def _count(function: Mapping[str, Any], unit: str) -> str:
    return f"{function['mix'][unit]}" if unit in function["mix"] else ""


def _mix(mix: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in mix.items())


def _where(source: Mapping[str, Any] | None, before: str) -> str:
    if source is None:
        return ""
    lines = f"{source['first']}" if source["first"] == source["last"] else f"{source['first']}-{source['last']}"
    return f"{before}{one_line(source['file'])}:{lines}"


def _wrapped(name: str, text: str, style: Style) -> Iterator[str]:
    indent = " " * (len(name) + 4)
    yield from textwrap.wrap(one_line(text), max(style.width, 60), initial_indent=f"  {name}: ",
                             subsequent_indent=indent)
