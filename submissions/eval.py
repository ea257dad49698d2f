# SPDX-License-Identifier: MIT
"""An evaluator in GPU MODE's style, staged into problem folders as ``eval.py``. Torch and the standard library only.

    eval.py test|benchmark|leaderboard|profile CASEFILE        with POPCORN_FD, and POPCORN_SEED where there is a secret

It has two processes. The parent talks to the runner and imports the standard library only. It starts itself again as a
child that imports ``reference`` and ``submission``, makes inputs, calls, checks and times, and reports in JSON lines
(nothing is unpickled). A crash or a device error in the child is a failed case in the parent. The child ends with its
parent. A submission can deceive any code in its process; the judge of ``python -m scoring`` is in another process.

Exit codes: 0 all passed, 2 usage, 110 the GPU's API failed, 111 no POPCORN_FD, 112 something failed, 113 bad cases.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import fcntl
import importlib
import json
import math
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODES = ("test", "benchmark", "leaderboard", "profile")
OK, USAGE, DEVICE_FAILED, PIPE_FAILED, VALIDATION_FAILED, BAD_CASES, TIMEOUT = 0, 2, 110, 111, 112, 113, 114

SECONDS = 150.0                             # for all timing of one run, shared by its cases
MIN_RUNS, MAX_RUNS = 5, 100
RELATIVE_ERROR = 0.001                      # stop once the error of the mean is below this share of it
MAX_TOTAL_NS = {"benchmark": 10e9, "leaderboard": 30e9}
WARM_UP_SECONDS = 0.2
CLEAR_BYTES = {"cuda": 256 << 20, "hip": 512 << 20}   # above every last-level cache: 60 MB on an H200, 256 MiB on MI300
TEXT_LIMIT = 4000                           # characters of one message
LINE_LIMIT = 500                            # and of one line of it: a longer one would hide the others
CASE_BYTES = 400                            # upper limit of a case's result lines, without its spec and message
PAGE = 4096                                 # a write that does not fit the pipe's last page starts a new one

PART = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*):\s*([A-Za-z_][A-Za-z0-9_]*|[+-]?[0-9]+)\s*")


# ---- the parent: cases in, result lines out ----

class BadCases(Exception):
    """The case file cannot be read or does not follow its grammar."""


def read_cases(path: str) -> list[tuple[str, dict[str, Any]]]:
    """(line, case) for each line of a case file. Raises ``BadCases``."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCases(f"{path}: {error}") from error
    cases = []
    for number, line in enumerate(lines, 1):
        case: dict[str, Any] = {}
        for part in line.split(";"):
            match = PART.fullmatch(part)
            if match is None or len(match[2]) > 1000:
                raise BadCases(f"{path}:{number}: {part.strip()!r} is not `key: value` with a word or an integer")
            word = match[2][0].isalpha() or match[2][0] == "_"
            case[match[1]] = match[2] if word else int(match[2])
        if "world_size" in case:
            raise BadCases(f"{path}:{number}: world_size: this evaluator runs one process on one GPU")
        cases.append((line, case))
    if not cases:
        raise BadCases(f"{path}: no cases")
    return cases


