# SPDX-License-Identifier: MIT
"""Published MI300X programs that the timing model is validated with: where they are, how they are built, their times.

Their sources are fetched by whoever validates and stay outside of this repository; their published times are facts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORIES = {
    "ladder": ("gau-nernst/learn-cuda", "1454f8b"),
    "radeonflow": ("RadeonFlow/RadeonFlow_Kernels", "685749e"),
    "luong": ("luongthecong123/fp8-quant-matmul", ""),
    "snektron": ("Snektron/gpumode-amd-fp8-mm", "047abe1"),
    "hipkittens": ("HazyResearch/HipKittens", "2538b4d"),       # the head of its branch cdna3; main is for CDNA 4
    "moonmath": ("moonmath-ai/amd-kernels", "5f758e7"),
    "hipblaslt": ("ROCm/hipBLASLt", "7d9fb683"),     # October 2024
    "clr": ("ROCm/clr", "f9f995c"),          # headers for FP8, bf16 and cooperative groups
    "hip": ("ROCm/HIP", "c5e11fc"),
}
SEED = 1            # of the subset of Snektron's configurations
CONFIGURATIONS = 16

# TFLOP/s, bf16, 4096³ (README of 02d_matmul_cdna3).
LADDER = {"v1a": 122.21, "v1b": 244.72, "v2": 369.57, "v3a": 421.10, "v3b": 454.12}

# µs a launch of ten back to back, by rows and columns of the input (comments of transpose_kernel.cpp).
TRANSPOSES = {
    (256, 1024): 2.71, (256, 6144): 2.72, (256, 7168): 2.99, (512, 1024): 2.55, (512, 4096): 3.01, (512, 6144): 3.58,
    (1536, 1024): 2.78, (1536, 3072): 3.57, (1536, 6144): 7.09, (2048, 1024): 2.84, (2048, 6144): 8.94,
    (2048, 7168): 9.56, (2304, 1024): 3.08, (2304, 6144): 9.30, (2304, 7168): 10.39, (7168, 512): 3.25,
    (7168, 576): 3.44, (7168, 1024): 5.07, (7168, 1536): 7.72, (7168, 4608): 16.87, (7168, 6144): 21.59,
}
# µs of both transposes, the product and the reduction, and the split of K that its authors chose (README).
RADEONFLOW = {
    (1024, 1536, 7168): (76.33, 4), (1024, 3072, 1536): (42.78, 2), (1024, 576, 7168): (45.14, 8),
    (1024, 7168, 256): (20.37, 1), (1024, 7168, 2048): (75.29, 1), (1024, 4608, 7168): (136.35, 2),
}
# Splits that are compared with the authors' choice; a product of 7168 x 7168 takes too long to ask for more.
# Parts of K of the contest's other shapes, as their launcher chooses (gemm_launcher.cpp); 1 where none is named.
RADEONFLOW_PARTS = {(1024, 512, 7168): 8, (6144, 576, 7168): 2, (6144, 512, 7168): 2}
SPLITS = {(1024, 1536, 7168): (1, 2, 4, 8), (1024, 3072, 1536): (1, 2, 4), (1024, 576, 7168): (2, 4, 8),
          (1024, 7168, 2048): (1, 2), (1024, 4608, 7168): (1, 2, 4)}
# µs, fifth of 163 (README).
LUONG = {
    (1024, 1536, 7168): 147, (1024, 3072, 1536): 50.6, (1024, 576, 7168): 75.9, (1024, 7168, 256): 30.9,
    (1024, 7168, 2048): 106, (1024, 4608, 7168): 193, (1024, 7168, 2304): 120, (1024, 512, 7168): 75.1,
    (1024, 4096, 512): 30.9, (6144, 1536, 7168): 341, (6144, 3072, 1536): 160, (6144, 576, 7168): 173,
    (6144, 7168, 256): 88.6, (6144, 7168, 2048): 426, (6144, 4608, 7168): 948, (6144, 7168, 2304): 479,
    (6144, 512, 7168): 163, (6144, 4096, 512): 97.7,
}
# The README says that small M and N with a large K have a kernel of their own, not for which shapes.
LUONG_SMALL = {(1024, 1536, 7168), (1024, 576, 7168), (1024, 512, 7168)}

HIPKITTENS = "kernels/gemm/bf16fp32/mi325x/8192_256_256_64_16/256_256_64_16.cpp"

BEGIN = """
#include <hip/hip_runtime.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>
#define ENTRY extern "C" __attribute__((visibility("default")))
"""


@dataclass(frozen=True)
class Program:
    """A source to compile: its text, include folders. ``calls`` are compiled in as C symbols."""

    name: str
    text: str
    folders: tuple[Path, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One published time: ``symbol(buffers, numbers)`` of a program does what was timed."""

    family: str
    name: str
    program: str
    symbol: str
    published: float                 # µs
    numbers: tuple[int, ...] = ()
    fitted: bool = False             # of the half that constants may be fitted to
    shape: tuple[int, ...] = ()
    labels: dict[str, object] = field(default_factory=dict)
    counted: int = 0                 # the last launches, which were timed; 0: all
    warm: tuple[tuple[int, int], ...] = ()      # buffers, and bytes of them, that the caches hold when the clock starts


