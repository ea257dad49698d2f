# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: reads the seed of the judgement on the judge's command line, which workers without namespaces can see
# source: own
# needs: landlock
from pathlib import Path

from tests.redteam.shell import JSON

SEED = "918273645546372"
SUBMISSION = '''
from pathlib import Path

WANTED = str(30_000_000 * 30_609_121 + 15_546_372).encode()
for process in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if WANTED in process.read_bytes():
            raise RuntimeError(f"ESCAPED: the seed stands on the command line {process}")
    except OSError:
        pass


def custom_kernel(data):
    return data[0] * data[1]
'''


def attack(folder: Path, secret: Path) -> list[str]:
    path = folder / "reads.py"
    path.write_text(SUBMISSION)
    return [*JSON, "--isolation", "landlock", "--seed", SEED, "--problem", "toy", "--submission", str(path)]