def secret_seed(case: dict[str, Any], secret: str | None) -> dict[str, Any]:
    """``case`` with its seed paired (Cantor) with the secret one; unchanged if there is no secret."""
    if secret is None or not isinstance(case.get("seed"), int):
        return case
    total = case["seed"] + int(secret)
    return {**case, "seed": case["seed"] + total * (total + 1) // 2}


class Report:
    """Result lines on POPCORN_FD, each flushed, and the verdict per case.

    A runner may read the pipe only after the exit, so the pipe is made large and never filled: messages that would fill
    it are cut.
    """

    def __init__(self, fd: int):
        self.file = os.fdopen(fd, "wb", buffering=0)
        self.cases: list[tuple[str, dict[str, Any]]] = []
        self.kind = ""
        self.passed: dict[int, bool] = {}
        self.room: float = math.inf
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            self.room = 64 << 10
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, 1031, 1 << 20)          # F_SETPIPE_SZ
                self.room = fcntl.fcntl(fd, 1032)       # F_GETPIPE_SZ

    def start(self, mode: str, cases: list[tuple[str, dict[str, Any]]]) -> None:
        self.cases, self.kind = cases, "test" if mode == "test" else "benchmark"
        self.room -= 2 * PAGE + sum(len(line.encode()) + CASE_BYTES for line, _ in cases)
        self.entry(f"{self.kind}-count", len(cases))

    def entry(self, key: str, value: object) -> None:
        self.file.write(f"{key}: {value}\n".encode())

    def text(self, key: str, value: object, limit: int = TEXT_LIMIT) -> None:
        text = str(value).encode(errors="replace").decode().replace("\r", "")
        text = (text if len(text) <= limit else text[:limit] + " (cut)").replace("\n", "\\n")
        size = len(text.encode()) + PAGE
        if size > self.room:
            self.entry(key, "(not shown: the pipe is full)")
            return
        self.room -= size
        self.entry(key, text)

    def case(self, message: dict[str, Any]) -> None:
        """The child's message about a case. Raises ``ValueError``, ``KeyError`` or ``TypeError`` if it is malformed."""
        index = message["index"]
        if not isinstance(index, int) or not 0 <= index < len(self.cases):
            raise ValueError(f"no case {index!r}")
        prefix = f"{self.kind}.{index}"
        self.passed[index] = False
        self.entry(f"{prefix}.spec", self.cases[index][0])
        if "error" in message:
            self.entry(f"{prefix}.status", "fail")
            self.text(f"{prefix}.error", message["error"])
            return
        if self.kind == "test":
            self.entry(f"{prefix}.status", "pass")
            if message.get("message"):
                self.text(f"{prefix}.message", message["message"])
        elif "report" in message:
            self.text(f"{prefix}.report", message["report"], limit=256 << 10)
        else:
            for name in ("runs", "mean", "std", "err", "best", "worst"):
                value = float(message[name])
                if not math.isfinite(value) or value < 0:
                    raise ValueError(f"{name} is {value}")
                self.entry(f"{prefix}.{name}", int(value) if name == "runs" else value)
        self.passed[index] = True

    def finish(self, code: int, last: str) -> bool:
        """Whether all passed. A child that ended badly fails the first case without a message, or the last case."""
        count = len(self.cases)
        passed = code == OK and len(self.passed) == count and all(self.passed.values())
        if not passed and (last or all(self.passed.values())):
            index = min(set(range(count)) - set(self.passed), default=count - 1)
            self.case({"index": index, "error": last or ending(code)})
        self.entry("check", "pass" if passed else "fail")
        return passed


def parent(mode: str, path: str) -> int:
    try:
        report = Report(int(os.environ.pop("POPCORN_FD")))
    except (KeyError, ValueError, OSError) as error:
        print(f"POPCORN_FD must be an open file descriptor: {error!r}", file=sys.stderr)
        return PIPE_FAILED
    secret = os.environ.pop("POPCORN_SEED", None)
    try:
        cases = read_cases(path)
        job = {"mode": mode, "cases": [secret_seed(case, secret) for _, case in cases],
               "seconds": float(os.environ.get("WARPWAVE_EVAL_SECONDS", SECONDS))}
    except (BadCases, ValueError) as error:
        print(error, file=sys.stderr)
        return BAD_CASES
    report.start(mode, cases)
    code, last = run_child(job, report.case)
    if report.finish(code, last):
        return OK
    return DEVICE_FAILED if code == DEVICE_FAILED else VALIDATION_FAILED


def run_child(job: dict[str, Any], on_message: Callable[[dict[str, Any]], None]) -> tuple[int, str]:
    """Start the child, pass on its messages, wait. Returns its exit code and its last unassigned output."""
    read_end, write_end = os.pipe()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPCORN_")}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(write_end)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(write_end,), env=environment)
    os.close(write_end)
    assert child.stdin is not None
    last = ""
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write((json.dumps(job) + "\n").encode())
            child.stdin.flush()          # stays open; when it closes, the child knows that the parent is gone
        with os.fdopen(read_end, "rb") as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                    if "index" in message:
                        on_message(message)
                    else:
                        last = str(message["failure"])
                except (ValueError, KeyError, TypeError) as error:
                    last = f"the process that ran the submission sent nonsense: {error}"
                    child.kill()
        return child.wait(), last
    finally:
        child.stdin.close()     # only now: a child that still runs then has lost its parent


