# SPDX-License-Identifier: MIT
"""The SIMT shim itself: wave instructions follow the documented layouts, and broken kernels are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kernels.hip import host

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler for the host: install g++ or ziglang")

SOURCE = r"""
#include "launch.h"
#include "isa/buffer.h"
#include "isa/lanes.h"
#include "isa/mfma.h"
#include "isa/perm.h"

__global__ void multiply(const u32x2* a, const u32x2* b, f32x4* c, int kind) {
    const int lane = lane_id();
    f32x4 sum = c[lane];
    if (kind == 0) sum = mfma_16x16x32_fp8(a[lane], b[lane], sum);
    if (kind == 1) sum = mfma_16x16x16_bf16(a[lane], b[lane], sum);
    if (kind == 2) sum = mfma_16x16x16_f16(a[lane], b[lane], sum);
    c[lane] = sum;
}

__global__ void exchange(float* out) {
    const int lane = lane_id();
    out[threadIdx.x] = from_lane_xor_16(static_cast<float>(lane));
    out[128 + threadIdx.x] = from_lane_xor_32(static_cast<float>(lane));
    out[256 + threadIdx.x] = static_cast<float>(wave_id());
    out[384 + threadIdx.x] = static_cast<float>(byte_perm(0x03020100u, 0x07060504u, 0x06010402u));
}

