"""What speaks against an answer of any method: a summary like no simulation or like none of its own, and failures."""

from __future__ import annotations

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.inference.base import Answer
from abcdp.inference.evidence import Evidence

STRANGE = "no simulation looks like the released summary: the model, its prior or the units of the records may be wrong"
UNLIKELY = "next to no dataset simulated at its draws would be released with numbers like these"

_ROWS = 4000  # draws of the bank, half of which play the released summary
_VALUES = 1 << 22  # numbers held at once
_PAIRS = 1 << 18  # of points that are compared at once: what the cache of a core holds
_MOST_NUMBERS = 1000  # of a summary: the time goes with their cube
_FEWEST = 100  # draws below which nothing can be said
_FURTHER = 1.5  # times the furthest of the pretended: beyond chance
_NEAREST, _FAILED = 100, 0.1  # draws around an answer, and the share of them that may have failed
_MOST = 200_000  # draws that are looked at
_RARE = 2e-3  # predictive p-value below which an answer is not believed


def strangeness(evidence: Evidence, rng: np.random.Generator) -> float | None:
    """Return how far the released summary lies from its nearest simulation, over the most that simulations do.

    Simulations with fresh noise play it, and are compared with the same. None where these are too few, summaries too
    long, or fresh noise cannot be drawn.
    """
    summary = evidence.released
    width = len(summary.values)
    if width > _MOST_NUMBERS or summary.no_draws is not None:
        return None
    rows = evidence.draws.first(max(2 * _FEWEST, min(_ROWS, _VALUES // width))).without(evidence.left_out).rows
    if len(rows) < 2 * _FEWEST:
        return None
    rows = rows[rng.permutation(len(rows))]
    half = len(rows) // 2
    pretended = summary.noised(rows[:half], rng)
    seen = summary.noised(rows, rng)
    values, vectors = np.linalg.eigh(np.cov(seen.T).reshape(width, width))
    white = vectors / np.sqrt(np.maximum(values, 1e-9 * max(float(values[-1]), 1e-300)))
    others = rows[half:] @ white
    apart = _nearest(np.concatenate([summary.centre[None], pretended]) @ white, others)
    return float(apart[0] / max(float(apart[1:].max()), 1e-300))


def _nearest(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the distance of each point to the nearest of others."""
    sizes, count = (others**2).sum(axis=1), max(1, _PAIRS // len(others))
    parts = (points[start : start + count] for start in range(0, len(points), count))
    squared = [(part**2).sum(axis=1) + (sizes - 2.0 * part @ others.T).min(axis=1) for part in parts]
    return np.asarray(np.sqrt(np.maximum(np.concatenate(squared), 0.0)))


def failed_near(bank: Bank, theta: FloatArray) -> float:
    """Return the share of failed simulations among the draws of a bank nearest to an answer."""
    if not bank.failed or not len(theta):
        return 0.0
    parts, count = [], 0
    for _, shard in bank.shards():
        parts.append((shard.theta, shard.fine))
        count += len(shard.theta)
        if count >= _MOST:
            break
    drawn, fine = (np.concatenate(part) for part in zip(*parts, strict=True))
    spread = drawn.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    apart = (((drawn - theta.mean(axis=0)) / scale) ** 2).sum(axis=1)
    return float((~fine[np.argsort(apart)[:_NEAREST]]).mean())


def unlikely(answer: Answer) -> bool:
    """Whether the released summary is not what draws of an answer predict."""
    found = answer.predicted
    return found is not None and found.p_value is not None and found.p_value < _RARE


def reasons_against(evidence: Evidence, bank: Bank, answer: Answer, rng: np.random.Generator) -> tuple[str, ...]:
    """Return what speaks against an answer, in words: of a summary that no draw explains, the more telling reason."""
    found = []
    strange = None if evidence.summary is None else strangeness(evidence, rng)
    if strange is not None and strange > _FURTHER:
        found.append(f"{STRANGE} (it lies {strange:.2g} times as far from the nearest as any of them would)")
    elif unlikely(answer):
        found.append(f"{UNLIKELY}: the model may be wrong about these data, or the answer is")
    failed = failed_near(bank, answer.theta)
    if failed > _FAILED:
        found.append(f"{failed:.0%} of the simulations nearest to the answer failed, and it knows nothing of them")
    return tuple(found)
