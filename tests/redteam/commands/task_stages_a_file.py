# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a problem folder's task.yml names a file of the judge's, which is laid beside the submission
# source: own
from pathlib import Path

from tests.redteam.shell import JSON, problem

SUBMISSION = '''
import sys
from pathlib import Path


def custom_kernel(data):
    for folder in filter(None, sys.path):
        for path in Path(folder).glob("loot*"):
            raise RuntimeError(path.read_text())
    return data[0] * data[1]
'''


def attack(folder: Path, secret: Path) -> list[str]:
    secret.chmod(0o600)
    task = problem(folder / "task")
    line = '  - {name: "task.py"'
    task.write_text(task.read_text().replace(line, f'  - {{name: "loot.py", source: "{secret}"}}\n{line}'))
    path = folder / "reads.py"
    path.write_text(SUBMISSION)
    return [*JSON, "--task", str(task.parent), "--submission", str(path)]
