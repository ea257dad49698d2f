# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a link in the temporary folder, named like what a killed judge leaves, leads the clean-up to a foreign folder
# source: own
from pathlib import Path

from scoring.sandbox import cgroup, cleanup
from tests.redteam.shell import JSON, TEMPORARY

MODE = 0o555


def attack(folder: Path, secret: Path) -> list[str]:
    foreign = folder / "foreign"
    foreign.mkdir()
    (foreign / "file").write_text("x")
    foreign.chmod(MODE)
    (folder / TEMPORARY / f"{cgroup.PREFIX}999999999-1-{cleanup._namespace()}-x").symlink_to(foreign)
    return [*JSON, "--problem", "toy", "--kernel", "honest", "--case", "n=64"]


def gained(folder: Path, record: dict, text: str) -> str:
    foreign = folder / "foreign"
    changed = foreign.stat().st_mode & 0o777 != MODE or not (foreign / "file").exists()
    return "the judge changed a foreign folder" if changed else ""
