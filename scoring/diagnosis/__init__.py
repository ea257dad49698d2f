# SPDX-License-Identifier: MIT
"""Why an output was refused, in words.

``explain`` puts them together: where it is wrong (``locate``), what it looks like (``relations``), and which known
mistake gives the same (``known_mistakes``).
"""
