# SPDX-License-Identifier: MIT
"""Somebody else's contest on a CPU: ``cuda`` means the CPU, objects travel, and the contest's own check decides."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import backends
from backends.base import Availability, Device
from scoring.config.load import load_config
from scoring.ipc import group
from scoring.ipc.fp4 import dequantize
from scoring.ipc.requests import PythonSpec
from scoring.ipc.stand_in import NAME, Generator, StandIn, standing_in
from scoring.ipc.template import Answer, TemplateError, describe_data
from scoring.judge import ranks as judge_ranks
from scoring.judge.budget import Budget, TooLarge
from scoring.judge.score import score
from scoring.problem import Problem
from scoring.record import STAND_IN, Mode, Record, Status
from scoring.run import plan, targets
from scoring.run.select import SelectionError
from scoring.worker import loaders
from scoring.worker.failure import Failure
from tests.scoring.harness import SETTINGS, submission_job, toy

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: eval.py}
lang: py
description: a contest
tests: TESTS
benchmarks: [{n: 16, seed: 2}]
"""
REFERENCE = """
import torch
from task import Pair, Sizes, Layer

def generate_input(n, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(n, device="cuda", generator=gen)
    layer = Layer(n).to("cuda")
    return Sizes(n, torch.float32, x), Pair(x.clone(), {"k": torch.ones(n).cuda()}), layer

def ref_kernel(data):
    sizes, pair, layer = data
    torch.cuda.synchronize()
    return (sizes.x.double() + pair.first) * pair.rest["k"], layer(pair.first)

def check_implementation(data, output):
    sums, calls = output
    good = torch.allclose(sums.double(), ref_kernel(data)[0]) and int(calls[0]) == 1
    return good, "" if good else "they differ"
"""
TASK_PY = """
import torch
from dataclasses import dataclass
from typing import NamedTuple

@dataclass
class Sizes:
    n: int
    dtype: torch.dtype
    x: torch.Tensor

class Pair(NamedTuple):
    first: torch.Tensor
    rest: dict

class Layer(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("total", torch.zeros(n))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.full((1,), self.calls)
"""
GOOD = """
import torch
from task import Layer

assert torch.cuda.is_available() and torch.cuda.get_device_name() == NAME

def custom_kernel(data):
    sizes, pair, layer = data
    assert isinstance(layer, Layer) and sizes.dtype is torch.float32
    assert sizes.x.is_cuda and sizes.x.device == torch.device("cuda:0"), sizes.x.device
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    out = torch.zeros(sizes.n, device="cuda")
    out += sizes.x + pair.first
    torch.cuda.synchronize()
    return out * pair.rest["k"].to("cuda"), layer(pair.first)
""".replace("NAME", repr(NAME))


@pytest.fixture
def contest(tmp_path, cache):
    """Judge a submission's text on the folder; what is given replaces the folder's files."""
    def judge(
        submission: str | bytes, mode: Mode = Mode.TEST, tests: str = "[{n: 8, seed: 1}]", task: str = TASK,
        count: int | None = None, **limits: float,
    ) -> Record:
        folder = tmp_path / "contest"
        folder.mkdir(exist_ok=True)
        (folder / "task.yml").write_text(task.replace("TESTS", tests))
        for name, text in {"reference.py": REFERENCE, "task.py": TASK_PY, "eval.py": "", **files}.items():
            (folder / name).write_text(textwrap.dedent(text))
        path = tmp_path / "submission.py"
        path.write_bytes(submission if isinstance(submission, bytes) else textwrap.dedent(submission).encode())
        job = submission_job(toy(cache), path, tmp_path / "staging", mode=mode, task=folder)
        return score(replace(job, limits=replace(job.limits, **limits)))

    files: dict[str, str] = {}
    judge.files = files     # type: ignore[attr-defined]
    return judge


