"""An autoregressive flow in numpy: conditional densities and draws by networks that were trained elsewhere.

A context goes through a residual network; then each coordinate has, given those before it, a mixture of normal laws
whose weights, places and widths a further layer says. The distribution function of such a mixture maps its coordinate
to a uniform number, so that all of them together are a normalising flow; density and draws are both in closed form. To
answer needs no more than these numbers: whoever has a trained network needs no library for training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from abcdp._common.arrays import FloatArray

NARROWEST, WIDEST = -7.0, 3.0  # log standard deviations of a component: the prior has 0
_LOG_TAU = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Shape:
    """How large a network is: numbers of a context, coordinates, and of what lies between."""

    context: int
    coordinates: int
    hidden: int
    layers: int
    group: int  # hidden numbers to each coordinate
    components: int

    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of a network's arrays."""
        k, outputs = self.coordinates, 3 * self.components
        return {
            "enter": (self.context, self.hidden),
            "enter_bias": (self.hidden,),
            "inner": (self.layers, self.hidden, self.hidden),
            "inner_bias": (self.layers, self.hidden),
            "group": (self.hidden, k * self.group),
            "group_bias": (k * self.group,),
            "before": (k, k * self.group),  # from coordinates to the groups of later ones
            "out": (k, self.group, outputs),
            "skip": (self.hidden, k * outputs),
            "skip_bias": (k * outputs,),
        }


@dataclass(frozen=True, eq=False)
class Flow:
    """One network: a conditional density of coordinates given a context."""

    shape: Shape
    arrays: Mapping[str, FloatArray]

    def log_density(self, z: FloatArray, context: FloatArray) -> FloatArray:
        """Return the log density of coordinates, a row each, given one context."""
        groups, skipped = self._given(context)
        total = np.zeros(len(z))
        for k in range(self.shape.coordinates):
            logits, places, widths = self._mixture(k, z, groups, skipped)
            apart = (z[:, k, None] - places) * np.exp(-widths)
            total += np.logaddexp.reduce(logits - widths - 0.5 * apart**2, axis=1) - 0.5 * _LOG_TAU
        return total

    def draws(self, count: int, context: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return draws of the coordinates, a row each, given one context."""
        groups, skipped = self._given(context)
        z = np.zeros((count, self.shape.coordinates))
        every = np.arange(count)
        for k in range(self.shape.coordinates):
            logits, places, widths = self._mixture(k, z, groups, skipped)
            chosen = (rng.random((count, 1)) > np.cumsum(np.exp(logits), axis=1)).sum(axis=1)
            chosen = np.minimum(chosen, self.shape.components - 1)  # a sum of weights may end below 1 by rounding
            z[:, k] = places[every, chosen] + np.exp(widths[every, chosen]) * rng.standard_normal(count)
        return z

    def _given(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what a context says to the groups of coordinates, and to the mixtures past them."""
        a, outputs = self.arrays, (self.shape.coordinates, 3 * self.shape.components)
        hidden = _silu(context @ a["enter"] + a["enter_bias"])
        for inner, bias in zip(a["inner"], a["inner_bias"], strict=True):
            hidden = hidden + _silu(hidden @ inner + bias)
        groups = (hidden @ a["group"] + a["group_bias"]).reshape(self.shape.coordinates, self.shape.group)
        return groups, (hidden @ a["skip"] + a["skip_bias"]).reshape(outputs)

    def _mixture(
        self, k: int, z: FloatArray, groups: FloatArray, skipped: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log weights, places and log widths of a coordinate's components, given those before it."""
        own = slice(k * self.shape.group, (k + 1) * self.shape.group)
        hidden = _silu(groups[k] + z[:, :k] @ self.arrays["before"][:k, own])
        logits, places, widths = np.split(hidden @ self.arrays["out"][k] + skipped[k], 3, axis=1)
        logits = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return logits, places, np.clip(widths, NARROWEST, WIDEST)


def _silu(x: FloatArray) -> FloatArray:
    return np.asarray(x / (1.0 + np.exp(np.minimum(-x, 700.0))))
