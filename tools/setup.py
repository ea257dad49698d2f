# SPDX-License-Identifier: MIT
"""Build .venv with everything the project needs, once; do nothing, fast, when nothing changed.

Standard library only, run by the system's Python (>= 3.11). A torch that this Python already has (a competition image's
CUDA or ROCm build) is used through --system-site-packages and never replaced; otherwise the version pinned in
constraints.txt is installed. The compilers of both vendors come as wheels.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".warpwave"
OLDEST_TORCH = (2, 9)
EXTRAS = ("cuda", "cuda-toolchain", "rocm", "rocm-toolchain", "sandbox", "dev")


def present_torch() -> str | None:
    """Version of the torch this Python has outside our own environment, None if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_folder() -> Path | None:
    """The folder that this Python's torch lies in, None if it has none."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).resolve().parent.parent if spec is not None and spec.origin else None


def too_old(torch: str) -> bool:
    """Whether a torch version ("2.8.0+rocm6.4") is older than what the project works with."""
    found = re.match(r"(\d+)\.(\d+)", torch)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST_TORCH


def fingerprint(torch: str | None) -> str:
    """Changes whenever the environment would come out differently: of pyproject.toml only what is installed counts."""
    digest = hashlib.sha256(f"{sys.version}|{sys.prefix}|{torch}|{requirements(torch)}".encode())
    for name in ("constraints.txt", "tools/setup.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def requirements(torch: str | None) -> list[str]:
    """What to install besides what is there."""
    import tomllib  # here, so that an older Python gets as far as being told that it is one

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    if torch is None:
        wanted.append("torch")
    elif importlib.util.find_spec("triton") is not None:
        # The triton that came with that torch belongs to it; its AMD headers serve as well.
        wanted = [requirement for requirement in wanted if not requirement.startswith("triton")]
    return wanted


def constraints(torch: str | None) -> list[str]:
    """The pins, but for packages that must fit a torch that is already there."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    if torch is None:
        return pins
    return [pin for pin in pins if not re.match(r"(torch|triton|numpy)==", pin)]


def fail(message: str) -> None:
    print(f"set-up: {message}", file=sys.stderr)
    raise SystemExit(2)


def create(torch: str | None) -> None:
    """An empty environment with pip in it."""
    shutil.rmtree(VENV, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(VENV)]
    if torch is not None:
        command.append("--system-site-packages")
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        fail(
            f"`{' '.join(command)}` failed:\n{(made.stdout + made.stderr).strip()}\n"
            "On Debian or Ubuntu: apt-get install python3-venv"
        )


def adopt(torch: str) -> None:
    """Make the torch that is there importable in the new environment, and check that it is.

    --system-site-packages shows the system's packages only; a torch in a virtual environment of its own (the custom of
    competition images) is found through a path file, after our own packages.
    """
    python = VENV / "bin" / "python"
    place = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()
    folder = torch_folder()
    if folder is not None:
        (Path(place) / "torch_that_is_here.pth").write_text(f"{folder}\n")
    seen = subprocess.run(
        [str(python), "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False
    )
    if seen.returncode != 0:
        fail(f"torch {torch} is there ({folder}) but cannot be imported from {VENV.name}:\n"
             f"{seen.stderr.strip()[-2000:]}\nRun it with a Python without torch: make run PYTHON=/path/to/python3")


def main() -> None:
    if sys.version_info < (3, 11):
        fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try: make run PYTHON=python3.12")
    base: str = getattr(sys, "_base_executable", sys.executable)
    if Path(sys.prefix).resolve() == VENV and Path(base).resolve().is_file() and base != sys.executable:
        os.execv(base, [base, str(Path(__file__).resolve())])      # the environment is active: its maker decides
    torch = present_torch()
    if torch is not None and too_old(torch):
        fail(f"{sys.executable} has torch {torch}, and torch {'.'.join(map(str, OLDEST_TORCH))} is the oldest that "
             "works. Update it, or use a Python without torch: make run PYTHON=/path/to/python3")
    mark = fingerprint(torch)
    if is_current(mark):
        return
    with Path(__file__).open() as lock:           # two makes at once: the second waits and finds it done
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(mark):
            build(torch, mark)


def is_current(mark: str) -> bool:
    """Whether the environment is there and was built from the same things."""
    return STAMP.is_file() and STAMP.read_text() == mark


def build(torch: str | None, mark: str) -> None:
    """Make the environment from nothing; the stamp comes last, so that half of one is made again."""
    print(f"set-up: building {VENV.name} with {'the torch ' + torch + ' that is here' if torch else 'torch'} "
          "and both vendors' compilers; this happens once", file=sys.stderr)
    create(torch)
    if torch is not None:
        adopt(torch)
    pins = VENV / "constraints.txt"
    pins.write_text("\n".join(constraints(torch)) + "\n")
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    install = subprocess.run(
        [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(pins),
         *requirements(torch)],
        env=environment, check=False,
    )
    if install.returncode != 0:
        fail("pip could not install the packages; its messages are above. Run the same make target to try again.")
    STAMP.write_text(mark)


if __name__ == "__main__":
    main()