def test_cuda_means_the_cpu_and_nothing_is_timed(contest):
    """Also: a data class, a named tuple and a module with a method; fp64 in the reference, fp32 in the answer."""
    record = contest(GOOD, Mode.BENCHMARK)
    assert record.status is Status.PASSED, record.message
    assert record.facts.stand_in == STAND_IN
    assert (record.score, record.protocol) == (None, "")
    assert [(result.case.name, result.stats) for result in record.cases] == [("n=8", None), ("n=16", None)]
    assert "the answer is float32[8]" in record.cases[0].message
    assert "the reference's is float64[8]" in record.cases[0].message


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("old", "new", "status", "words"), [
    ("out += sizes.x", "out += 2 * sizes.x", Status.INCORRECT_NUMERICAL, "they differ"),
    ("return out * ", "return torch.zeros(3), torch.zeros(1); out * ", Status.INCORRECT_SHAPE, "check fails on this"),
    ("return out * ", "return 3, out * ", Status.INCORRECT_SHAPE, r"the result\[0\] is int, not a tensor"),
    ("return out * ", "return (x for x in 'ab'); out * ", Status.INCORRECT_SHAPE, "the result is generator, not a"),
    ("start.record()", "torch.zeros(1, device='cuda:1')", Status.UNAVAILABLE, "needs a GPU: it names cuda:1"),
    ("start.record()", "torch.cuda.CUDAGraph()", Status.UNAVAILABLE, "custom_kernel needs a GPU: a CUDA graph"),
    ("from task import Layer", "import no_such_package", Status.UNAVAILABLE, "needs the package no_such_package"),
    ("from task import Layer", "from task import Nothing", Status.COMPILE_ERROR, "cannot import name 'Nothing'"),
    ("def custom_kernel(data):", "def custom_kernel(data:", Status.COMPILE_ERROR, "SyntaxError"),
])
def test_what_is_said_of_one_that_fails(contest, old, new, status, words):
    record = contest(GOOD.replace(old, new), tests="[{n: 8, seed: 1}, {n: 9, seed: 1}, {n: 10, seed: 1}]")
    assert record.status is status, record.message
    assert re.search(words, record.message), record.message
    once = status is Status.COMPILE_ERROR or "no_such_package" in new
    assert len(record.cases) == (0 if once else 3), "what cannot be loaded is told once"


def test_twenty_megabytes_of_print_and_bytes_that_are_no_text(contest):
    record = contest(GOOD.replace("start.record()", "print('x' * 20_000_000)"))
    assert record.status is Status.PASSED, record.message
    assert contest(b"name = '\xff'\n" + GOOD.encode()).status is Status.COMPILE_ERROR


def test_a_hang_ends_the_job_after_two_cases(contest):
    body = "import time\n\ndef custom_kernel(data):\n    time.sleep(60)\n"
    tests = ", ".join(f"{{n: {n}, seed: 1}}" for n in range(3, 9))
    record = contest(body, tests=f"[{tests}]", first_call_seconds=0.5, call_seconds=0.5)
    assert [result.status for result in record.cases] == [Status.TIMEOUT] * 2
    assert "after 2 cases that hung, the other 4 cases were not tried" in record.message
    assert len(record.unjudged) == 4


def test_a_package_that_the_reference_needs(contest):
    contest.files["reference.py"] = "import no_such_package\n" + REFERENCE
    record = contest(GOOD)
    assert record.status is Status.UNAVAILABLE
    assert record.message.endswith("reference.py:1: needs the package no_such_package, which is not installed here")
    assert not record.facts.problem_broken


def test_cases_too_large_are_left_out_by_name(contest):
    contest.files["reference.py"] = REFERENCE.replace(
        "    torch.cuda.synchronize()", "    torch.ones(sizes.n, 1 << 16) @ torch.ones(1 << 16, 1)")
    record = contest(GOOD, tests="[{n: 8, seed: 1}, {n: 64, seed: 1}]", reference_flops=4e6)
    assert [(result.case.name, result.status) for result in record.cases] == [("n=8", Status.PASSED)]
    assert record.facts.cases_skipped == ("n=64",)
    assert record.facts.cases_skipped_why.startswith("n=64 is too large for this machine (more than 0.004 GFLOP")


def test_several_entry_points(contest):
    contest.files["reference.py"] = """
        import torch
        ATOL, RTOL = 0.0, 1e-6

        def reference_forward(x):
            return x * 2

        def reference_backward(x, grad):
            return grad * 2

        def generate_inputs(rows, n, seed=1):
            torch.manual_seed(seed)
            return torch.randn(rows, n, device="cuda"), torch.randn(rows, n, device="cuda")
    """
    contest.files["eval.py"] = "ROWS = 4\nraise SystemExit('never run')\ndef check(mod, n):\n" \
        "    generate_inputs(ROWS, n)\n    mod.twice_forward(0)\n    mod.twice_backward(0, 1)\n"
    good = "def twice_forward(x):\n    return x + x\n\ndef twice_backward(x, grad):\n    return grad + grad\n"
    assert contest(good).status is Status.PASSED
    wrong = contest(good.replace("grad + grad", "grad"))
    assert (wrong.status, wrong.message.split(" is off")[0]) == (Status.INCORRECT_NUMERICAL, "twice_backward")
    lacking = contest(good.replace("twice_backward", "other"))
    assert lacking.status is Status.COMPILE_ERROR
    assert "defines no twice_backward(…), which the task asks for" in lacking.message


