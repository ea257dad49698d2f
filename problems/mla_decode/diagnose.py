# SPDX-License-Identifier: MIT
"""Likely mistakes in mla_decode, for the judge's diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

import attention_diagnose
from latent_diagnose import AXES, NAN, groups, index
from reference import tokens_of

__all__ = ["AXES", "NAN", "hypotheses", "index"]


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[attention_diagnose.Hypothesis]:
    """(name, sentence, (o, lse) of the rows of ``index``) of each mistake; a block of keys is a page."""
    found, longest = groups(data, index, tokens_of)
    return attention_diagnose.hypotheses(found, bool(data[4]), longest)
