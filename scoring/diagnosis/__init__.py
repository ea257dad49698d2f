# SPDX-License-Identifier: MIT
"""Why an output was refused, in words.

``explanation`` puts them together: where it is wrong (``patterns``), what it looks like (``likeness``), and which known
mistake gives the same (``suspects``).
"""
