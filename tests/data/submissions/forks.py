# SPDX-License-Identifier: MIT
"""toy: leaves a child and a daemon behind; writes their process ids."""
import subprocess
import tempfile
from pathlib import Path

CHILDREN = [subprocess.Popen(["sleep", "600"], start_new_session=daemon) for daemon in (False, True)]
Path(tempfile.gettempdir(), "children").write_text(" ".join(str(child.pid) for child in CHILDREN))


def custom_kernel(data):
    x, alpha, _ = data
    return x * alpha
