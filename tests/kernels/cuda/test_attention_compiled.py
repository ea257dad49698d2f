# SPDX-License-Identifier: MIT
"""The mma_sync attention kernels as ptxas makes them: no spills, on the tensor cores of each target."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KERNELS = {             # device function, how many; there are more functions than those
    "flash_attention": ("flash_forward", 10), "flash_attention_bwd": ("backward_", 7),
    "mla_decode": ("latent_decode", 2),
}
GENCODE = {"sm_89": "arch=compute_89,code=[sm_89,compute_89]", "sm_90a": "arch=compute_90a,code=sm_90a"}


def tool(name: str) -> str | None:
    """A CUDA tool from the environment, the path or the wheels."""
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob(f"nvidia/cu*/bin/{name}"))
    return os.environ.get(name.upper()) or shutil.which(name) or (str(wheels[-1]) if wheels else None)


NVCC, CUOBJDUMP = tool("nvcc"), tool("cuobjdump")
pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(NVCC is None, reason="no nvcc: not in $NVCC, on the path or in a wheel"),
]


@pytest.fixture(scope="module", params=[(p, a) for p in KERNELS for a in GENCODE], ids="-".join)
def built(request, tmp_path_factory):
    """(problem, ptxas log, library)"""
    problem, arch = request.param
    library = tmp_path_factory.mktemp("built") / "kernel.so"
    command = [
        NVCC, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-Xcompiler", "-fPIC",
        "-shared", "-cudart", "static", "-gencode", GENCODE[arch],
        *(f"-I{ROOT / path}" for path in (f"problems/{problem}", "kernels/cuda", "kernels/common")),
        str(ROOT / f"kernels/cuda/{problem}/mma_sync.cu"), "-o", str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return problem, done.stdout + done.stderr, library


def test_nothing_spills(built):
    problem, log, _ = built
    reports = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(reports) > KERNELS[problem][1]
    assert set(reports) == {("0", "0", "0")}


def test_compiler_says_nothing_worse_than_info(built):
    assert not [line for line in built[1].splitlines() if re.search(r"\b(warning|error)\b", line)]


@pytest.mark.skipif(CUOBJDUMP is None, reason="no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
def test_products_run_on_the_tensor_cores_and_copies_bypass_registers(built):
    problem, _, library = built
    name, count = KERNELS[problem]
    command = [CUOBJDUMP, "-sass", str(library)]
    sass = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    bodies = [body for body in re.split(r"Function : ", sass)[1:] if name in body.split("\n", 1)[0]]
    assert len(bodies) >= count
    for body in bodies:
        assert "HMMA.16816.F32" in body
        assert "LDGSTS.E.BYPASS.128" in body
        assert "LDSM.16.M88.4" in body
        assert "LDSM.16.MT88.4" in body      # V, transposed on the way to registers
        assert not re.search(r"\b(LDL|STL)\b", body)


def test_sources_avoid_the_letters_leaderboards_refuse():
    folders = [ROOT / "kernels/cuda" / name for name in ("ptx", "tile", *KERNELS)]
    files = [path for folder in folders for path in folder.iterdir()]
    files += [ROOT / "kernels/common" / name for name in ("online_softmax.h", "split_kv.h")]
    assert len(files) > 10
    assert not [path.name for path in files if "str" + "eam" in path.read_text().lower()]
