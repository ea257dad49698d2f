# SPDX-License-Identifier: MIT
"""amd_moe on MI300 beside the AMD challenge's winner, RadeonFlow, all modelled: same run, same model, part by part.

    python benchmarks/tools/rivals_moe.py --sources DIR [--all-solutions] [--check]

``DIR`` has checkouts named ``owner+repository`` (published_programs.py lists them; hipblaslt.py says what it needs
besides). RadeonFlow's layer is its own kernels around the fp16 products of hipBLASLt, which it picks by index; an index
counts the solutions of one build of the library, in the order in which that build's file system listed their files. So
for each of its four products the fastest solution in this model stands in: of ``SOLUTIONS``, or of all with tiles of
128 x 112 and more with ``--all-solutions``.

Not modelled, in its favour: the router's product (PyTorch's), hipCUB's sort of tokens by experts, the copy of the
experts' counts to the host that its products wait for, and the host's time. ``--check`` runs a small layer whole.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from emulated import Emulator, modelled
from emulator_model import layers
from hipblaslt import Kernel, Product, solutions
from published_programs import BEGIN, Program, folder
from validate_model import built, headers

# The fastest ones for each product in searches of 39 to 47 of them, and those next to them.
SOLUTIONS = (r"MT(256x144x64_MI16x16x1|256x160x64_MI32|256x128x32_MI32|256x208x32|256x208x64|256x112x64|"
             r"128x160x32_MI32|128x128x64_MI32|128x112x64|160x128x64_MI32)")
ALL = r"MT(128|160|192|224|256)x(112|128|144|160|192|208|224|240|256)x"
OURS = {"router": ("choose_experts",), "rows by experts": ("list_rows", "plan_tiles"),
        "gate, up and SiLU": ("expand",), "down": ("reduce",), "sum of a token's rows": ("combine",)}


@dataclass(frozen=True)
class Shape:
    tokens: int
    hidden: int = 7168
    inner: int = 2048
    experts: int = 32
    chosen: int = 4

    @property
    def pairs(self) -> int:
        return self.tokens * self.chosen


def program(sources: Path, shape: Shape) -> Program:
    """Its own kernels, launched as its ``run_topk_impl`` does."""
    t, h, i, e, c = shape.tokens, shape.hidden, shape.inner, shape.experts, shape.chosen
    steps = {
        "top_k": (f"topk_kernel<16, {c}, {e}, 8, {t}, true, ck::half8_t><<<{-(-t // (16 * 1024 // e))}, dim3(64, 16)>>>"
                  "((__half*)b[0], (int*)b[1], (__half*)b[2], (int*)b[3])"),
        "offsets": f"compute_first_token_offset<{t}, {e}, {c}><<<{-(-t * c // 256)}, 256>>>((int*)b[0], (int*)b[1])",
        "gather": (f"expand_input<{t}, {e}, {c}, {h}, 16, 8, ck::half8_t><<<{-(-t * c // (768 // (h // 16)))}, "
                   f"{768 // (h // 16) * (h // 16)}>>>((__half*)b[0], (__half*)b[1], (__half*)b[2], (__half*)b[3], "
                   "(int*)b[4], (int*)b[5])"),
        **{name: (f"moe_gemm_reduce_ab<true, __half, {rows}, {i}, 4, ck::half4_t><<<{-(-rows * i // 2048)}, 512>>>"
                  "((__half*)b[0], (__half*)b[1], (__half*)b[2])")
           for name, rows in (("silu", t * c), ("shared_silu", t))},
        "sum": (f"reduce_output<{t}, {e}, {c}, {h}, 32, 8, ck::half8_t><<<{-(-t // (768 // (h // 32)))}, "
                f"{768 // (h // 32) * (h // 32)}>>>((const __half(*)[{h}])b[0], (const __half(*)[{h}])b[1], "
                f"(__half(*)[{h}])b[2], (int*)b[3], (int*)b[4], (__half*)b[5])"),
    }
    text = BEGIN + '#define warpSize 64\n#include "moe_topk_kernel.cpp"\n#include "moe_gemm_pipeline_kernel.cpp"\n'
    for name, launch in steps.items():
        text += f"ENTRY int {name}(char** b) {{\n    {launch};\n    return hipGetLastError();\n}}\n"
    return Program(f"radeonflow_moe_{t}_{h}", text, (folder(sources, "radeonflow") / "src" / "moe",))


def stand_ins(extra: Path) -> None:
    """Headers that its files name and nothing that is launched needs, beside the others'."""
    stand_in = Path(__file__).with_name("ck_stand_in.h").resolve()
    for name in ("ck/utility/data_type.hpp", "ck/utility/amd_buffer_addressing.hpp"):
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).unlink(missing_ok=True)
        (extra / name).symlink_to(stand_in)
    for name in ("hipcub/hipcub.hpp", "hipcub/block/block_radix_sort.hpp"):
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).write_text("#pragma once\n")


