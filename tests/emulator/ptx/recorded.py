# SPDX-License-Identifier: MIT
"""Makes ``recorded.xz``: a sample of what one NVIDIA H200 answered, instruction by instruction, as an oracle.

    python tests/emulator/ptx/recorded.py FOLDER

``FOLDER`` holds the whole recordings (index.json, load.py, *.npz; made on 23 November 2026 with driver 580.159.04 and
nvcc 13.0.88). Of each elementwise instruction it takes ``ELEMENTS`` results, of each kind of matrix product a block
of each of ``CLASSES``; both by a fixed seed. The file is one line of JSON, which says where each array lies in the
bytes behind it.

Where $WARPWAVE_RECORDINGS names such a folder, the tests take all that is in it in place of the sample.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("recorded.xz")
ELEMENTS = 64
CLASSES = ("uniform", "special", "tiny")
SKIPPED = ("atom_", "redux_", "lop3_")      # they need a kernel of their own


def recordings(folder: Path) -> Any:
    """The module ``load`` of the recordings."""
    spec = importlib.util.spec_from_file_location("recordings", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)       # it leaves its index to be closed by itself
        spec.loader.exec_module(module)
    return module


def sample(folder: Path) -> bytes:
    """The file's content."""
    source = recordings(folder)
    index: dict[str, Any] = {}
    content = bytearray()
    for name, entry in source.INDEX.items():
        if name.startswith(SKIPPED):
            continue
        whole = source.load(name)
        random = np.random.default_rng(zlib.crc32(name.encode()))
        kept = {key: entry[key] for key in ("text", "shape", "types") if key in entry}
        if entry["what"] == "element":
            count = len(whole["d"])
            chosen = np.sort(random.choice(count, min(ELEMENTS, count), replace=False))
            parts = [*whole["in"], whole["d"]]
        else:
            classes = whole["classes"]
            chosen = np.array([random.choice(classes[each]) for each in CLASSES if len(classes.get(each, ()))])
            parts = [whole[part] for part in "abcd"]
        kept["arrays"] = []
        for part in parts:
            array = np.ascontiguousarray(part[chosen])
            kept["arrays"].append([array.dtype.str, array.shape, len(content)])
            content += array.tobytes()
        index[name] = kept
    return lzma.compress(json.dumps(index).encode() + b"\n" + bytes(content), preset=9)


def whole(folder: Path) -> dict[str, dict[str, Any]]:
    """What ``load`` returns, of all recordings in ``folder``."""
    source = recordings(folder)
    found: dict[str, dict[str, Any]] = {}
    for name, entry in source.INDEX.items():
        if not name.startswith(SKIPPED):
            all_ = source.load(name)
            parts = [*all_["in"], all_["d"]] if entry["what"] == "element" else [all_[part] for part in "abcd"]
            kept = {key: entry[key] for key in ("text", "shape", "types") if key in entry}
            found[name] = {**kept, "arrays": [np.ascontiguousarray(part) for part in parts]}
    return found


def load(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """Recordings by name: ``text``, ``arrays`` (inputs, then the result), of products ``shape`` and ``types``."""
    if folder := os.environ.get("WARPWAVE_RECORDINGS"):
        return whole(Path(folder))
    head, _, content = lzma.decompress(path.read_bytes()).partition(b"\n")
    index: dict[str, dict[str, Any]] = json.loads(head)
    for entry in index.values():
        entry["arrays"] = [np.frombuffer(content, dtype, int(np.prod(shape)), at).reshape(shape)
                           for dtype, shape, at in entry["arrays"]]
    return index


if __name__ == "__main__":
    FILE.write_bytes(sample(Path(sys.argv[1])))