def ending(code: int) -> str:
    if code < 0:
        return f"the process that ran the submission was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"the process that ran the submission ended early, with exit code {code}"


# ---- the child: call, check, time ----

class Failed(Exception):
    """The submission failed a case; the message says why."""


def child(fd: int) -> int:
    os.set_inheritable(fd, False)
    channel = os.fdopen(fd, "wb", buffering=0)
    job = json.loads(sys.stdin.buffer.readline())
    follow_parent()

    def send(**message: object) -> None:
        channel.write((json.dumps(message) + "\n").encode())

    try:
        bench = Bench(job["mode"])
    except BaseException as error:     # noqa: BLE001 - a submission may raise anything while it is imported
        traceback.print_exc()
        send(failure=explain(error))
        return DEVICE_FAILED if is_device_error(error) else VALIDATION_FAILED
    end = time.monotonic() + job["seconds"]
    failed = False
    for index, case in enumerate(job["cases"]):
        try:
            share = (end - time.monotonic()) / (len(job["cases"]) - index)
            send(index=index, **bench.run(case, share))
        except Failed as failure:
            send(index=index, error=str(failure))
            failed = True
        except BaseException as error:     # noqa: BLE001 - and while it runs
            traceback.print_exc()
            send(index=index, error=explain(error))
            if is_device_error(error):     # the device's state is lost, so no later result counts
                return DEVICE_FAILED
            failed = True
        if failed and job["mode"] == "leaderboard":
            break
    return VALIDATION_FAILED if failed else OK


def follow_parent() -> None:
    """End with the parent: standard input closes however the parent ends."""
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def watch() -> None:
        while os.read(lifeline, 4096):
            pass
        os._exit(TIMEOUT)

    threading.Thread(target=watch, daemon=True).start()


def explain(error: BaseException) -> str:
    """The end of the traceback, with the reason. The frames from here to the submission are left out."""
    found, ours = sys.exc_info()[2], (__file__, str(importlib.__file__), "<frozen importlib")
    while found is not None and found.tb_frame.f_code.co_filename.startswith(ours):
        found = found.tb_next
    lines = "".join(traceback.format_exception(type(error), error, found)[-6:]).splitlines()
    lines = [line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]}…" for line in lines]
    return "\n".join(lines).strip()[-TEXT_LIMIT:]


def is_device_error(error: BaseException) -> bool:
    text = f"{type(error).__name__}: {error}"
    return any(word in text for word in ("AcceleratorError", "CUDA error", "HIP error")) and "out of memory" not in text


