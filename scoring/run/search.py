# SPDX-License-Identifier: MIT
"""Which values of tunables to try next where there are too many combinations for all: optuna's TPE sampler.

Combinations are named by their values alone, so what a cache file knows is told to a new search, which goes on from it.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scoring.record import ExitCode
from scoring.run.select import SelectionError

TRIALS = 64              # combinations that a search tries unless it is told how many
BATCH = 8                # that are compiled together before they are timed one after another
_ASKED = 20              # proposals for one new combination, before chance takes over

Values = dict[str, str]


class Search:
    """A search in ``space``, the values of each tunable with its default first; the same ``seed`` asks the same.

    ``fixed`` tunables keep their value in every combination. Raises ``SelectionError`` (4) without optuna.
    """

    def __init__(self, space: Mapping[str, Sequence[str]], fixed: Mapping[str, str], seed: int):
        if importlib.util.find_spec("optuna") is None:
            raise SelectionError(
                f"more combinations than are all tried, and the search needs optuna, which {sys.executable} has not: "
                'pip install -e ".[tune]", or --vary NAME and -D NAME=VALUE leave fewer', ExitCode.UNAVAILABLE)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self.fixed = dict(fixed)
        self.space = {name: list(values) for name, values in space.items() if name not in fixed and len(values) > 1}
        self._single = {name: values[0] for name, values in space.items() if name not in fixed and len(values) == 1}
        self._kinds = {name: optuna.distributions.CategoricalDistribution(values)
                       for name, values in self.space.items()}
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
        self._study: Any = optuna.create_study(sampler=sampler)
        self._chance = random.Random(seed)
        self._told: dict[tuple[str, ...], float] = {}
        self._waiting: dict[tuple[str, ...], Any] = {}

    @property
    def size(self) -> int:
        """Of the whole space."""
        return math.prod(len(values) for values in self.space.values())

    def tell(self, values: Mapping[str, str], score: float | None) -> None:
        """A combination came to ``score`` (lower is better); None for one that failed."""
        key, result = self._key(values), math.inf if score is None else score
        self._told[key] = result
        trial = self._waiting.pop(key, None)
        if trial is not None:
            self._study.tell(trial, result)
            return
        self._study.add_trial(self._optuna.trial.create_trial(
            params=dict(zip(self.space, key, strict=True)), distributions=self._kinds, value=result))

    def ask(self, count: int) -> list[Values]:
        """At most ``count`` combinations that nobody has tried, the defaults first of all; fewer where no more are."""
        found: list[Values] = []
        if not self._told and not self._waiting:
            self._study.enqueue_trial({name: values[0] for name, values in self.space.items()})
        while len(found) < min(count, self.size - len(self._told)) and (key := self._new()):
            found.append(self._values(key))
        return found

    def _new(self) -> tuple[str, ...] | None:
        for _ in range(_ASKED):
            trial = self._study.ask(self._kinds)
            key = tuple(str(trial.params[name]) for name in self.space)
            if key not in self._told and key not in self._waiting:
                self._waiting[key] = trial
                return key
            self._study.tell(trial, self._told.get(key, math.inf))
        free = (key for key in self._shuffled() if key not in self._told and key not in self._waiting)
        chosen = next(free, None)
        if chosen is not None:
            self._waiting[chosen] = None
        return chosen

    def _shuffled(self) -> Iterator[tuple[str, ...]]:
        """All combinations: by chance a few, then every one in order."""
        values = list(self.space.values())
        for _ in range(100):
            yield tuple(self._chance.choice(options) for options in values)
        yield from itertools.product(*values)

    def _key(self, values: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(values[name] for name in self.space)

    def _values(self, key: Sequence[str]) -> Values:
        return {**self.fixed, **self._single, **dict(zip(self.space, key, strict=True))}
