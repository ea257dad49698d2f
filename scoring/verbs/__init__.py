# SPDX-License-Identifier: MIT
"""One file per verb of ``python -m scoring``; each defines ``run(options) -> exit code``."""