class Bench:
    """Import the reference, then the submission. This order takes the clock from torch first."""

    def __init__(self, mode: str):
        import torch

        self.torch: Any = torch
        self.mode = mode
        self.now = time.perf_counter_ns
        self.event: Any = torch.cuda.Event
        self.synchronize: Any = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
        self.scratch: Any = None
        reference = importlib.import_module("reference")
        self.generate, self.verdict = reference.generate_input, reference.check_implementation
        self.kernel = importlib.import_module("submission").custom_kernel
        self.warm = mode in ("test", "profile")

    def run(self, case: dict[str, Any], seconds: float) -> dict[str, object]:
        """The message about one case. Raises ``Failed`` and whatever the submission raises."""
        if not self.warm:
            self.warm_up(case)
        match self.mode:
            case "test":
                data = self.generate(**case)
                return {"message": self.check(data, self.call(data))}
            case "profile":
                return {"report": self.profile(self.generate(**case))}
        return self.measure(dict(case), seconds)

    def call(self, data: Any) -> Any:
        """One call on a private copy of ``data``. Returns the outputs when all work has finished."""
        self.synchronize()
        output = self.kernel(self.clone(data))
        self.synchronize()
        return output

    def check(self, data: Any, output: Any) -> str:
        """The message of a pass. Raises ``Failed``. Old problems return a string alone, empty for a pass."""
        for item in flatten(output):
            if isinstance(item, self.torch.Tensor) and type(item) not in (self.torch.Tensor, self.torch.nn.Parameter):
                raise Failed(f"returned a {type(item).__name__}: a tensor subclass may postpone its work")
        answer = self.verdict(data, output)
        passed, text = answer if isinstance(answer, tuple) else (not answer, answer)
        text = "\n".join(map(str, text)) if isinstance(text, list | tuple) else str(text or "")
        if not passed:
            raise Failed(text or "the output is wrong")
        return text

    def measure(self, case: dict[str, Any], seconds: float) -> dict[str, object]:
        """Times of one case. A ranked run gives every timed call fresh inputs and checks its output."""
        ranked = self.mode == "leaderboard"
        end = time.monotonic() + seconds
        data = self.generate(**case)
        self.check(data, self.call(data))
        argument = self.clone(data)
        samples: list[float] = []
        while True:
            if ranked:
                case["seed"] = case.get("seed", 0) + 13
                data = self.generate(**case)
                argument = self.clone(data)
            nanoseconds, output = self.timed(argument)
            if ranked:
                self.check(data, output)
            samples.append(nanoseconds)
            if self.enough(samples, time.monotonic() >= end):
                break
        if not ranked:
            self.check(data, output)
        return dict(statistics(samples))

    def enough(self, samples: list[float], late: bool) -> bool:
        if len(samples) < 3:
            return False
        stats = statistics(samples)
        total = stats["mean"] * stats["runs"]
        if late or len(samples) >= MAX_RUNS or total > MAX_TOTAL_NS[self.mode]:
            return True
        return len(samples) >= MIN_RUNS and stats["err"] < RELATIVE_ERROR * stats["mean"]

    def timed(self, argument: Any) -> tuple[float, Any]:
        """(nanoseconds, outputs) of one call, caches cold.

        On a GPU the time is between two events. Clearing the cache keeps the device busy while the call is issued. The
        outputs are copied right after the second event, so work that still runs elsewhere is too late.
        """
        if not any(isinstance(item, self.torch.Tensor) and item.is_cuda for item in flatten(argument)):
            start = self.now()
            output = self.kernel(argument)
            return self.now() - start, self.clone(output)
        begin, end = self.event(enable_timing=True), self.event(enable_timing=True)
        self.synchronize()
        self.clear_cache()
        begin.record()
        output = self.kernel(argument)
        end.record()
        output = self.clone(output)
        self.synchronize()
        return begin.elapsed_time(end) * 1e6, output

    def clear_cache(self) -> None:
        if self.scratch is None:
            nbytes = CLEAR_BYTES["hip" if self.torch.version.hip else "cuda"]
            self.scratch = self.torch.empty(nbytes, dtype=self.torch.uint8, device="cuda")
        self.scratch.zero_()

    def warm_up(self, case: dict[str, Any]) -> None:
        self.warm = True
        end = time.monotonic() + WARM_UP_SECONDS
        data = self.generate(**case)
        while True:
            self.call(data)
            if time.monotonic() >= end:
                return

    def profile(self, data: Any) -> str:
        """One profiled call: torch's table, base64 with '*' for '/'."""
        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self.torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        self.check(data, self.call(data))
        with profiler.profile(activities=activities) as recorded:
            self.call(data)
        order = "self_device_time_total" if len(activities) > 1 else "self_cpu_time_total"
        table = recorded.key_averages().table(sort_by=order, row_limit=20)
        return base64.b64encode(table.encode()).decode().replace("/", "*")

    def clone(self, data: Any) -> Any:
        """A deep copy; tensors keep their strides."""
        if isinstance(data, self.torch.Tensor):
            return data.clone()
        if type(data) in (list, tuple):
            return type(data)(self.clone(item) for item in data)
        if isinstance(data, dict):
            return {key: self.clone(value) for key, value in data.items()}
        return copy.deepcopy(data)


def flatten(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from flatten(item)
    elif isinstance(data, dict):
        for item in data.values():
            yield from flatten(item)
    else:
        yield data


def statistics(samples: list[float]) -> dict[str, float]:
    """runs, mean, sample standard deviation, error of the mean, best and worst; nanoseconds."""
    runs = len(samples)
    mean = math.fsum(samples) / runs
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in samples) / (runs - 1)) if runs > 1 else 0.0
    return {"runs": runs, "mean": mean, "std": std, "err": std / math.sqrt(runs), "best": min(samples),
            "worst": max(samples)}


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--child":
        return child(int(arguments[1]))
    if len(arguments) != 2 or arguments[0] not in MODES:
        print(f"usage: eval.py {'|'.join(MODES)} CASEFILE", file=sys.stderr)
        return USAGE
    return parent(*arguments)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)     # skips a submission's threads and exit handlers
