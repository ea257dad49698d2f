# SPDX-License-Identifier: MIT
"""A binary's address must change with every header it can include, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backends.errors import SourceError
from backends.source import KernelSource

TEXT = "//!KERNEL arch sm_90a\n"


def digest(root: Path, text: str) -> str:
    path = root / "kernels/cuda/p/k.cu"
    path.write_text(TEXT + text)
    return KernelSource.read(path, root).digest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("problems/p", "kernels/cuda/p", "kernels/cuda/tile", "kernels/common"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ('#include "tile/a.h"', "kernels/cuda/tile/a.h"),
        ('  #  include   "b.h"  // why', "kernels/common/b.h"),
        ('#include <tile/a.h>', "kernels/cuda/tile/a.h"),
        ('#include \\\n "kernel.h"', "problems/p/kernel.h"),
        ('#include/**/"beside.h"', "kernels/cuda/p/beside.h"),
        ('/* x */ #include "beside.h"', "kernels/cuda/p/beside.h"),
        ('#if __has_include("b.h")\n#endif', "kernels/common/b.h"),
        ('#if 0\n#include "b.h"\n#endif', "kernels/common/b.h"),
        ('%:include "b.h"', "kernels/common/b.h"),
        ('#include "../tile/a.h"', "kernels/cuda/tile/a.h"),
        ('#define HEADER "b.h"\n#include HEADER', "kernels/common/b.h"),
    ],
)
def test_a_header_that_changes_changes_the_digest(root: Path, line: str, header: str) -> None:
    (root / header).write_text("int first;\n")
    before = digest(root, line)
    assert digest(root, line) == before
    (root / header).write_text("int second;\n")
    assert digest(root, line) != before


def test_headers_of_headers_count_and_cycles_end(root: Path) -> None:
    (root / "kernels/cuda/tile/a.h").write_text('#include "b.h"\n')
    (root / "kernels/common/b.h").write_text('#include "tile/a.h"\n#include "c.h"\n')
    (root / "kernels/common/c.h").write_text("int first;\n")
    before = digest(root, '#include "tile/a.h"\n')
    (root / "kernels/common/c.h").write_text("int second;\n")
    assert digest(root, '#include "tile/a.h"\n') != before


def test_a_header_that_appears_earlier_in_the_path_counts(root: Path) -> None:
    (root / "kernels/common/b.h").write_text("int first;\n")
    before = digest(root, '#include "b.h"\n')
    (root / "kernels/cuda/b.h").write_text("int first;\n")
    assert digest(root, '#include "b.h"\n') != before


def test_a_header_that_was_missing_counts_once_it_is_there(root: Path) -> None:
    before = digest(root, '#include "b.h"\n')
    (root / "kernels/common/b.h").write_text("")
    assert digest(root, '#include "b.h"\n') != before


def test_a_header_that_is_not_included_does_not_count(root: Path) -> None:
    before = digest(root, "#include <cuda_runtime.h>\n")
    (root / "kernels/common/unrelated.h").write_text("int x;\n")
    assert digest(root, "#include <cuda_runtime.h>\n") == before


def test_the_digest_does_not_hang_on_where_the_checkout_lies(checkout: Path, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "twin"
    shutil.copytree(checkout, twin)
    digests = {KernelSource.read(root / "kernels/hip/scale/plain.hip", root).digest for root in (checkout, twin)}
    assert len(digests) == 1


def test_a_kernel_that_is_gone_is_a_source_error(checkout: Path) -> None:
    source = KernelSource.read(checkout / "kernels/hip/scale/plain.hip", checkout)
    source.path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        _ = source.digest
