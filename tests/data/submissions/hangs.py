# SPDX-License-Identifier: MIT
"""toy: never returns; says when it was called."""
import tempfile
import time
from pathlib import Path


def custom_kernel(data):
    Path(tempfile.gettempdir(), "called").touch()
    time.sleep(600)