__global__ void reverse(float* out, int with_barrier) {
    __shared__ float values[256];
    values[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (with_barrier) __syncthreads();
    out[threadIdx.x] = values[255 - threadIdx.x];
}

__global__ void uninitialised(float* out) {
    __shared__ float values[64];
    out[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = 1.0f;
}

__global__ void half_a_wave(float* out) {
    if (lane_id() < 32) out[lane_id()] = from_lane_xor_16(1.0f);
}

__global__ void half_a_barrier() {
    if (threadIdx.x < 64) __syncthreads();
}

__global__ void store_at(float* out, int index) { out[index] = 1.0f; }

__global__ void copy(const float* in, float* out, int bytes) {
    const int offset = static_cast<int>(threadIdx.x) * 16;
    buffer_store_16(make_buffer(out, bytes - 8), offset, buffer_load_16(make_buffer(in, bytes), offset));
}

extern "C" int run(int which, void* a, void* b, void* c, int argument) {
    float* out = static_cast<float*>(c);
    if (which == 0) LAUNCH(multiply, dim3(1), dim3(64), 0, a)(
        static_cast<u32x2*>(a), static_cast<u32x2*>(b), static_cast<f32x4*>(c), argument);
    if (which == 1) LAUNCH(exchange, dim3(1), dim3(128), 0, a)(out);
    if (which == 2) LAUNCH(reverse, dim3(1), dim3(256), 0, a)(out, argument);
    if (which == 3) LAUNCH(uninitialised, dim3(2), dim3(64), 0, a)(out);
    if (which == 4) LAUNCH(half_a_wave, dim3(1), dim3(64), 0, a)(out);
    if (which == 5) LAUNCH(half_a_barrier, dim3(1), dim3(128), 0, a)();
    if (which == 6) LAUNCH(store_at, dim3(1), dim3(64), 0, a)(out, argument);
    if (which == 7) LAUNCH(copy, dim3(1), dim3(64), 0, a)(static_cast<float*>(a), out, argument);
    if (which == 8) LAUNCH(half_a_barrier, dim3(1, 1, 65536), dim3(64), 0, a)();
    return LAUNCH_STATUS();
}
"""
MULTIPLY, EXCHANGE, REVERSE, UNINITIALISED, HALF_WAVE, HALF_BARRIER, STORE_AT, COPY, BIG_GRID = range(9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> host.HostKernel:
    folder: Path = tmp_path_factory.mktemp("shim")
    source = folder / "probe.hip"
    source.write_text(SOURCE)
    return host.HostKernel(host.build_file(source, "fp8_gemm", folder / "probe.so"), "run")


def _by_lane(matrix: np.ndarray, per_lane: int) -> np.ndarray:
    """[16, 4 * per_lane] to what each lane holds: row lane % 16, indices (lane / 16) * per_lane on."""
    return np.stack([matrix[lane % 16, lane // 16 * per_lane :][:per_lane] for lane in range(64)])


@pytest.mark.parametrize(("kind", "per_lane"), [(0, 8), (1, 4), (2, 4)])
def test_matrix_instructions(run: host.HostKernel, kind: int, per_lane: int) -> None:
    rng = np.random.default_rng(kind)
    a, b = (rng.integers(-8, 9, (16, 4 * per_lane)).astype(np.float64) for _ in range(2))
    start = rng.integers(-8, 9, (16, 16)).astype(np.float32)

    def encode(matrix: np.ndarray) -> np.ndarray:
        if kind == 0:
            table = {value: code for code, value in enumerate(host.fp8_fnuz_values())}
            return np.vectorize(table.__getitem__)(matrix).astype(np.uint8)
        return host.bf16(matrix) if kind == 1 else matrix.astype(np.float16)

    c = host.Guarded(np.array([[start[lane // 16 * 4 + i, lane % 16] for i in range(4)] for lane in range(64)]))
    status = run(
        MULTIPLY, host.Guarded(_by_lane(encode(a), per_lane)), host.Guarded(_by_lane(encode(b), per_lane)), c, kind)
    assert status == 0
    want = start + a @ b.T
    got = np.array([[c.array[row // 4 * 16 + column, row % 4] for column in range(16)] for row in range(16)])
    np.testing.assert_array_equal(got, want)


def test_fp8_is_the_fnuz_flavour() -> None:
    values = host.fp8_fnuz_values()
    assert np.nanmax(values) == 240
    assert values[0x40] == 1.0
    assert values[1] == 2.0**-10
    assert np.isnan(values).sum() == 1


def test_lane_exchange(run: host.HostKernel) -> None:
    out = host.Guarded(np.zeros((4, 128), np.float32))
    assert run(EXCHANGE, None, None, out, 0) == 0
    lanes = np.arange(128) % 64
    np.testing.assert_array_equal(out.array[0], lanes ^ 16)
    np.testing.assert_array_equal(out.array[1], lanes ^ 32)
    np.testing.assert_array_equal(out.array[2], np.arange(128) // 64)
    assert (out.array[3] == float(0x06010402)).all()


@pytest.mark.parametrize("order", host.ORDERS)
def test_a_barrier_makes_the_order_irrelevant(run: host.HostKernel, order: int) -> None:
    out = host.Guarded(np.zeros(256, np.float32))
    assert run(REVERSE, None, None, out, 1, order=order) == 0
    np.testing.assert_array_equal(out.array, np.arange(256)[::-1])


@pytest.mark.parametrize("order", host.ORDERS)
def test_a_missing_barrier_shows(run: host.HostKernel, order: int) -> None:
    out = host.Guarded(np.zeros(256, np.float32))
    assert run(REVERSE, None, None, out, 0, order=order) == 0
    assert np.isnan(out.array).any()


def test_shared_memory_is_poisoned_before_every_workgroup(run: host.HostKernel) -> None:
    out = host.Guarded(np.zeros(64, np.float32))
    assert run(UNINITIALISED, None, None, out, 0) == 0
    assert np.isnan(out.array).all()


@pytest.mark.parametrize(("which", "message"), [
    (HALF_WAVE, "waits in ds_swizzle"), (HALF_BARRIER, "barrier that others left out"),
    (BIG_GRID, "launch configuration")])
def test_divergence_is_reported(run: host.HostKernel, which: int, message: str) -> None:
    out = host.Guarded(np.zeros(64, np.float32))
    with pytest.raises(AssertionError, match=message):
        run(which, None, None, out, 0)


@pytest.mark.parametrize("index", [1024, -1024])
def test_an_access_outside_faults(run: host.HostKernel, index: int) -> None:
    with pytest.raises(AssertionError, match="outside every operand"):
        run(STORE_AT, None, None, host.Guarded(np.zeros(1024, np.float32)), index)


def test_a_store_into_the_slack_is_noticed(run: host.HostKernel) -> None:
    with pytest.raises(AssertionError, match="written outside the array"):
        run(STORE_AT, None, None, host.Guarded(np.zeros(5, np.float32)), 5)


def test_buffers_end_where_they_say(run: host.HostKernel) -> None:
    """24 of 32 dwords are inside for loads, 22 for stores; nothing else is touched, whole workgroup or not."""
    source, out = host.Guarded(np.arange(24, dtype=np.float32)), host.Guarded(np.full(24, -1, np.float32))
    assert run(COPY, source, None, out, 96) == 0
    np.testing.assert_array_equal(out.array, [*range(22), -1, -1])
