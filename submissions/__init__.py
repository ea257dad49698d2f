# SPDX-License-Identifier: MIT
"""Submissions: pack a kernel into one file for a leaderboard, lint any such file, run it as GPU MODE's runner would."""
