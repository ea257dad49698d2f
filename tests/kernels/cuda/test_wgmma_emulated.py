# SPDX-License-Identifier: MIT
"""The Hopper FP8 product computes the right thing on an emulated H100, in every plan."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import ROOT, EmulatedKernel, copied
from tests.kernels.cuda.gemm_products import Product, ProductKernel, with_plans, with_table
from tests.kernels.cuda.planting import Fault

KERNEL = "fp8_gemm/wgmma_tma"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    return ProductKernel(KERNEL, with_plans(KERNEL, tmp_path_factory.mktemp("plans")))


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize(
    "size", [(130, 200, 384), (70, 333, 256), (9, 40, 256)], ids=["boxes", "single elements", "small"]
)
def test_every_instance_with_tails(kernel, size, schedule):
    product = Product.random(*size, seed=1)
    for plan in kernel.plans(1, 2):
        product.agrees(kernel.multiply(product, plan, schedule=schedule))


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_rings_wrap_and_blocks_walk_several_tiles(kernel, schedule):
    product = Product.random(300, 530, 128 * 7, seed=2)
    for plan in kernel.plans(1, 3):
        product.agrees(kernel.multiply(product, plan, schedule=schedule))


@pytest.mark.parametrize("size", [(1, 1, 128), (1, 8, 128), (3, 129, 256), (17, 40, 1024), (65, 7, 640)])
def test_smallest_and_odd_sizes_by_the_chosen_plan(kernel, size):
    product = Product.random(*size, seed=3)
    product.agrees(kernel.multiply(product))


def test_parts_of_k_are_added_in_one_order(kernel):
    product = Product.random(9, 96, 2048, seed=4)
    for shape, parts in kernel.plans(1, 5):
        first = kernel.multiply(product, (shape, parts))
        np.testing.assert_array_equal(first, kernel.multiply(product, (shape, parts), schedule="random:1"))


def test_zero_scales_give_zero_and_a_nan_stays_in_its_row(kernel):
    product = Product.random(32, 64, 256, seed=5)
    product.a_scale[:16] = 0
    product.a[20, 200] = 0x7F
    for plan in kernel.plans(1, 2):
        got = kernel.multiply(product, plan)
        assert (got[:16] == 0).all()
        assert np.isnan(got[20]).all()
        assert np.isfinite(np.delete(got, 20, 0)).all()


def test_no_bank_is_used_twice(kernel):
    for plan in kernel.plans(1, 2):
        assert kernel.conflicts({"m": 130, "n": 200, "k": 384}, plan=plan) == [], plan


@pytest.mark.parametrize("size", [(0, 64, 128), (32, 0, 128), (32, 64, 0), (32, 64, 200)])
def test_sizes_outside_the_abi_are_declined(kernel, size):
    assert kernel.declines(*size) == -1


def test_few_tiles_split_k_and_many_do_not(kernel):
    assert kernel.chosen(16, 2112, 7168, 0, 132)[1] > 1
    assert kernel.chosen(1024, 576, 7168, 0, 132)[1] > 1
    assert kernel.chosen(6144, 4608, 7168, 0, 132)[1] == 1


def test_the_plan_prefers_what_was_fast_on_an_h200(kernel):
    """The model's worst misses against the sweeps it was fitted to are known; these are its clear-cut cases."""
    assert kernel.chosen(1024, 576, 7168, 0, 132) == (7, 2)       # 64 tiles in halves
    assert kernel.chosen(8192, 8192, 8192, 0, 132) == (23, 1)     # 192 x 128 in pairs
    assert kernel.chosen(4096, 4096, 7168, 0, 132) == (24, 1)     # 256 x 128 in pairs: four rounds instead of six
    assert kernel.chosen(6144, 576, 7168, 0, 132) == (25, 1)      # 192 x 144 in pairs: one round
    assert kernel.chosen(1024, 1536, 7168, 0, 132) == (16, 1)     # one round: a pair would wait for each other
    assert kernel.chosen(128, 10240, 8192, 0, 132) == (15, 1)     # 128 x 80: 128 tiles in one round
    assert kernel.chosen(512, 5120, 25600, 0, 132) == (21, 1)     # 128 x 160 in pairs, where K is long
    assert kernel.chosen(7543, 5120, 32768, 0, 132) == (19, 1)    # 128 x 128 in pairs: 18 rounds, nearly full
    # 64 x 128: 120 tiles in one round. 128 weights x 64 tokens, (26, 1), took 4 % less in the one sweep that has both.
    assert kernel.chosen(192, 5120, 25600, 0, 132) == (12, 1)
    assert kernel.chosen(160, 8192, 8192, 0, 132) == (27, 2)      # 128 weights x 160 tokens: 64 tiles in halves
    assert kernel.chosen(18, 5120, 6912, 0, 132) == (5, 2)        # 64 x 80: 64 tiles in halves


def test_measured_plans_come_before_the_model_where_they_were_measured(kernel):
    assert kernel.chosen(17, 576, 7168, 0, 132) == kernel.chosen(64, 576, 7168, 0, 132) == (2, 5)
    assert kernel.chosen(64, 576, 7168, 0, 114) != (2, 5)         # another GPU: the model's business
    assert kernel.chosen(65, 2112, 7168, 0, 132) == kernel.chosen(128, 2112, 7168, 0, 132) == (6, 3)
    assert kernel.chosen(64, 2112, 7168, 0, 132) != (6, 3)        # fewer tokens than the plan serves, and more
    assert kernel.chosen(129, 2112, 7168, 0, 132) != (6, 3)