def folder(sources: Path, name: str) -> Path:
    """The checkout ``owner+repository`` in ``sources``; raises ``SystemExit`` that says how to get it."""
    repository, _commit = REPOSITORIES[name]
    place = sources / repository.replace("/", "+")
    if not place.is_dir():
        raise SystemExit(f"{place} is missing: git clone https://github.com/{repository} {place}")
    return place


Family = tuple[list[Program], list[Row]]


def ladder(sources: Path) -> Family:
    """bf16 4096³. The two last steps are compiled with clang's vectors in place of HIP's float4, which clang 22 keeps
    in scratch there; the authors' compiler did not."""
    place = folder(sources, "ladder") / "02d_matmul_cdna3"
    programs, rows = [], []
    for number, (step, rate) in enumerate(LADDER.items()):
        vectors = "typedef float vector4 __attribute__((ext_vector_type(4)));\n#define float4 vector4\n"
        text = BEGIN + (vectors if step.startswith("v3") else "") + f'#include "matmul_{step[:2]}.cu"\n' + f"""
ENTRY int run_{step}(char** buffer, const int*) {{
    using T = __hip_bfloat16;
    matmul_{step}((T*)buffer[0], (T*)buffer[1], (T*)buffer[2], 4096, 4096, 4096, nullptr);
    return hipGetLastError();
}}
"""
        programs.append(Program(f"ladder_{step}", text, (place,)))
        rows.append(Row("ladder", step, f"ladder_{step}", f"run_{step}", 2 * 4096**3 / rate * 1e-6, shape=(4096,) * 3,
                        fitted=number % 2 == 0))
    return programs, rows


def transposes(sources: Path) -> Family:
    place = folder(sources, "radeonflow") / "src" / "gemm"
    text = BEGIN + '#define warpSize 64\n#define PARAMETERIZE_LIBRARY\n#include "transpose_kernel.cpp"\n'
    rows = []
    for number, ((m, n), published) in enumerate(TRANSPOSES.items()):
        text += f"""
ENTRY int transpose_{m}_{n}(char** buffer, const int*) {{
    transpose_kernel::transpose_fp8<{m}, {n}>((__FP8_TYPE*)buffer[1], (__FP8_TYPE*)buffer[0]);
    return hipGetLastError();
}}
"""
        rows.append(Row("transpose", f"{m}×{n}", "transposes", f"transpose_{m}_{n}", published, shape=(m, n),
                        fitted=number % 2 == 0, warm=((0, m * n), (1, m * n))))
    return [Program("transposes", text, (place,))], rows


RADEONFLOW_BEGIN = BEGIN + ('#define warpSize 64\n#define PARAMETERIZE_LIBRARY\n#include "gemm_kernel.cpp"\n'
                            '#include "transpose_kernel.cpp"\n')


