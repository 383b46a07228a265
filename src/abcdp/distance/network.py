"""Summaries by a small network of each record: numbers of many columns, few enough to pay for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_number
from abcdp.distance.ball import Ball, Shape, check_shape
from abcdp.distance.base import MeanDistance, Norm
from abcdp.distance.regime import LARGEST_FEATURE, Interval
from abcdp.errors import DistanceError

Layer = tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]

MOST_LAYERS = 4
MOST_INPUTS = 256
MOST_UNITS = 64  # of a layer, outputs included
LARGEST_NUMBER = 1e9  # 256 inputs of at most 1e100 times this: squares of their sums are finite


@dataclass(frozen=True)
class NetworkSummary(MeanDistance):
    r"""The Euclidean distance of means of a network of each record's features, clipped in integers to a ball.

    A record goes through the layers by itself, with sums in a fixed order and the activation
    :math:`x / \sqrt{1 + x^2}` (whose root and quotient are rounded as IEEE says), so that what becomes of it does not
    depend on the records beside it. The last layer is linear. Its outputs are clipped to the ball, which bounds what
    one record can do whatever the weights are: the sensitivity of a private summary is enforced. Where the clip binds,
    the mean of outputs is no function of the mean of features, so a bank's rows are made with the same clip.

    Parameters
    ----------
    base
        The distance whose record features are the inputs, as they are: ``MeanSummary([0, 1, 2], domain=...)`` hands in
        three columns, clipped to their domain.
    layers
        One to four pairs (weights, biases): a row of weights for each input, with a number for each output, and a bias
        for each output. Numbers only: an owner computes with them and runs nobody's code.
    ball
        What outputs :math:`v` are clipped to: ``"box"``, :math:`|v_j| \le 1`; ``"l1"``, :math:`\sum_j |v_j| \le 1`;
        ``"l2"``, :math:`\sum_j v_j^2 \le 1`. Each entry is clipped to :math:`[-1, 1]` first; what then still lies
        outside of an L1 or L2 ball is shrunk towards 0, all entries by the same factor.

    Examples
    --------
    >>> from abcdp.distance.mean_summary import MeanSummary
    >>> from abcdp.privacy.unit import Unit
    >>> columns = MeanSummary([0, 1], domain=((0, 10), (0, 10)))
    >>> hidden, out = ([[1, -1, 0.5], [0, 1, 0.5]], [0, 0, -5]), ([[1], [1], [-1]], [0])
    >>> distance = NetworkSummary(columns, (hidden, out), "l1")
    >>> print(f"{distance.sensitivity(100, Unit(), norm=1):.9f}")
    0.020000000
    """

    base: MeanDistance
    layers: tuple[Layer, ...]
    ball: Shape

    kind: ClassVar[str] = "network"
    inner: ClassVar[str] = "base"

    def __post_init__(self) -> None:
        base = self.base
        if not isinstance(base, MeanDistance) or not base.has_summary or not base.rowwise:
            raise DistanceError(
                "a network needs a base distance whose features are those of each record by itself, such as "
                "MeanSummary([0, 1], domain=...)."
            )
        check_shape(self.ball)
        inputs = base.width(1)
        if inputs > MOST_INPUTS or not base.magnitude() <= LARGEST_FEATURE:
            raise DistanceError(
                f"the base of a network has {inputs} features; at most {MOST_INPUTS} of at most {LARGEST_FEATURE:g} "
                "are supported."
            )
        if not isinstance(self.layers, list | tuple) or not 1 <= len(self.layers) <= MOST_LAYERS:
            raise DistanceError(f"layers: from 1 to {MOST_LAYERS} pairs (weights, biases).")
        layers: list[Layer] = []
        for number, values in enumerate(self.layers, start=1):
            layers.append(_layer(values, inputs, number))
            inputs = len(layers[-1][1])
        object.__setattr__(self, "layers", tuple(layers))

    def __repr__(self) -> str:
        widths = [self.base.width(1), *(len(biases) for _, biases in self.layers)]
        return f"NetworkSummary({self.base!r}, {'-'.join(map(str, widths))}, {self.ball!r})"  # not all of its numbers

    @functools.cached_property
    def _arrays(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        return tuple((np.array(weights), np.array(biases)) for weights, biases in self.layers)

    @property
    def arrays(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """The weights and biases of the layers."""
        return self._arrays

    @functools.cached_property
    def _ball(self) -> Ball:
        return Ball(self.ball, 1.0, len(self.layers[-1][1]))

    def ball_of_features(self) -> Ball:
        return self._ball

    def fitted(self, columns: int, pilot: FloatArray | None = None) -> Self:
        return type(self)(self.base.fitted(columns, pilot), self.layers, self.ball)

    def clean(self, data: npt.ArrayLike) -> FloatArray:
        return self.base.clean(data)

    def missing_columns(self) -> frozenset[int]:
        return self.base.missing_columns()

    def check_records(self, records: int, per_draw: int) -> None:
        self.base.check_records(records, per_draw)

    @property
    def rowwise(self) -> bool:
        return True

    def record_features(self, records: FloatArray) -> FloatArray:
        return self._outputs(self.base.record_features(records))

    def _outputs(self, inputs: FloatArray) -> FloatArray:
        from abcdp._kernels import kernels

        return self._ball.features(kernels().network(inputs, self._arrays))

    def cases(self) -> FloatArray | None:
        found = self.base.cases()
        return None if found is None else self._outputs(found)

    def case_of(self, records: FloatArray) -> IntArray:
        return self.base.case_of(records)

    def line(self) -> Interval | None:
        return self.base.line()

    def number_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"output of the learned network {k + 1}" for k in range(self.width(1)))

    def width(self, records: int) -> int:
        return len(self.layers[-1][1])

    def bounds(self, records: int) -> tuple[FloatArray, FloatArray]:
        return self._ball.bounds

    def breadth(self) -> int:
        return self.base.breadth() + self.width(1)

    def feature_error(self) -> float:
        return 0.0  # what is computed, in the ball, is what a feature is defined to be

    def diameter(self, change: float | tuple[float, ...], norm: Norm) -> float:
        if isinstance(change, tuple):
            self.base.diameter(change, 2)  # says so where it is not the change of these columns
        return self._ball.diameter(norm)


def _layer(values: Any, inputs: int, number: int) -> Layer:
    """Return a layer as plain numbers, once their count is what it must be."""
    try:
        weights, biases = values
    except (TypeError, ValueError):
        raise DistanceError(f"layer {number} of a network: a pair (weights, biases).") from None
    outputs = _length(biases)
    if not 1 <= outputs <= MOST_UNITS:
        raise DistanceError(f"layer {number} of a network: from 1 to {MOST_UNITS} biases, one for each output.")
    if _length(weights) != inputs or any(_length(row) != outputs for row in weights):
        raise DistanceError(
            f"layer {number} of a network: {inputs} rows of weights, one for each input, with {outputs} numbers each, "
            "one for each bias."
        )
    return tuple(_numbers(row, number) for row in weights), _numbers(biases, number)


def _length(values: Any) -> int:
    """Return how many values there are, -1 for what is no list."""
    is_list = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim > 0)
    return len(values) if is_list else -1


def _numbers(values: Any, number: int) -> tuple[float, ...]:
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    if not all(is_number(value) and abs(value) <= LARGEST_NUMBER for value in plain):  # NaN is no number here
        raise DistanceError(
            f"layer {number} of a network: weights and biases are finite numbers of at most {LARGEST_NUMBER:g}; "
            "rescale the features of its base."
        )
    return tuple(float(value) for value in plain)
