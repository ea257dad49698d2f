# SPDX-License-Identifier: MIT
"""A request that is refused, with the HTTP status that says how."""

from __future__ import annotations


class Refused(Exception):
    """``detail`` is for the person who asked; it names nothing secret."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status = status
        self.detail = detail