def _radeonflow_call(m: int, n: int, k: int, split: int, symbol: str) -> str:
    """Two transposes, the product and, with several parts of K, the reduction: what their launch_gemm launches."""
    out = "__BF16_TYPE" if split == 1 else "float"
    kernel = (f"gemm_kernel::gemm_kernel<__FP8_TYPE, float, {out}, {m}, {n}, {k // split}, 256, 128, 128, 128, "
              f"512, 4, 2, {k}, {k}, 16>")
    text = f"""
ENTRY int {symbol}(char** buffer, const int*) {{
    using F8 = __FP8_TYPE;
    transpose_kernel::transpose_fp8<{k}, {n}>((F8*)buffer[3], (F8*)buffer[1]);
    transpose_kernel::transpose_fp8<{k}, {m}>((F8*)buffer[2], (F8*)buffer[0]);
    const dim3 grid({-(-n // 128) * 2}, {-(-m // 256) // 2}, {split});
    {kernel}<<<grid, 512>>>((const F8(*)[{k}])buffer[2], (const F8(*)[{k}])buffer[3],
        ({out}(*)[{n}])buffer[{4 if split == 1 else 5}], (const float(*)[{m}])buffer[6],
        (const float(*)[{-(-n // 128)}])buffer[7]);
"""
    if split > 1:
        text += f"""    gemm_kernel::reduce_kernel<{m}, {n}, {split}, 256><<<{m * n // 4 // 256}, 256>>>(
        (const float(*)[{m}][{n}])buffer[5], (__BF16_TYPE(*)[{n}])buffer[4]);
"""
    return text + "    return hipGetLastError();\n}\n"


def radeonflow(sources: Path) -> Family:
    """The whole chain; of the splits that the authors did not choose, only who wins is known."""
    place = folder(sources, "radeonflow") / "src" / "gemm"
    programs, rows = [], []
    for number, ((m, n, k), (published, chosen)) in enumerate(RADEONFLOW.items()):
        text = RADEONFLOW_BEGIN
        name = f"radeonflow_{m}_{n}_{k}"
        for split in SPLITS.get((m, n, k), (chosen,)):
            text += _radeonflow_call(m, n, k, split, f"run_{split}")
            rows.append(Row("radeonflow", f"{m}×{n}×{k}/{split}", name, f"run_{split}",
                            published if split == chosen else 0, shape=(m, n, k), fitted=number % 2 == 0,
                            labels={"split": split, "chosen": chosen}))
        programs.append(Program(name, text, (place,)))
    return programs, rows


def luong_programs(sources: Path) -> list[Program]:
    """``run`` of the kernel for large M and N, and of the one for small M and N with a large K."""
    place = folder(sources, "luong")
    begin = BEGIN + """#include <hip/hip_cooperative_groups.h>
#include <rocwmma/rocwmma.hpp>
namespace cg = cooperative_groups;
using floatx16 = __attribute__((__vector_size__(16 * sizeof(float)))) float;
"""
    programs = []
    for kind, kernel in (("large", "in_smem_kernel"), ("small", "k_large_kernel")):
        first, second = ("N", "M") if kind == "large" else ("M", "N")
        programs.append(Program(f"luong_{kind}", begin + f"""#include "mn_{kind}.hip"
ENTRY int run(char** buffer, const int* size) {{
    const int M = size[0], N = size[1], K = size[2];
    using F8 = __hip_fp8_e4m3_fnuz;
    constexpr int kX = NUM_WARP_X * WMMA_N, kY = NUM_WARP_Y * WMMA_M;
    {kernel}<<<dim3(({first} + kX - 1) / kX, ({second} + kY - 1) / kY), dim3(64 * NUM_WARP_X, NUM_WARP_Y)>>>(
        (F8*)buffer[0], (F8*)buffer[1], (float*)buffer[6], (float*)buffer[7], (rocwmma::bfloat16_t*)buffer[4], M, N, K);
    return hipGetLastError();
}}
""", (place,)))
    return programs


def luong(sources: Path) -> Family:
    rows = [Row("luong", "×".join(map(str, shape)), f"luong_{'small' if shape in LUONG_SMALL else 'large'}", "run",
                published, shape, number % 2 == 0, shape) for number, (shape, published) in enumerate(LUONG.items())]
    return luong_programs(sources), rows


CONFIG = re.compile(r"mma: \((\d+) (\d+) (\d+)\) \((\d+) (\d+) (\d+)\) \((\d+) (\d+) (\d+)\) (\d) (\d) (\d+): "
                    r".* ms (\S+) us")


def snektron_times(sources: Path) -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
    """µs of the product alone by shape and configuration (block tile, warp tile, depth, fused, threads); the
    least of several runs."""
    times: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    for line in (folder(sources, "snektron") / "results.txt").read_text(errors="replace").splitlines():
        if found := CONFIG.match(line):
            values = tuple(int(value) for value in found.groups()[:-1])
            of_shape = times.setdefault(values[:3], {})
            of_shape[values[3:]] = min(float(found[13]), of_shape.get(values[3:], 1e9))
    return times


