"""Noise by the library OpenDP, which others read and use too: the default of a release."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from abcdp._common.arrays import IntArray
from abcdp.errors import NoiseMissingError
from abcdp.sampling.digits import box_noise, smaller_laplace
from abcdp.sampling.gumbel import smallest_of_each
from abcdp.sampling.normal import given_old, rounded_normals
from abcdp.sampling.words import check_draws, fill, system_words


class OpenDPNoise:
    """OpenDP's exact integer sampler, on OpenSSL's generator: the default for a real release.

    The running time of a draw depends a little on its value, unlike that of :class:`FastNoise`. OpenDP has neither box
    nor rounded Gaussian noise and none that replaces earlier noise, and its choice with Gumbel noise takes a time that
    tells about the values: the cubes of the first and the whole of the others are drawn as :class:`FastNoise` draws
    them.
    """

    seeded: ClassVar[bool] = False

    def __init__(self) -> None:
        _opendp_laplace(1)  # a missing library must show before any budget is spent

    def laplace(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-abs(k) / scale)."""
        check_draws(scale, size)
        measurement = _opendp_laplace(scale)
        return fill(size, lambda n: np.array(measurement([0] * n), dtype=np.int64))

    def exponential(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k / scale), for k >= 0.

        They are the Laplace draws that are not negative: given k >= 0 the Laplace law is this one, exactly.
        """
        check_draws(scale, size)
        kept = np.empty(0, dtype=np.int64)
        while kept.size < size:
            draws = self.laplace(scale, 2 * (size - kept.size))
            kept = np.concatenate([kept, draws[draws >= 0]])
        return kept[:size]

    def gaussian(self, scale: int, size: int) -> IntArray:
        """Return draws with P(k) proportional to exp(-k**2 / (2 scale**2))."""
        check_draws(scale, size)
        measurement = _opendp_gaussian(scale)
        return fill(size, lambda n: np.array(measurement([0] * n), dtype=np.int64))

    def rounded_gaussian(self, scale: int, size: int) -> IntArray:
        """Return normal numbers of this standard deviation, each rounded to the nearest whole one.

        Not by OpenDP: its Gaussian noise on whole numbers is the discrete one.
        """
        return rounded_normals(system_words, scale, size)

    def box(self, scale: int, width: int, size: int) -> IntArray:
        """Return vectors of `width` entries, a row each, with P(k) proportional to exp(-max(abs(k)) / scale)."""
        return box_noise(system_words, self.exponential, scale, width, size)

    def gumbel(self, values: IntArray, scale: int, count: int, runs: int) -> IntArray:
        """Return the places of the `count` smallest of values less Gumbel noise, a row per run, places rising.

        Not by OpenDP: its own choice of the top k refuses proposals that are far away, so that its time tells how many
        are near. It is the cross-check of this one in the tests.
        """
        return smallest_of_each(system_words, values, scale, count, runs)

    def laplace_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return Laplace draws of `scale` given that, with independent noise on top, they make `old` of `before`.

        Not by OpenDP, which has no such draws.
        """
        return smaller_laplace(system_words, old, before, scale)

    def rounded_gaussian_given(self, old: IntArray, before: int, scale: int) -> IntArray:
        """Return rounded normal numbers of `scale` given those of `before` that they make with more on top.

        Not by OpenDP, which has no such draws.
        """
        return given_old(system_words, old, before, scale)


def _opendp_laplace(scale: int) -> Any:
    """Return OpenDP's measurement that adds integer Laplace noise to a list of integers."""
    try:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_laplace
        from opendp.metrics import l1_distance
        from opendp.mod import enable_features
    except ImportError as error:
        raise NoiseMissingError(
            "OpenDPNoise needs the library opendp, which is not installed: run pip install 'abcdp[owner]'."
        ) from error
    enable_features("contrib")  # OpenDP's opt-in to code whose written proof is not fully vetted yet: nearly all of it
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=float(scale))


def _opendp_gaussian(scale: int) -> Any:
    """Return OpenDP's measurement that adds integer Gaussian noise to a list of integers."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance

    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="i64"), scale=float(scale))
