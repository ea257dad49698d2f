# SPDX-License-Identifier: MIT
"""What a kernel launches in the cases of its problem, found without a GPU: the host code runs in the sandbox, against a
runtime that only writes launches down (``scoring.worker.launches``)."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from backends.base import Binary, Target
from backends.machine.model import Image
from backends.source import Signature
from scoring.problem import Problem
from scoring.record import Case
from scoring.sandbox import isolation
from scoring.sandbox.launch import Launched
from scoring.sandbox.policy import Policy, SandboxError

SECONDS = 120.0
# cudaDeviceAttr: multiprocessors, compute capability, largest shared memory of a block, threads of a block, L2.
_ATTRIBUTES = {"sms": 16, "major": 75, "minor": 76, "shared": 97, "threads": 1, "l2": 38, "clusters": 120}
_SMS = {"H100": 132, "H200": 132, "L4": 58}


@dataclass(frozen=True)
class Launch:
    """The largest launch of one kernel over all cases: bytes of dynamic shared memory, threads of a block."""

    shared: int
    threads: int


def of_cases(
    problem: Problem, cases: Sequence[Case], signature: Signature, binary: Binary, target: Target, policy: Policy,
    preload: Sequence[Path] = (),
) -> dict[str, Launch]:
    """By a kernel's symbol, what it is launched with; kernels that no case launches are left out.

    Empty where the host code cannot be run like this: it depends on values in device memory, or ends the process.
    """
    arguments = [made for case in cases if (made := _arguments(problem, case, signature, target.fp8)) is not None]
    if not arguments:
        return {}
    spec = {
        "library": str(binary.path), "symbol": signature.symbol, "preload": [str(path) for path in preload],
        "symbols": {} if preload else _symbols(binary.path, signature.symbol), "facts": _facts(target),
        "kinds": [parameter.kind for parameter in signature.params], "cases": arguments}
    found: dict[str, Launch] = {}
    for case in _run(spec, [binary.path, *preload], policy):
        for launch in case["launches"]:
            before = found.get(launch["kernel"], Launch(0, 0))
            threads = math.prod(launch["block"])
            found[launch["kernel"]] = max(before, Launch(launch["shared"], threads),
                                          key=lambda each: (each.shared, each.threads))
    return found


def applied(image: Image, launches: Mapping[str, Launch]) -> Image:
    """The image with what its kernels are launched with."""
    return replace(image, functions=tuple(
        replace(function, resources=replace(
            function.resources, dynamic_shared=found.shared, threads=found.threads))
        if (found := launches.get(function.mangled)) else function
        for function in image.functions))


def _arguments(problem: Problem, case: Case, signature: Signature, fp8: str | None) -> list[Any] | None:
    """The arguments of a case: numbers as they are, pointers as whether there is one. Data are tensors without memory,
    or real ones of a test case where those will not do; None if that fails, too."""
    modes: list[Any] = [_without_memory(), *([contextlib.nullcontext()] if case.group == "tests" else [])]
    for mode in modes:
        try:
            with mode:
                return _bound(problem, case, signature, problem.generate(case, 1, "cpu", fp8))
        except Exception:            # noqa: BLE001 - a problem's own code, for which such tensors may be no tensors
            continue
    return None


@contextlib.contextmanager
def _without_memory() -> Iterator[None]:
    """Inside, new tensors have no memory; asking for a value that depends on memory is an error.

    torch keeps the values of small constants. It takes a constant that is indexed by a tensor without memory for
    another constant, and reads its values from memory that nobody has written: lengths and sizes of any magnitude.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Known(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """What comes of a tensor without known values has none."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if any(isinstance(each, FakeTensor) and each.constant is None for each in tree_leaves((args, kwargs))):
                for each in tree_leaves(made):
                    if isinstance(each, FakeTensor):
                        each.constant = None
            return made

    with FakeTensorMode(), Known():  # type: ignore[no-untyped-call]
        yield


def _bound(problem: Problem, case: Case, signature: Signature, data: Any) -> list[Any]:
    import torch

    outputs, values = problem.bound("outputs", case.params), problem.bound("arguments", case.params, data)
    found: list[Any] = []
    for parameter in signature.params:
        name, value = parameter.name, values.get(parameter.name)
        if name == "workspace_bytes":
            found.append(int(problem.bound("workspace_bytes", case.params)))
        elif parameter.kind == "pointer":
            found.append(name in outputs or name == "workspace" or isinstance(value, torch.Tensor))
        else:
            found.append(repr(value) if isinstance(value, float) else int(value))
    return found


def _symbols(library: Path, symbol: str) -> dict[str, int]:
    """Offsets of the runtime's functions in a library, and of its entry point."""
    from elftools.elf.elffile import ELFFile

    table: Any = ELFFile(BytesIO(library.read_bytes())).get_section_by_name(".symtab")
    if table is None:
        return {}
    return {each.name: int(each["st_value"]) for each in table.iter_symbols()
            if each["st_info"]["type"] == "STT_FUNC" and each["st_value"]
            and (each.name.startswith(("cuda", "__cuda")) or each.name == symbol or "__cudaRegisterAll" in each.name)}


def _facts(target: Target) -> dict[str, int]:
    digits = "".join(letter for letter in target.arch if letter.isdigit()) or "90"
    facts = {"sms": _SMS.get(target.gpu, 132), "major": int(digits[:-1]), "minor": int(digits[-1]),
             "shared": target.max_smem, "threads": 1024, "l2": target.llc_bytes, "clusters": int(digits >= "90")}
    return {str(_ATTRIBUTES[name]): value for name, value in facts.items()}


def _run(spec: Mapping[str, Any], files: Sequence[Path], policy: Policy) -> list[dict[str, Any]]:
    """The answer of the process; nothing if it has none."""
    try:
        tier = isolation.choose(policy).tier
        launched = Launched(tier, policy, ("-m", "scoring.worker.launches", json.dumps(spec)), files)
    except (OSError, SandboxError):
        return []
    try:
        printed, _ = launched.process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return []
    finally:
        launched.kill()
    try:
        answer = json.loads(printed[printed.index(b"[{") :])
    except ValueError:
        return []
    return answer if isinstance(answer, list) else []