def test_the_fit_has_the_kernels_model(kernel, monkeypatch):
    """benchmarks/tools/fit_gemm_plan.py states gemm/plan.h's model once more, to fit it: both choose the same plans."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/tools"))
    fit, sweeps = importlib.import_module("fit_gemm_plan"), importlib.import_module("sweep_plans")
    library = kernel.library()
    instances = sweeps.instances(SimpleNamespace(library=library))
    sizes = [(m, n, k) for m in (1, 40, 160, 1000, 5000)
             for n, k in ((288, 1024), (2112, 7168), (5120, 25600), (32768, 1024))]
    plans = kernel.plans(*fit.PARTS)
    sweep = fit.Sweep(instances, [{"size": size, "sweep": {"{}x{}".format(*plan): 1.0 for plan in plans}}
                                  for size in sizes])
    fitted = [sweep.plans[row] for row in fit.picks(sweep, fit.constants(instances))]
    modelled = [min(plans, key=lambda plan: library.plan_cycles(*plan, *size, 132)) for size in sizes]
    assert fitted == ["{}x{}".format(*plan) for plan in modelled]


def test_a_stage_is_handed_back_when_all_lanes_have_read_its_scales(tmp_path):
    """By the pipelined loop; with HANDBACK_SYNC=0 only one lane's reads are known to be over."""
    root = copied(tmp_path, ("fp8_gemm/wgmma_tma.cu", "MeasuredTable<Instances, kMeasuredProcessors, SmallMPlans>",
                             "WgmmaTable<Persistent<128>>"))
    case = {"m": 128, "n": 128, "k": 128 * 7}       # the ring has five stages
    EmulatedKernel("fp8_gemm/wgmma_tma", {"HANDBACK_SYNC": 1}, root=root).check(case)
    with pytest.raises(AssertionError, match=r"shared-race: writes .* which warp . has read"):
        EmulatedKernel("fp8_gemm/wgmma_tma", {"HANDBACK_SYNC": 0}, root=root).check(case)


FAULTS = {
    "empty": Fault("gemm/*.h", "mbarrier_wait(memory.empty(at.stage), at.parity ^ 1);\n            const",
                   "if (!FAULT) mbarrier_wait(memory.empty(at.stage), at.parity ^ 1);\n            const",
                   "shared-race", 2),
    "full": Fault("gemm/*.h", "mbarrier_wait(memory.full(filled.stage), filled.parity);", "", "uninitialised", 3),
    "pair": Fault("gemm/*.h", "Shape::kConsumerThreads / 32 * Shape::kPair);",
                  "Shape::kConsumerThreads / 32 * (FAULT ? 1 : Shape::kPair));", "shared-race"),
    "wait": Fault("gemm/*.h", "wgmma_wait<0>();\n        wgmma_results(partial);", "wgmma_results(partial);",
                  "in-flight", 2),
    "bytes": Fault("gemm/*.h", "mbarrier_arrive_expect(full, boxes.bytes);",
                   "mbarrier_arrive_expect(full, Shape::kRowBytes);", "mbarrier"),
    "store": Fault("gemm/*.h", "if (issues) tma_store_wait_read<Shape::kSlices - 1>();", "", "shared-race"),
    "ahead": Fault("gemm/*.h", "mbarrier_wait(start + Shape::kBarriersAt + at * 8, parity);", "", "uninitialised"),
    "clear": Fault("gemm/*.h", "along.template clear<kSlice>();"),
}
EXCHANGE_FAULTS = {
    "received": Fault("gemm/*.h", "if (mine > 0) mbarrier_wait(memory.received(), 0);", "", "shared-race"),
    "place": Fault("gemm/*.h", "(rank < thread ? rank : rank - 1) * bytes",
                   "(FAULT || rank < thread ? rank : rank - 1) * bytes", "uninitialised"),
    "end": Fault("gemm/*.h", "if (reduces) cluster_wait();", "", "shared-race"),
}


def built(root, file, size, parts):
    kernel = ProductKernel(KERNEL, with_plans(KERNEL, root, file))
    product = Product.random(*size, seed=6)

    def every_instance(_fault):
        for shape in range(kernel.shapes):
            product.agrees(kernel.multiply(product, (shape, parts)))

    return kernel, every_instance


def whole(root):
    """Of two tiles, with the pipelined loop and with another one."""
    with_table(root, KERNEL, "Shapes", "WgmmaTable<Persistent<160, 2>, Persistent<64, 1, 2>>")
    return built(root, None, (300, 400, 128 * 7), 1)


def exchanged(root):
    return built(root, Path(__file__).with_name("exchanged.cu"), (40, 72, 128 * 5), 3)


@pytest.mark.parametrize(("table", "build"), [(FAULTS, whole), (EXCHANGE_FAULTS, exchanged)], ids=["tiles", "exchange"])
def test_faults_are_noticed(tmp_path, table, build):
    """A check of the checks: a kernel that lacks one wait or miscounts does not pass."""
    planting.noticed(planting.outcomes(tmp_path, table, build), table)
