# SPDX-License-Identifier: MIT
"""All headers of kernels/cuda: families do not collide, and kernel files state the defaults of tunables."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from backends.cuda import find_nvcc
from backends.source import KernelSource, kernels
from tests.kernels.cuda.emulated import needs_nvcc

ROOT = Path(__file__).resolve().parents[3]
CUDA = ROOT / "kernels/cuda"
FAMILIES = ("gemm", "attention", "mla", "moe")
HEADERS = [path for path in sorted(CUDA.glob("*/*.h")) if "#pragma once" in path.read_text()]
OURS = "WARPWAVE_"        # macros of the build and of the instruction wrappers

OTHERS = re.compile(rf"^#\s*define (?!{OURS})(\w+)", re.MULTILINE)


def test_no_header_has_the_default_of_a_tunable() -> None:
    assert not {f"{path.relative_to(CUDA)}: {name}" for path in HEADERS for name in OTHERS.findall(path.read_text())}


@pytest.mark.parametrize("path", kernels(ROOT, "cuda"), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_kernel_file_defines_a_macro_that_its_directives_do_not_state(path: Path) -> None:
    assert not OTHERS.findall(path.read_text())


@pytest.mark.parametrize("path", kernels(ROOT, "cuda"), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_kernel_file_says_where_its_loops_and_its_epilogue_stand(path: Path) -> None:
    for what in ("producer loop", "main loop", "epilogue"):
        line = re.search(rf"^//   {what} +(.+)$", path.read_text(), re.MULTILINE)
        assert line, what
        for file, names in re.findall(r"([a-z]\w*/\w+\.h)(?: \(([^)]+)\))?", line[1]):
            text = next(folder / file for folder in (CUDA, CUDA.parent) if (folder / file).is_file()).read_text()
            assert all(re.search(rf"\b{name}\(|(?:struct|class) {name}\b", text) for name in names.split(", ") if name)


def test_one_file_can_include_all_families(tmp_path: Path) -> None:
    needs_nvcc()
    macros: dict[str, str] = {}
    for path in kernels(ROOT, "cuda"):
        macros |= KernelSource.read(path, ROOT).resolve()
    file = tmp_path / "all.cu"
    headers = [path.relative_to(CUDA) for path in HEADERS if path.parent.name in FAMILIES]
    file.write_text("".join(f'#include "{header}"\n' for header in headers))
    folders = (ROOT / "problems/mla_decode", CUDA, ROOT / "kernels/common")
    command = [str(find_nvcc().path), "-std=c++17", "--expt-relaxed-constexpr", "-w", "-arch=compute_90a", "-ptx",
               *(f"-D{name}={value}" for name, value in macros.items()), *(f"-I{folder}" for folder in folders),
               str(file), "-o", str(tmp_path / "all.ptx")]
    subprocess.run(command, check=True, timeout=120)


def test_every_element_of_a_table_of_softmax_rows_is_set() -> None:
    """nvcc gives members their initial values in the first row of a two-dimensional array alone."""
    for path in sorted((ROOT / "kernels" / "cuda").rglob("*.h")) + sorted((ROOT / "kernels" / "cuda").rglob("*.cu")):
        text = path.read_text()
        for name in re.findall(r"^\s*SoftmaxRow (\w+)\[\w+\]\[\w+\];", text, re.MULTILINE):
            assert re.search(rf"\b{name}\[\w+\]\[\w+\] = SoftmaxRow\(\);", text), f"{path}: {name}"
