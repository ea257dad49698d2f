# SPDX-License-Identifier: MIT
"""toy: never ends its import; says when it began."""
import tempfile
import time
from pathlib import Path

Path(tempfile.gettempdir(), "importing").touch()
time.sleep(600)
