# SPDX-License-Identifier: MIT
"""A client that behaves as popcorn-cli is known to: it asks for no more than that, and gives up where that one does.

It knows nothing of our server: paths, fields and frames are those of the published command line.
"""

from __future__ import annotations

import base64
import io
import json
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx


class ApplicationError(Exception):
    """What makes the command line print an error and exit with 1."""


@dataclass
class Popcorn:
    """``base`` has no slash at its end; ``cli_id`` is what ~/.popcorn.yaml would hold."""

    base: str
    cli_id: str = ""
    poll_seconds: float = 0.3

    def _answer(self, response: httpx.Response) -> Any:
        if response.is_success and response.status_code != 204:
            return response.json()
        try:
            detail = response.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = response.text
        raise ApplicationError(f"{response.status_code}: {detail if isinstance(detail, str) else response.text}")

    @property
    def _headers(self) -> dict[str, str]:
        if not self.cli_id:
            raise ApplicationError("please register first")
        return {"X-Popcorn-Cli-Id": self.cli_id}

    def register(self, provider: str = "github") -> None:
        self.cli_id = self._answer(httpx.get(f"{self.base}/auth/init?provider={provider}", timeout=30))["state"]

    def leaderboards(self) -> list[str]:
        found = self._answer(httpx.get(f"{self.base}/leaderboards", headers=self._headers, timeout=30))
        for item in found:
            if not (isinstance(item["name"], str) and isinstance(item["description"], str)
                    and isinstance(item["task"], dict)):
                raise ApplicationError("Invalid JSON structure")
        return [item["name"] for item in found]

    def gpus(self, leaderboard: str) -> list[str]:
        found = self._answer(httpx.get(f"{self.base}/gpus/{leaderboard}", headers=self._headers, timeout=30))
        if not all(isinstance(gpu, str) for gpu in found):
            raise ApplicationError("Invalid JSON structure")
        return list(found)

    def submit(self, leaderboard: str, gpu: str, mode: str, name: str, content: bytes) -> str:
        """What ``submit --no-tui`` prints at the end."""
        if mode.lower() == "profile":
            return self._profile(leaderboard, gpu, name, content)
        body = _multipart(name, content)
        accepted = self._answer(httpx.post(
            f"{self.base}/submission/{leaderboard.lower()}/{gpu}/{mode.lower()}", content=body["content"],
            headers={**self._headers, "content-type": body["type"]}, timeout=60))
        number = accepted["details"]["id"]
        if not isinstance(number, int):
            raise ApplicationError("no id")
        while True:
            told = self._answer(httpx.get(f"{self.base}/user/submissions/{number}", headers=self._headers, timeout=30))
            job = told.get("job") or {}
            if job.get("status") in ("failed", "timed_out", "hacked"):
                raise ApplicationError(f"Submission {number} {job['status']}: {job.get('error')}")
            if told.get("done") is True:
                break
            time.sleep(self.poll_seconds)
        kinds = {True: "secret", False: "public"}
        scores = [f"Geomean score ({kinds[run['secret']]}) on {run['runner']}: {float(run['score'])} s"
                  for run in told["runs"] if run["mode"] == "leaderboard" and run.get("score") is not None]
        return "\n".join([*scores, json.dumps({"id": told["id"], "runs": told["runs"]}, indent=2)])

    def _profile(self, leaderboard: str, gpu: str, name: str, content: bytes) -> str:
        """Prints what a profile says, and keeps the archives in ``self.archives``."""
        self.archives: dict[str, zipfile.ZipFile] = {}
        printed: list[str] = []
        body = _multipart(name, content)
        with httpx.stream("POST", f"{self.base}/{leaderboard.lower()}/{gpu}/profile", content=body["content"],
                          headers={**self._headers, "content-type": body["type"]}, timeout=3600) as response:
            if not response.is_success:
                response.read()
                self._answer(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise ApplicationError("no event series")
            for event, data in _frames(response.iter_bytes()):
                if event == "error":
                    raise ApplicationError(f"{data.get('status_code')}: {data['detail']}")
                if event == "result":
                    for index, result in enumerate(data["results"]):
                        for key, run in result["runs"].items():
                            if key.startswith("profile") and run.get("profile"):
                                printed += self._profiled(f"{index}_{key}", run)
                    return "\n".join([*printed, json.dumps(data.get("reports", data))])
        raise ApplicationError("the series ended without a result")

    def _profiled(self, name: str, run: dict[str, Any]) -> list[str]:
        printed = [run["profile"]["profiler"], run["run"]["stdout"]]
        count = run["run"]["result"].get("benchmark-count")
        if isinstance(count, int):
            printed += [base64.b64decode(run["run"]["result"][f"benchmark.{j}.report"], validate=True).decode()
                        for j in range(count)]
        trace = base64.b64decode(run["profile"]["trace"], validate=True)
        self.archives[name] = zipfile.ZipFile(io.BytesIO(trace))
        return printed

    def list(self, leaderboard: str, limit: int = 50) -> list[dict[str, Any]]:
        url = f"{self.base}/user/submissions?leaderboard={leaderboard}&limit={limit}"
        return list(self._answer(httpx.get(url, headers=self._headers, timeout=30)))

    def show(self, number: int) -> dict[str, Any]:
        url = f"{self.base}/user/submissions/{number}"
        return dict(self._answer(httpx.get(url, headers=self._headers, timeout=30)))

    def delete(self, number: int) -> dict[str, Any]:
        self.show(number)
        return dict(self._answer(httpx.delete(f"{self.base}/user/submissions/{number}", headers=self._headers,
                                              timeout=30)))


def _multipart(name: str, content: bytes) -> dict[str, Any]:
    """A part called ``file`` without a content type."""
    edge = "popcorn-edge-of-the-tests"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return {"content": head.encode() + content + f"\r\n--{edge}--\r\n".encode(),
            "type": f"multipart/form-data; boundary={edge}"}


def _frames(parts: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Frames end with an empty line of plain line feeds, and have one line of each kind."""
    held = ""
    for part in parts:
        held += part.decode("utf-8", "replace")
        while "\n\n" in held:
            text, _, held = held.partition("\n\n")
            event = next(line[7:] for line in text.split("\n") if line.startswith("event: "))
            data = next(line[6:] for line in text.split("\n") if line.startswith("data: "))
            yield event, json.loads(data)