def _operands(m: int, n: int, k: int) -> tuple[tuple[int, int], ...]:
    return ((0, m * k), (1, n * k), (2, m * k), (3, n * k), (4, 2 * m * n))


SNEKTRON_CHOICE = re.compile(r"m == (\d+) && n == (\d+) && k == (\d+)\) \{\s*run_kernel<(\d+), "
                             r"cube\{(\d+), (\d+), (\d+)\}, cube\{(\d+), (\d+), (\d+)\}, (\d), (\w+), (\w+)>")


def _snektron_program(place: Path, config: tuple[int, ...]) -> Program:
    """``run`` of one configuration: block tile, warp tile, depth, fused, threads."""
    bm, bn, bk, wm, wn, wk, depth, fused, threads = config
    source = (place / "solution.hip").read_text()
    source = source[:source.index("void run(\n")].replace("#include <pybind11/pybind11.h>", "")
    operands = "(const fp8*)buffer[0], (const fp8*)buffer[1], (const fp32*)buffer[6], (const fp32*)buffer[7]"
    truth = ("false", "true")
    return Program("snektron_" + "_".join(map(str, config)), BEGIN + "#include <cstdint>\n" + source + f"""
ENTRY int run(char** buffer, const int* size) {{
    tmp_aT = (fp8*)buffer[2], tmp_bT = (fp8*)buffer[3], streamk_tmp = (fp32*)buffer[5];
    streamk_counter = (int*)buffer[8];
    prev_m = size[0], prev_n = size[1], prev_k = size[2];
    run_kernel<{threads}, cube{{{bm}, {bn}, {bk}}}, cube{{{wm}, {wn}, {wk}}}, {depth}, {truth[fused]}, false>(
        {operands}, (bf16*)buffer[4], size[0], size[1], size[2], false);
    return hipGetLastError();
}}
""", ())


def snektron(sources: Path, configurations: int = CONFIGURATIONS) -> Family:
    """One templated kernel: ``configurations`` of those that every shape was timed with, drawn by ``SEED``; 0: all."""
    place = folder(sources, "snektron")
    times = snektron_times(sources)
    everywhere = sorted(set.intersection(*(set(each) for each in times.values())))
    random.Random(SEED).shuffle(everywhere)
    programs, rows = [], []
    for config in sorted(everywhere[:configurations or None]):
        programs.append(_snektron_program(place, config))
        for number, shape in enumerate(times):
            rows.append(Row("snektron", f"{'×'.join(map(str, shape))} {config}", programs[-1].name, "run",
                            times[shape][config], shape, number % 2 == 0, shape, {"configuration": config}, 1,
                            _operands(*shape)))
    return programs, rows


def contest(sources: Path) -> dict[str, Callable[[tuple[int, int, int]], Program | str]]:
    """amd_fp8_mm's published entrants: a shape's program, whose ``run(buffers, (m, n, k))`` makes the whole call, or
    why there is none."""
    def radeon(shape: tuple[int, int, int]) -> Program:
        m, n, k = shape
        parts = RADEONFLOW[shape][1] if shape in RADEONFLOW else RADEONFLOW_PARTS.get(shape, 1)
        return Program(f"radeonflow_call_{m}_{n}_{k}", RADEONFLOW_BEGIN + _radeonflow_call(m, n, k, parts, "run"),
                       (folder(sources, "radeonflow") / "src" / "gemm",))

    large, small = luong_programs(sources)

    def few(shape: tuple[int, int, int]) -> Program | str:
        return small if shape[2] % 256 == 0 else "its kernel for a large K takes multiples of 256"

    place = folder(sources, "snektron")
    choices = SNEKTRON_CHOICE.findall((place / "solution.hip").read_text())
    chosen = {tuple(map(int, found[:3])): found[3:] for found in choices}
    published = snektron_times(sources)

    def snek(shape: tuple[int, int, int]) -> Program | str:
        if shape not in chosen:
            return "its host code names no configuration"
        threads, *tiles, depth, fused, streamk = chosen[shape]
        if streamk == "false":
            return _snektron_program(place, (*map(int, tiles), int(depth), int(fused == "true"), int(threads)))
        # Its stream-K workgroups wait for each other, which neither a sample nor the model can do. The fastest
        # published configuration that needs neither that nor a transpose stands in.
        alone = {config: time for config, time in published[shape].items() if config[7] == 1}
        return _snektron_program(place, min(alone, key=lambda config: alone[config]))

    return {"radeonflow": radeon, "luong_large": lambda _shape: large, "luong_small": few, "snektron": snek}


