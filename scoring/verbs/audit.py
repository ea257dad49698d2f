# SPDX-License-Identifier: MIT
"""``audit``: prove that wrong answers are refused, case by case; a tolerance that checks nothing fails here."""

from __future__ import annotations

