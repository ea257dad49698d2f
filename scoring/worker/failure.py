# SPDX-License-Identifier: MIT
"""What a worker tells the judge of code under test that failed."""

from __future__ import annotations

from typing import Any

from scoring.ipc.template import Answer


class Failure(Exception):
    """The code under test failed; ``status`` is a word of ``scoring.record.Status``."""

    def __init__(self, status: str, message: str, needs: str = "", answer: Answer | None = None):
        """``needs``: a package that was not found; ``answer``: what came where the judge expected something else."""
        super().__init__(message)
        self.status, self.needs, self.answer = status, needs, answer

    def reply(self) -> dict[str, Any]:
        """What the judge hears."""
        answer = {"answer": self.answer.to_json()} if self.answer is not None else {}
        return {"ok": False, "status": self.status, "error": str(self)[-5000:], "needs": self.needs, **answer}


class ExtensionError(Exception):
    """The compiler refused what a submission gave to ``load_inline``; the text is the compiler's."""
