# SPDX-License-Identifier: MIT
"""What host code launches, found without a GPU: dynamic shared memory, threads, and the occupancy that follows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import backends
from backends.errors import BackendError
from backends.machine.document import function_document
from backends.source import KernelSource
from scoring.config.load import Config, load_config
from scoring.run import inspected, launches
from tests.problems.folders import problem, signature
from tests.scoring.harness import ROOT, SETTINGS

LADDER = ROOT / "workbench" / "kernels" / "cuda" / "flash_attention"

pytestmark = pytest.mark.toolchain


def launched(settings: Config, path: Path, gpu: str) -> dict[str, launches.Launch]:
    backend = next(each for each in backends.every() if each.suffix == path.suffix)
    source = KernelSource.read(path, settings.path("kernels").parent)
    try:
        binary = backend.compile(source, backend.target(gpu))
    except BackendError as error:
        pytest.skip(str(error))
    return inspected.launched(settings, source, binary, backend.target(gpu))


@pytest.mark.parametrize(("step", "shared", "occupancy"), [
    ("2_wmma_scores", 45056, 8 / 48),
    pytest.param("3_wmma_both", 71680, 4 / 48, marks=pytest.mark.slow),
    pytest.param("4_wmma_cp_async", 90112, 4 / 48, marks=pytest.mark.slow),
])
def test_steps_of_a_ladder_on_l4(step: str, shared: int, occupancy: float) -> None:
    settings = load_config({}, None)
    found = launched(settings, LADDER / f"{step}.cu", "L4")
    assert list(found.values()) == [launches.Launch(shared, 128)] * 2, "bf16 and fp16"
    (subject,) = inspected.subjects(settings, [str(LADDER / f"{step}.cu")], "L4", {})
    for function in subject.image(None).functions:
        document = function_document(function)
        assert document["resources"]["dynamic_shared"] == shared
        assert document["occupancy"] == pytest.approx(occupancy)
        assert not document["occupancy_is_bound"]
    # By the workbench's settings: its own problems come first, this one is the tree's.
    own = load_config({}, str(ROOT / "workbench/config.yaml"))
    (same,) = inspected.subjects(own, [str(LADDER / f"{step}.cu")], "L4", {})
    assert [each.resources.dynamic_shared for each in same.image(None).functions] == [shared] * 2


@pytest.mark.slow
def test_clusters_tensor_maps_and_plans_need_no_gpu() -> None:
    """Hopper's GEMM: every instance that a case chooses is launched, with the shared memory of its ring."""
    found = launched(load_config({}, None), ROOT / "kernels/cuda/amd_fp8_mm/wgmma_tma.cu", "H100")
    products = {name: launch for name, launch in found.items() if "wgmma_gemm" in name}
    assert len(products) >= 8
    assert all(64 << 10 < launch.shared <= 232448 and launch.threads >= 192 for launch in products.values())


def test_hip_launches_are_noted_and_not_run() -> None:
    settings = load_config({}, str(SETTINGS))
    found = launched(settings, ROOT / "tests/data/kernels/hip/toy/too_much_shared.hip", "MI300")
    assert list(found.values()) == [launches.Launch(1 << 20, 64)]


def test_values_of_tensors_without_memory_are_never_made_up() -> None:
    """torch takes a constant that is indexed by such a tensor for a constant, of what happens to lie in memory."""
    with launches._without_memory():
        lengths = torch.tensor([64])
        assert int(lengths.sum()) == 64
        lengths = lengths[torch.randperm(1)]
        with pytest.raises(RuntimeError, match="_local_scalar_dense"):
            int(lengths)
        assert float(torch.tensor(8.0).log2()) == 3.0


@pytest.mark.parametrize("name", ["mla_decode", "mla_decode_fp8"])
def test_a_batch_of_one_request_is_no_cache_of_any_size(name: str) -> None:
    """Its number of pages was such a value: minutes and gigabytes went by, or a kernel got it as an argument."""
    (case,) = (case for case in problem(name).benchmarks if "batch=1,sq=1,hq=16," in f"{case.name},")
    assert launches._arguments(problem(name), case, signature(name), None) is None