class Layer:
    """RadeonFlow's arrays and what it launches, in its order."""

    def __init__(self, library: ctypes.CDLL, shape: Shape, data: Sequence[torch.Tensor] | None = None):
        self._library, self.shape = library, shape
        t, h, i, e, p = shape.tokens, shape.hidden, shape.inner, shape.experts, shape.pairs
        if data is None:
            generator = torch.Generator().manual_seed(1)
            data = (torch.empty(t, h, dtype=torch.half), torch.randn(t, e, generator=generator).half(),
                    *(torch.empty(e + 1, *size, dtype=torch.half) for size in ((h, i), (h, i), (i, h))))
        self.x, self.scores, self.gate, self.up, self.down = data
        # What its sort makes of the top-k kernel's choices.
        choices = torch.topk(self.scores.float(), shape.chosen).indices
        order = torch.argsort(choices.view(-1), stable=True)
        self.permuted_experts = choices.view(-1)[order].int()
        self.permuted_rows = (order % shape.chosen * t + order // shape.chosen).int()
        counts = torch.bincount(choices.view(-1), minlength=e).tolist()
        self.begins = [sum(counts[:expert]) for expert in range(e + 1)]
        self.index, self.source, self.back = (torch.empty(p, dtype=torch.int) for _ in range(3))
        self.back[self.permuted_rows.long()] = torch.arange(p, dtype=torch.int)     # as the gather; a sample of it runs
        self.offset = torch.empty(e + 1, dtype=torch.int)
        self.weight, self.expanded_weight = (torch.empty(p, dtype=torch.half) for _ in range(2))
        self.expanded, self.results = (torch.empty(p, h, dtype=torch.half) for _ in range(2))
        self.gate_out, self.up_out, self.inner_out = (torch.empty(p, i, dtype=torch.half) for _ in range(3))
        self.shared_gate, self.shared_up, self.shared_inner = (torch.empty(t, i, dtype=torch.half) for _ in range(3))
        self.shared, self.y = (torch.empty(t, h, dtype=torch.half) for _ in range(2))

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}

    def _run(self, name: str, *arguments: torch.Tensor) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*(each.data_ptr() for each in arguments))
        if status := getattr(self._library, name)(pointers):
            raise SystemExit(f"{name}: status {status}")

    def _expert(self, a: torch.Tensor, matrices: torch.Tensor, c: torch.Tensor) -> list[Product]:
        """A product for each expert, of its rows of a and c."""
        k, n = matrices.shape[1:]
        return [Product(a.data_ptr() + 2 * k * begin, matrices[expert].data_ptr(), c.data_ptr() + 2 * n * begin,
                        end - begin, n, k)
                for expert, (begin, end) in enumerate(zip(self.begins, self.begins[1:], strict=False))]

    def _shared(self, a: torch.Tensor, matrices: torch.Tensor, c: torch.Tensor) -> Product:
        k, n = matrices.shape[1:]
        return Product(a.data_ptr(), matrices[-1].data_ptr(), c.data_ptr(), self.shape.tokens, n, k)

    def products(self) -> dict[str, Callable[[Kernel, int], None]]:
        """Its four kinds of products by a solution; those of one kind by the same one."""
        def gate_and_up(kernel: Kernel, bands: int) -> None:
            kernel.single(self._shared(self.x, self.gate, self.shared_gate), bands)
            kernel.single(self._shared(self.x, self.up, self.shared_up), bands)
        return {
            "gate and up, grouped": lambda kernel, bands: kernel.grouped(
                self._expert(self.expanded, self.gate, self.gate_out)
                + self._expert(self.expanded, self.up, self.up_out), bands),
            "down, grouped": lambda kernel, bands: kernel.grouped(
                self._expert(self.inner_out, self.down, self.results), bands),
            "gate and up, shared": gate_and_up,
            "down, shared": lambda kernel, bands: kernel.single(
                self._shared(self.shared_inner, self.down, self.shared), bands)}

    def call(self, chosen: dict[str, tuple[Kernel, int]]) -> None:
        """The whole layer, but for what is not modelled."""
        products = self.products()
        self._run("top_k", self.scores, self.index, self.weight, self.source)
        self._run("offsets", self.permuted_experts, self.offset)
        self._run("gather", self.x, self.expanded, self.weight, self.expanded_weight, self.permuted_rows, self.back)
        for name, silu in (("gate and up, grouped", ("silu", self.gate_out, self.up_out, self.inner_out)),
                           ("down, grouped", None),
                           ("gate and up, shared",
                            ("shared_silu", self.shared_gate, self.shared_up, self.shared_inner)),
                           ("down, shared", None)):
            products[name](*chosen[name])
            if silu:
                self._run(*silu)
        self._run("sum", self.results, self.shared, self.y, self.back, self.permuted_experts, self.expanded_weight)


def fastest(emulator: Emulator, layer: Layer, kernels: Sequence[Kernel]) -> dict[str, tuple[Kernel, int]]:
    """For each kind of product the solution that takes the least, and in bands of how many tiles; its grouped ones have
    bands of one. A smaller sample than the table's decides."""
    found = {}
    emulator.set(sample=8)
    for name, run in layer.products().items():
        times = {}
        for kernel in kernels:
            for bands in (1,) if "grouped" in name else (1, 8):
                emulator.counters()
                run(kernel, bands)
                times[kernel, bands] = modelled(emulator.counters())
        found[name] = min(times, key=times.__getitem__)
    return found


