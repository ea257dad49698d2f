# SPDX-License-Identifier: MIT
"""Builds .venv with everything that the project needs. Returns at once if nothing has changed.

Standard library only, run by the system's Python (>= 3.11). If this Python has a torch (a competition image's CUDA or
ROCm build), .venv uses it through --system-site-packages and never replaces it. Otherwise the version pinned in
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
# ray adds 80 MB to download, 240 MB on disk and 15 s: little beside torch and the compilers, and its tests then run.
EXTRAS = ("cuda", "cuda-toolchain", "rocm", "rocm-toolchain", "sandbox", "server", "ray", "tune", "dev")


def present_torch() -> str | None:
    """Version of the torch that this Python has outside .venv; None if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_folder() -> Path | None:
    """The folder of this Python's torch; None if it has none."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).resolve().parent.parent if spec is not None and spec.origin else None


def too_old(torch: str) -> bool:
    """Whether a torch version ("2.8.0+rocm6.4") is older than the oldest supported one."""
    found = re.match(r"(\d+)\.(\d+)", torch)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST_TORCH


def fingerprint(torch: str | None) -> str:
    """Changes whenever the environment would differ. Of pyproject.toml only the requirements count."""
    digest = hashlib.sha256(f"{sys.version}|{sys.prefix}|{torch}|{requirements(torch)}".encode())
    for name in ("constraints.txt", "tools/setup.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def requirements(torch: str | None) -> list[str]:
    """The packages to install."""
    import tomllib  # imported here, so that an older Python reaches the message about its version

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    if torch is None:
        wanted.append("torch")
    elif importlib.util.find_spec("triton") is not None:
        # Keep the triton that came with that torch; its AMD headers work as well.
        wanted = [requirement for requirement in wanted if not requirement.startswith("triton")]
    return wanted


def constraints(torch: str | None) -> list[str]:
    """The pinned versions, except for packages that must fit an existing torch."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    if torch is None:
        return pins
    return [pin for pin in pins if not re.match(r"(torch|triton|numpy)==", pin)]


def fail(message: str) -> None:
    print(f"set-up: {message}", file=sys.stderr)
    raise SystemExit(2)


def create(torch: str | None) -> None:
    """Create an empty environment with pip."""
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
    """Make the existing torch importable in the new environment, and check it.

    --system-site-packages shows the system's packages only. A torch in its own virtual environment (as in competition
    images) is found through a path file, after our own packages.
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
        os.execv(base, [base, str(Path(__file__).resolve())])      # .venv is active: use the Python that created it
    torch = present_torch()
    if torch is not None and too_old(torch):
        fail(f"{sys.executable} has torch {torch}, and torch {'.'.join(map(str, OLDEST_TORCH))} is the oldest that "
             "works. Update it, or use a Python without torch: make run PYTHON=/path/to/python3")
    mark = fingerprint(torch)
    if is_current(mark):
        return
    with Path(__file__).open() as lock:           # of two makes at once, the second waits and finds it done
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(mark):
            build(torch, mark)


def is_current(mark: str) -> bool:
    """Whether the environment exists and was built from the same inputs."""
    return STAMP.is_file() and STAMP.read_text() == mark


def build(torch: str | None, mark: str) -> None:
    """Build the environment from nothing. The stamp is written last, so an incomplete environment is rebuilt."""
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
    finish()
    STAMP.write_text(mark)


def finish() -> None:
    """Install the command ``warpwave`` for this checkout, and build the emulator, so that the first run need not."""
    python = str(VENV / "bin" / "python")
    command = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT)],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, check=False)
    if command.returncode != 0:
        print("set-up: the command warpwave could not be installed; python -m scoring does the same", file=sys.stderr)
    print("set-up: building the emulated MI300X; this happens once", file=sys.stderr)
    emulator = subprocess.run([python, "-m", "backends.emulator"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if emulator.returncode != 0:
        print("set-up: HIP kernels cannot be run here without the emulator; everything else can", file=sys.stderr)


if __name__ == "__main__":
    main()