def hipkittens(sources: Path, size: int) -> Program:
    """Its 8-wave bf16 product for CDNA 3: ``run(buffers, None)`` multiplies size × size matrices (0, 1; the second one
    transposed) into buffer 4. The source is written for 8192; other multiples of 256 replace that number."""
    place = folder(sources, "hipkittens")
    return Program(f"hipkittens_{size}", hipkittens_text((place / HIPKITTENS).read_text(), size), (place / "include",))


def hipkittens_text(source: str, size: int) -> str:
    """Its file without Python's bindings, for another size, with an entry of ours."""
    source = source[:source.index("PYBIND11_MODULE")].replace('#include "pyutils/pyutils.cuh"', "")
    source, found = re.subn(r"^#define ([MNK]) 8192$", rf"#define \1 {size}", source, flags=re.MULTILINE)
    assert found == 3, "not the source that this was written for"
    return BEGIN + "#define KITTENS_CDNA3\n#include <hip/hip_bf16.h>\n#include <hip/hip_fp16.h>\n" + source + """
ENTRY int run(char** buffer, const int*) {
    micro_globals operands{_gl_A((bf16*)buffer[0], 1, 1, M, K), _gl_B((bf16*)buffer[1], 1, 1, N, K),
                           _gl_C((bf16*)buffer[4], 1, 1, M, N), nullptr};
    dispatch_micro(operands);
    return hipGetLastError();
}
"""


# Its products in inline assembly, which add to their first operand or to 0. Written as the compiler knows them clang 22
# keeps 111 registers in scratch in place of 777, and with -O1 ten; its authors' compiler kept none.
MOONMATH_PRODUCT = re.compile(
    r'asm volatile\("v_mfma_f32_16x16x16_bf16 [^"]*, (%0|0)" : "[^"]*"\((\w+)\) : "v"\((\w+)\), "v"\((\w+)\)\);')


def moonmath_products(source: str) -> str:
    """Its file with every product by the compiler's builtin."""
    def builtin(found: re.Match[str]) -> str:
        where, result, a, b = found.groups()
        before = result if where == "%0" else "fp32x4_t{0, 0, 0, 0}"
        return f"{result} = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k({a}, {b}, {before}, 0, 0, 0);"
    return MOONMATH_PRODUCT.sub(builtin, source)


def moonmath(sources: Path, rounding: str) -> Program:
    """``run(buffers, (batch, heads, queries, keys))`` of moonmath's attention: the whole call with V's transpose, bf16,
    rows of all heads side by side. Buffers: q, k, v, transposed v, o, workspace. ``rounding``: RTNE or RTZ."""
    place = folder(sources, "moonmath") / "csrc"
    source = (place / "attention_kernel.hip").read_text()
    if len(MOONMATH_PRODUCT.findall(source)) != 2:
        raise SystemExit(f"{place}: another version than {REPOSITORIES['moonmath'][1]}")
    source = moonmath_products(source)
    return Program(f"moonmath_{rounding}", f"#define BF16_ROUND {rounding}\n" + source + """
extern "C" __attribute__((visibility("default"))) int run(char** buffer, const int* size) {
    const int failed = launch_v_transpose(
        buffer[2], buffer[3], size[0] * size[1] * size[3], size[3], size[1], 1, nullptr);
    return failed ? failed : launch_attention_forward(
        buffer[0], buffer[1], buffer[3], buffer[4], size[0], size[1], size[2], size[3], 128, 1, buffer[5], nullptr);
}
""", (place,), ("-O1", "-ffast-math", "-fno-math-errno"))


def families(sources: Path, configurations: int = CONFIGURATIONS) -> dict[str, Callable[[], Family]]:
    """Every family by name: its programs and its rows; made when it is its turn, as not every source need be there."""
    return {
        "ladder": lambda: ladder(sources), "transposes": lambda: transposes(sources),
        "radeonflow": lambda: radeonflow(sources), "luong": lambda: luong(sources),
        "snektron": lambda: snektron(sources, configurations)}