def verdict(layer: Layer) -> str:
    """Of a small layer, by the challenge's own tolerance, with the experts that its scores in fp16 choose."""
    x, scores = layer.x.double(), torch.softmax(layer.scores.float(), 1).half().double()
    matrices = [each.double() for each in (layer.gate, layer.up, layer.down)]

    def expert(number: int, rows: torch.Tensor) -> torch.Tensor:
        gate, up, down = (each[number] for each in matrices)
        inner: torch.Tensor = torch.nn.functional.silu(rows @ gate) * (rows @ up)
        return inner @ down
    want = expert(-1, x)
    best = torch.topk(layer.scores.float(), layer.shape.chosen).indices
    for number in range(layer.shape.experts):
        tokens = (best == number).any(1)
        want[tokens] += scores[tokens, number, None] * expert(number, x[tokens])
    wrong = ~((layer.y.double() - want).abs() <= 1e-2 * want.abs() + 1e-2)
    return f"WRONG: {int(wrong.sum())} of {wrong.numel()}" if wrong.any() else "right"


def small(shape: Shape) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)

    def normal(*size: int) -> torch.Tensor:
        return (torch.randn(size, generator=generator) / size[-2] ** 0.5).half()
    e, h, i = shape.experts + 1, shape.hidden, shape.inner
    x = torch.randn(shape.tokens, h, generator=generator).half()
    return x, (x.float() @ normal(h, shape.experts).float()).half(), normal(e, h, i), normal(e, h, i), normal(e, i, h)


def tell(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]],
         chosen: dict[str, tuple[Kernel, int]]) -> None:
    def microseconds(numbers: Sequence[int]) -> float:
        return sum(float(theirs[number]["modelled_us"]) for number in numbers)
    rows = {"router": ("top-k, without the product", (0,)),
            "rows by experts": ("offsets and gather, without the sort", (1, 2)),
            "gate, up and SiLU": ("three products, SiLU twice", (3, 4, 6, 7, 8)), "down": ("two products", (5, 9)),
            "sum of a token's rows": ("the same", (10,))}
    print("| part | ours, µs | RadeonFlow's, µs | its |")
    print("|---|---|---|---|")
    for part, names in OURS.items():
        mine = sum(each["modelled_us"] for each in ours if any(name in each["kernel"] for name in names))
        its, numbers = rows[part]
        print(f"| {part} | {mine:.1f} | {microseconds(numbers):.1f} | {its} |")
    mine, its_all = modelled(list(ours)), modelled(list(theirs))
    print(f"| all | {mine:.1f} | {its_all:.1f} | RadeonFlow / ours {its_all / mine:.2f} |\n")
    for name, (kernel, bands) in chosen.items():
        print(f"{name}: {kernel.solution.tile}, bands of {bands}")
    scratch = any(each["resources"]["scratch_bytes"] for each in (*ours, *theirs))
    print("modelled" + ("; some launch has scratch" if scratch else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("/tmp/warpwave-published"))
    parser.add_argument("--all-solutions", action="store_true", help="the fastest of all large ones")
    parser.add_argument("--check", action="store_true", help="is a small layer right, by each solution")
    parser.add_argument("--sample", type=int, default=16, help="workgroups of each of its launches that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    options = parser.parse_args()
    options.build.mkdir(parents=True, exist_ok=True)
    extra = headers(options.sources, options.build)
    stand_ins(extra)
    emulator = Emulator()
    emulator.set(checks="none", threads=options.threads, counters=0 if options.check else 1)
    found = solutions(options.sources, options.build, ALL if options.all_solutions else SOLUTIONS)
    kernels = [Kernel(emulator, each) for each in found]

    def layer_of(shape: Shape, data: Sequence[torch.Tensor] | None = None) -> Layer:
        library = built(program(options.sources, shape), extra, options.build)
        if isinstance(library, str):
            raise SystemExit(f"RadeonFlow's kernels do not compile: {library}")
        layer = Layer(ctypes.CDLL(str(library)), shape, data)
        emulator.register(layer.tensors())
        return layer

    if options.check:
        shape = Shape(512, 1024, 512)
        layer = layer_of(shape, small(shape))
        for kernel in kernels:
            layer.y.fill_(torch.nan)
            layer.call(dict.fromkeys(layer.products(), (kernel, 1)))
            print(f"with {kernel.solution.tile}: {verdict(layer)}", flush=True)
        return
    for case, ours in layers(emulator, "amd_moe"):
        tokens = int(case.split()[-1])
        print(f"\n{tokens} tokens\n")
        layer = layer_of(Shape(tokens))
        chosen = fastest(emulator, layer, kernels)
        emulator.set(sample=options.sample)
        emulator.counters()
        layer.call(chosen)
        tell(ours, emulator.counters(), chosen)
        emulator.unregister(layer.tensors())


if __name__ == "__main__":
    main()
