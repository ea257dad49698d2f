# SPDX-License-Identifier: MIT
"""fp64 attention on the emulated MI300X, and the error bound of 16-bit probabilities, for both attention kernels."""

from __future__ import annotations

import numpy as np


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """o [queries, columns], lse [queries] and Σ p |v| of one head; query i sees the first ``visible[i]`` keys.

    A query that sees nothing has o = 0 and lse = -inf.
    """
    hidden = np.arange(k.shape[0])[None, :] >= visible[:, None]
    scores = np.where(hidden, -np.inf, scale * (q @ k.T))
    top = scores.max(axis=1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0)[:, None])
    total = weights.sum(axis=1)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, top, 0) + np.log(total)
    weights /= np.where(total > 0, total, 1)[:, None]
    return weights @ v, lse, weights @ np.abs(v)


def check(
    o: np.ndarray, lse: np.ndarray, want_o: np.ndarray, want_lse: np.ndarray, magnitude: np.ndarray, unit: float
) -> None:
    """Assert o and lse. ``unit`` is the format's rounding error: of the probabilities, and again of the output."""
    wrong = ~(np.abs(o - want_o) <= unit * (magnitude + np.abs(want_o)) + 1e-7)
    assert not wrong.any(), f"o: {wrong.sum()} of {wrong.size} wrong, first at {tuple(np.argwhere(wrong)[0])}"
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
    seen = ~np.isneginf(want_lse)
    np.testing.assert_allclose(lse[seen], want_lse[seen], rtol=2e-6, atol=2e-5)
