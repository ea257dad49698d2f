# SPDX-License-Identifier: MIT
"""YAML text to plain values, quickly and without surprises: every refusal is a ``YamlError`` with one line."""

from __future__ import annotations

from typing import Any

_DEEP = 400      # opening brackets in a text, or indentation and markers of a line, that libyaml is trusted with


class YamlError(ValueError):
    """The text is no YAML."""


def parse(text: str) -> Any:
    """The first and only document of ``text``.

    Raises ``YamlError``, also for what PyYAML's constructors let through (`!!int ''`, dates out of range, very deep
    nesting).
    """
    import yaml

    # libyaml's binding is several times as fast, but overruns the C stack where Python's own loader counts its calls.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if _shallow(text) else yaml.SafeLoader
    refusals = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
    try:
        return yaml.load(text, Loader=loader)
    except refusals as error:
        raise YamlError(" ".join(str(error).split()) or type(error).__name__) from error


def _shallow(text: str) -> bool:
    """Whether nothing in ``text`` can nest deeply: an upper bound, taken without parsing."""
    if text.count("[") + text.count("{") > _DEEP:
        return False
    return all(
        len(line) - len(line.lstrip()) + line.count("-") + line.count("?") <= _DEEP for line in text.splitlines()
    )