RANKED = """
import torch
import torch.distributed as dist

def generate_input(n, rank, world_size, seed):
    gen = torch.Generator(device=f"cuda:{rank}").manual_seed(seed + rank)
    return torch.randn(n, device=f"cuda:{rank}", generator=gen), rank, world_size

def ref_kernel(data):
    x, rank, world = data
    gathered = torch.empty(world * len(x), device=x.device)
    dist.all_gather_into_tensor(gathered, x)
    return gathered + rank

def check_implementation(data, output):
    good = torch.equal(output, ref_kernel(data))
    return good, "" if good else "they differ"
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda means the CPU only where no GPU is")
def test_ranks_talk_over_gloo(contest):
    contest.files["reference.py"] = RANKED
    tests = "[{n: 8, world_size: 3, seed: 1}]"
    task = TASK.replace("benchmarks: [{n: 16", "benchmarks: [{n: 16, world_size: 2")
    good = "import torch\nimport torch.distributed as dist\n\ndef custom_kernel(data):\n    x, rank, world = data\n" \
        "    assert dist.get_world_size() == world and x.device.index == rank == torch.cuda.current_device()\n" \
        "    parts = [torch.empty_like(x) for _ in range(world)]\n    dist.all_gather(parts, x)\n" \
        "    return torch.cat(parts) + rank\n"
    record = contest(good, tests=tests, task=task)
    assert record.status is Status.PASSED, record.message
    wrong = contest(good.replace("+ rank", "+ min(rank, 1)"), tests=tests, task=task)
    assert (wrong.status, wrong.message) == (Status.INCORRECT_NUMERICAL, "rank 2: they differ")


RANKED_GOOD = """
import torch
import torch.distributed as dist

torch.zeros(1)                  # what would use a GPU is done in the process of a rank

def custom_kernel(data):
    x, rank, world = data
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x)
    return torch.cat(parts) + rank
