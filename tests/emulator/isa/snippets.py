# SPDX-License-Identifier: MIT
"""Short programs for hand-written tests: each is declared once, so that what is tested can be counted."""

from __future__ import annotations

import functools

from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.wave import Emulator, Wave


class Snippets:
    """Texts that are assembled together when the first one is needed."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    @functools.cached_property
    def _codes(self) -> dict[str, bytes | None]:
        return dict(zip(self.texts, assemble(self.texts), strict=True))

    def codes(self) -> list[bytes]:
        return [self[t] for t in self.texts]

    def __getitem__(self, text: str) -> bytes:
        code = self._codes[text]
        assert code is not None, f"gfx942 does not assemble {text!r}"
        return code

    def run(self, text: str, wave: Wave, emulator: Emulator) -> Wave:
        return emulator.execute(self[text], wave)