"""


def test_each_rank_loads_the_file_itself_where_it_has_a_gpu(tmp_path, monkeypatch):
    """The road of GPUs without one: the ranks talk over gloo and their devices are the CPU; all else is the same."""
    monkeypatch.setattr(group, "GPU", group.CPU)
    for module in (group, loaders, judge_ranks):
        monkeypatch.setattr(module, "of_rank", lambda rank, gpus: torch.device("cpu"))
    file = tmp_path / "submission.py"
    file.write_text(RANKED_GOOD)
    kernel = loaders.PythonSubmission(PythonSpec(str(file), gpus=True))
    assert not hasattr(kernel, "function"), "this process has imported nothing"
    x = torch.arange(6.0).view(2, 3)
    data = tuple((x[rank], rank, 2) for rank in range(2))
    template, tensors = describe_data(data)
    outputs = {f"output{rank}": torch.full((6,), -1.0).share_memory_() for rank in range(2)}
    slot = SimpleNamespace(ranks=2, form=["tuple", [["tensor", 0], ["tensor", 1]]], outputs=outputs, template=template,
                           tensors=tensors)
    slot.data = partial(loaders.Slot.data, slot)
    kernel.run(slot, 0)
    assert [each.tolist() for each in outputs.values()] == [[rank + i for i in range(6)] for rank in range(2)]
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.yml").write_text(TASK.replace("TESTS", "[{n: 3, world_size: 2, seed: 1}]"))
    (task / "reference.py").write_text(RANKED)
    problem = Problem(task)
    problem.ranks_have_gpus = True
    assert judge_ranks.check_ranks(problem, data, list(outputs.values())) == (True, "")
    outputs["output1"][5] = 9
    assert judge_ranks.check_ranks(problem, data, list(outputs.values())) == (False, "rank 1: they differ")
    file.write_text("def custom_kernel(data:\n")
    with pytest.raises(Failure, match="SyntaxError"):
        loaders.PythonSubmission(PythonSpec(str(file), gpus=True))


def test_ranks_with_gpus_need_a_process_that_has_used_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(group.GroupError, match="has used a GPU") as error:
        group.in_every_rank(2, lambda rank: None, gpus=True)
    assert error.value.impossible


def test_what_a_rank_gets_lies_on_its_device():
    """The device called meta stands for a GPU: its tensors have no bytes here."""
    meta = torch.device("meta")
    first, second = torch.zeros(2), torch.ones(3)
    template, tensors = describe_data(((first, 0), (second, {"k": first}, 1)))
    slot = SimpleNamespace(template=template, tensors=tensors)
    x, rest, rank = loaders.Slot.data(slot, 1, meta)
    assert (x.device, rest["k"].device, rank, x.shape) == (meta, meta, 1, second.shape)
    assert loaders.Slot.data(slot, 1, torch.device("cpu"))[0] is second
    there = group.moved({"a": [first, (second, 3)]}, meta)
    assert (there["a"][0].device, there["a"][1][1]) == (meta, 3)
    assert group.of_rank(3, gpus=True) == torch.device("cuda:3")


@pytest.mark.parametrize(("gpus", "asked", "place", "ranks"), [
    (8, False, "cuda", 2), (2, True, "cuda", 2), (1, False, "cpu", 0), (1, True, None, 0),
])
def test_where_a_distributed_task_runs(tmp_path, monkeypatch, gpus, asked, place, ranks):
    (tmp_path / "task.yml").write_text(
        "multi_gpu: true\n" + TASK.replace("TESTS", "[{n: 3, world_size: 2, seed: 1}]").replace(
            "{n: 16,", "{n: 16, world_size: 2,"))
    problem, cuda = Problem(tmp_path), backends.get("cuda")
    found = tuple(Device(number, "a GPU", "H100", "sm_90a", 80 << 30) for number in range(gpus))
    monkeypatch.setattr(type(cuda), "probe", lambda self: Availability("nvcc", "13", found, ()))
    here = targets.Place(cuda, cuda.target("H100"), found[0])
    settings = load_config({}, str(SETTINGS))
    if place is None:
        with pytest.raises(SelectionError, match="has 2 ranks with a GPU each, and there are 1 here") as error:
            plan._place_of_ranks(settings, problem, here, problem.cases, asked)
        assert error.value.code == 4
        return
    where, count = plan._place_of_ranks(settings, problem, here, problem.cases, asked)
    assert (where.backend.name, count) == (place, ranks)


# Parts ---------------------------------------------------------------------------------------------------------------

def test_the_mode_is_over_when_it_is_over():
    before = torch.cuda.is_available, torch.Generator, torch.compile
    mode = StandIn(claims=True)
    with standing_in(mode):
        assert torch.cuda.device_count() == 1
        x = torch.zeros(2, device="cuda")
        assert x.is_cuda
        kept = x.cpu()
        kept += 1
        assert x.sum() == 0, "a copy that leaves the GPU is one of its own"
        assert isinstance(torch.Generator("cuda"), Generator)
        assert torch.compile(mode="reduce-overhead")(len) is len
    assert mode.used
    assert (torch.cuda.is_available, torch.Generator, torch.compile) == before
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(2, device="cuda:99")


@pytest.mark.parametrize("claim", [
    None, 3, {}, {"form": ["tensor", 0], "tensors": []}, {"form": ["tensor", 0], "tensors": [[[2], "Tensor"]]},
    {"form": ["tensor", 0], "tensors": [[[-1], "float32"]]}, {"form": ["tensor", 0], "tensors": [[[1 << 40], "int8"]]},
    {"form": ["object", ["os", "system", {}]], "tensors": []}, {"form": ["tensor", True], "tensors": [[[2], "int8"]]},
    {"form": ["tuple", 7], "tensors": []}, {"form": [], "tensors": []}, {"form": ["none"], "tensors": []},
    {"form": ["tensor", 0], "tensors": [[[2], "int8"]] * 257}, {"form": ["tensor", 0], "tensors": [[[2.0], "int8"]]},
])
def test_what_a_worker_may_not_claim_to_have_got(claim):
    with pytest.raises(TemplateError):
        Answer.from_json(claim, 1 << 30)


def test_an_answer_nested_too_deeply():
    form: Sequence[object] = ["none", None]
    for _ in range(10):
        form = ["tuple", [form]]
    with pytest.raises(TemplateError, match="deeply"):
        Answer.from_json({"form": form, "tensors": []}, 1 << 30)


def test_a_budget_is_asked_before_the_work_is_done():
    with Budget(60, 1e6, 1 << 20), pytest.raises(TooLarge, match=r"a tensor of 931 GiB"):
        torch.empty(10**6, 10**6, dtype=torch.uint8, device="cpu").float()
    with Budget(60, 1e6, 1 << 30), pytest.raises(TooLarge, match=r"0\.001 GFLOP"):
        torch.ones(100, 100) @ torch.ones(100, 100)
    with Budget(0, 1e6, 1 << 30), pytest.raises(TooLarge, match="more than 0 s"):
        torch.ones(3) + 1


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no 4-bit floats")
def test_four_bit_floats_with_tiled_scales():
    rows, columns = 130, 96                          # two tiles of rows, two of blocks, neither of them full
    codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    scales = torch.randint(1, 9, (256, 8)).to(torch.float8_e4m3fn)
    tiled = scales.view(torch.uint8).view(2, 4, 32, 2, 4).permute(0, 3, 2, 1, 4).reshape(-1).view(torch.float8_e4m3fn)
    got = dequantize(codes.view(torch.float4_e2m1fn_x2), tiled)
    magnitudes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    for row, column in ((0, 0), (1, 95), (31, 16), (32, 17), (127, 64), (128, 3), (129, 80)):
        byte = int(codes[row, column // 2])
        code = byte >> 4 if column % 2 else byte & 15
        wanted = magnitudes[code & 7] * (-1 if code & 8 else 1) * float(scales[row, column // 16])
        assert float(got[row, column]) == wanted, (row, column)
