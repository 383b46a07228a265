"""Priors: independent marginals, one joint distribution, or a function that draws.

A Dirichlet law of scipy's is known: alone, or as one of the marginals, where it stands for several parameters.
"""

from __future__ import annotations

import abc
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, as_array
from abcdp._common.support import Support, as_support
from abcdp.errors import ModelError

_ON_SIMPLEX = 1e-9  # how far from 1 weights may sum: floating point
_LEAST_WEIGHT = 1e-300  # a weight whose logarithm is a number
_REACH = 8.0  # standard deviations that the normal number behind a parameter is at most, where it is looked for

LogDensity = Callable[[FloatArray], FloatArray]
Latent = tuple[int, Callable[[FloatArray], FloatArray]]

# A frozen scipy distribution keeps the generator of the call in progress on itself: two threads may not draw at once.
_lock = threading.Lock()


class Prior(abc.ABC):
    """The law of a model's parameters: draws, a log density, a map from normal numbers, a support.

    What a caller states of it (`log_density`, `latent`, `support`) goes before what the distributions say themselves.
    `model` is the name that messages give.
    """

    def __init__(
        self,
        given: Any,
        parameters: tuple[str, ...],
        model: str,
        log_density: LogDensity | None = None,
        latent: Latent | None = None,
        support: Any = None,
    ) -> None:
        self.given = given
        self.parameters = parameters
        self._model = model
        self._log_density = log_density
        self._latent = latent
        self._support = None if support is None else as_support(support, len(parameters))

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` draws, a row each."""
        try:
            with _lock:
                theta = self._sample(count, rng)
        except (ModelError, MemoryError):
            raise
        except Exception as error:
            raise ModelError(
                f"the prior of {self._model!r} could not be drawn from: {type(error).__name__}: {error}. It must take "
                "a number of draws and a numpy generator: rvs(size, random_state), or a function (size, rng)."
            ) from error
        if theta.shape == (count,) and len(self.parameters) == 1:
            theta = theta[:, None]
        if theta.shape != (count, len(self.parameters)):
            raise ModelError(
                f"the prior of {self._model!r} returned the shape {theta.shape} for {count} draws of "
                f"{len(self.parameters)} parameters {self.parameters}; it must be ({count}, {len(self.parameters)})."
            )
        if not np.isfinite(theta).all():
            raise ModelError(f"the prior of {self._model!r} returned NaN or infinity; parameters must be finite.")
        return np.ascontiguousarray(theta)

    def log_density(self, theta: FloatArray) -> FloatArray:
        """Return the log density at each row of theta."""
        if self._log_density is not None:
            return np.asarray(self._log_density(theta), dtype=np.float64)
        found = self._own_log_density(theta)
        if found is None:
            raise ModelError(f"the prior of {self._model!r} has no density; give Model(..., log_prior=function).")
        return found

    @property
    def latent(self) -> Latent:
        """How many standard normal numbers stand behind a draw, and the map from rows of them to parameters."""
        found = self._latent or self._own_latent()
        if found is None:
            raise ModelError(
                f"the prior of {self._model!r} is not known as a map; give Model(..., latent=(k, function))."
            )
        return found

    def to_latent(self, theta: FloatArray) -> FloatArray:
        """Return standard normal numbers behind parameters, a row each: of whole numbers, in the middle of theirs."""
        found = None if self._latent is not None else self._own_scores(theta)
        if found is None:
            raise ModelError(
                f"the prior of {self._model!r} is no known map of normal numbers that can be inverted: write it as "
                "independent scipy distributions, prior={'name': stats.norm(0, 1), ...}, without latent=."
            )
        return np.clip(found, -_REACH, _REACH)

    @property
    def support(self) -> Support | None:
        """Where parameters are allowed, None where that is not known or they are whole numbers."""
        return self._own_support() if self._support is None else self._support

    @property
    def independent(self) -> tuple[Any, ...] | None:
        """The laws of the independent numbers that a draw is made of, one fewer than weights of a simplex.

        These are the shares that each weight but the last takes of what those before it left. None where nothing is
        known of them.
        """
        return None

    def describe(self) -> str:
        """Return the prior as text, for the manifest of a bank."""
        return f"({', '.join(self.parameters)}) ~ {_word(self.given)}"

    @abc.abstractmethod
    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return what the distributions draw, of whatever shape."""

    def _own_log_density(self, theta: FloatArray) -> FloatArray | None:
        return None

    def _own_latent(self) -> Latent | None:
        return None

    def _own_scores(self, theta: FloatArray) -> FloatArray | None:
        return None

    def _own_support(self) -> Support | None:
        return None


@dataclass(frozen=True)
class _Piece:
    """One of the distributions of a prior, and the columns of theta that it draws: several for a Dirichlet law."""

    name: str
    law: Any
    columns: slice

    @property
    def dirichlet(self) -> bool:
        return is_dirichlet(self.law)

    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws, a row each."""
        width = self.columns.stop - self.columns.start
        drawn = _floats(self.law.rvs(size=count, random_state=rng))
        if drawn.shape != ((count, width) if self.dirichlet else (count,)):
            raise ModelError(
                f"prior of {self.name!r} drew the shape {drawn.shape} for {count} draws: each of several distributions "
                "is that of one number, or a Dirichlet law. For others that belong together give a function (size, "
                "rng) for all, with parameters=[...]."
            )
        return drawn.reshape(count, width)

    def log_density(self, theta: FloatArray) -> FloatArray:
        """Return the log density at each row of all parameters."""
        own = theta[:, self.columns]
        return _log_dirichlet(own, self.law.alpha) if self.dirichlet else np.asarray(self.law.logpdf(own[:, 0]))

    @property
    def independent(self) -> tuple[Any, ...]:
        """The laws of the independent numbers that its draws are made of."""
        if not self.dirichlet:
            return (self.law,)
        from scipy.stats import beta

        alpha = np.asarray(self.law.alpha, dtype=np.float64)
        rest = np.cumsum(alpha[::-1])[::-1]
        return tuple(beta(one, after) for one, after in zip(alpha[:-1], rest[1:], strict=True))

    def quantiles(self, z: FloatArray) -> FloatArray:
        """Return draws from as many standard normal numbers as there are independent ones."""
        from scipy.special import ndtr

        def at(law: Any, z: FloatArray) -> FloatArray:
            # from whichever tail is nearer, so that neither loses digits
            return np.asarray(np.where(z < 0, law.ppf(ndtr(z)), law.isf(ndtr(-z))))

        if not self.dirichlet:
            return np.asarray(at(self.law, z[:, 0])[:, None])
        from scipy.stats import beta

        weights, left = np.empty((len(z), z.shape[1] + 1)), np.ones(len(z))
        for k, law in enumerate(self.independent):
            weights[:, k] = left * at(law, z[:, k])
            left = left * at(beta(*law.args[::-1]), -z[:, k])  # what it leaves: 1 less the share, with all its digits
        weights[:, -1] = left
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def scores(self, theta: FloatArray) -> FloatArray:
        """Return the normal numbers behind rows of all parameters: what :meth:`quantiles` takes."""
        from scipy.special import ndtri

        own = theta[:, self.columns]
        if self.dirichlet:
            left = own[:, ::-1].cumsum(axis=1)[:, ::-1]  # of each weight and all behind it
            own = own[:, :-1] / np.maximum(left[:, :-1], _LEAST_WEIGHT)
        out = np.empty_like(own)
        for k, law in enumerate(self.independent):
            below, above = law.cdf(own[:, k]), law.sf(own[:, k])
            if hasattr(law, "pmf"):
                half = 0.5 * law.pmf(own[:, k])
                below, above = below - half, above + half
            # from whichever tail is nearer, so that neither loses digits
            out[:, k] = np.where(below < above, ndtri(below), -ndtri(above))
        return out

    @property
    def support(self) -> tuple[Any, Any] | None:
        """Where it allows its parameters, None where that is not known."""
        if self.dirichlet:
            return "simplex", self.columns.stop - self.columns.start
        known = hasattr(self.law, "support") and hasattr(self.law, "pdf") and not hasattr(self.law, "pmf")
        return self.law.support() if known else None


class Marginals(Prior):
    """Independent distributions by the names of the parameters, or a single Dirichlet law of all of them."""

    @functools.cached_property
    def _pieces(self) -> tuple[_Piece, ...]:
        laws = self.given if isinstance(self.given, Mapping) else {", ".join(self.parameters): self.given}
        ends = np.cumsum([len(law.alpha) if is_dirichlet(law) else 1 for law in laws.values()]).tolist()
        return tuple(
            _Piece(name, law, slice(start, end))
            for (name, law), start, end in zip(laws.items(), [0, *ends], ends, strict=False)
        )

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return np.concatenate([piece.sample(count, rng) for piece in self._pieces], axis=1)

    def _own_log_density(self, theta: FloatArray) -> FloatArray | None:
        return np.asarray(np.sum([piece.log_density(theta) for piece in self._pieces], axis=0), dtype=np.float64)

    @property
    def independent(self) -> tuple[Any, ...] | None:
        return tuple(law for piece in self._pieces for law in piece.independent)

    def _own_latent(self) -> Latent | None:
        laws = self.independent or ()
        return (len(laws), self._quantiles) if all(hasattr(law, "ppf") for law in laws) else None

    def _quantiles(self, z: FloatArray) -> FloatArray:
        ends = np.cumsum([len(piece.independent) for piece in self._pieces])
        numbers = np.split(z, ends[:-1], axis=1)
        return np.concatenate([piece.quantiles(n) for piece, n in zip(self._pieces, numbers, strict=True)], axis=1)

    def _own_scores(self, theta: FloatArray) -> FloatArray | None:
        if not all(hasattr(law, word) for law in self.independent or () for word in ("ppf", "isf", "cdf", "sf")):
            return None
        return np.concatenate([piece.scores(theta) for piece in self._pieces], axis=1)

    def _own_support(self) -> Support | None:
        parts = [piece.support for piece in self._pieces]
        return None if None in parts else as_support(parts, len(self.parameters))

    def describe(self) -> str:
        if not isinstance(self.given, Mapping):
            return super().describe()
        return "; ".join(f"{name} ~ {_word(marginal)}" for name, marginal in self.given.items())


class Joint(Prior):
    """One distribution of all parameters: an object with ``rvs`` and, if it has a density, ``logpdf``."""

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return _floats(self.given.rvs(size=count, random_state=rng))

    def _own_log_density(self, theta: FloatArray) -> FloatArray | None:
        return np.array([float(self.given.logpdf(row)) for row in theta]) if hasattr(self.given, "logpdf") else None


class Sampler(Joint):
    """A function ``prior(size, rng)`` that returns a row per draw; it may carry a ``logpdf``."""

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return _floats(self.given(count, rng))


def is_dirichlet(law: Any) -> bool:
    """Whether this is a Dirichlet law of scipy's."""
    return type(law).__name__ == "dirichlet_frozen" and hasattr(law, "alpha")


def parameter_names(given: Any, parameters: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the parameters, or raise where a prior is none or does not fit them.

    The weights of a Dirichlet law among others, ``{"w": stats.dirichlet([1, 1, 1])}``, are w_1, w_2 and w_3.
    """
    names: tuple[str, ...] = ()
    if isinstance(given, Mapping):
        for name, marginal in given.items():
            _refuse_single_weight(marginal)
            if not hasattr(marginal, "rvs"):
                _refuse_own_generator(marginal, f"prior of {name!r}")
                raise ModelError(f"prior of {name!r} has no rvs; give a frozen distribution such as stats.norm(0, 1).")
        names = tuple(part for name, law in given.items() for part in _names_of(name, law))
        if parameters is not None and tuple(parameters) != names:
            raise ModelError(f"parameters differ from the names in prior, which are {names}; leave parameters out.")
    elif not (callable(given) or hasattr(given, "rvs")):
        _refuse_own_generator(given, "prior")
        raise ModelError("prior: give a dictionary of distributions, an object with rvs, or a function (size, rng).")
    elif parameters is None:
        raise ModelError(
            "prior without a name: a joint prior needs parameters=[...], the names in the order of its columns; "
            "a single parameter can be written prior={'name': distribution}."
        )
    _refuse_single_weight(given)
    if is_dirichlet(given) and parameters is not None and len(parameters) != len(given.alpha):
        raise ModelError(
            f"parameters={tuple(parameters)!r}: a Dirichlet law of {len(given.alpha)} weights has as many."
        )
    if not names:
        names = tuple(parameters or ())
    if not names or any(not isinstance(n, str) or not n for n in names) or len(set(names)) != len(names):
        raise ModelError(f"parameters={names!r}: every parameter needs a name of its own.")
    return names


def _refuse_single_weight(law: Any) -> None:
    if is_dirichlet(law) and len(law.alpha) < 2:
        raise ModelError("a Dirichlet law of a single weight is always 1: leave it out.")


def _names_of(name: str, law: Any) -> list[str]:
    """Return the names of the parameters that a distribution of a dictionary draws."""
    if not is_dirichlet(law) or not isinstance(name, str):
        return [name]
    return [f"{name}_{k + 1}" for k in range(len(law.alpha))]


def _refuse_own_generator(given: Any, what: str) -> None:
    """Raise where a distribution is one of torch or alike, whose draws no seed of a bank would name."""
    if hasattr(given, "sample"):
        raise ModelError(
            f"{what} is a {type(given).__name__} with sample and without rvs, as torch's distributions: it draws "
            "from a generator of its own, so that no bank could be made again. Write it with scipy.stats, such as "
            "stats.norm(0, 1), or as a function (size, rng) with parameters=[...]."
        )


def kind_of(given: Any) -> type[Prior]:
    """Return the kind of prior that a caller's object is."""
    if isinstance(given, Mapping) or is_dirichlet(given):
        return Marginals
    return Joint if hasattr(given, "rvs") else Sampler


def keyed_kind_of(given: Any) -> type[Prior]:
    """Return the kind of prior of a model in JAX, where a function of one argument is one draw from a random key."""
    kind = kind_of(given)
    try:
        keyed = kind is Sampler and len(inspect.signature(given).parameters) == 1
    except (TypeError, ValueError):  # of what Python does not know the arguments
        keyed = False
    if not keyed:
        return kind
    from abcdp.simulation.jax_prior import Keyed

    return Keyed


def _floats(values: Any) -> FloatArray:
    return np.asarray(as_array(values), dtype=np.float64)


def _log_dirichlet(theta: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return the log density of a Dirichlet law, minus infinity beside the simplex."""
    from scipy.special import gammaln

    inside = (theta >= 0).all(axis=1) & (np.abs(theta.sum(axis=1) - 1.0) <= _ON_SIMPLEX)
    logs = (np.asarray(alpha) - 1.0) * np.log(np.maximum(theta, _LEAST_WEIGHT))
    constant = gammaln(np.sum(alpha)) - gammaln(alpha).sum()
    return np.where(inside, constant + logs.sum(axis=1), -np.inf)


def _word(prior: Any) -> str:
    if is_dirichlet(prior):
        return f"dirichlet({', '.join(f'{a:g}' for a in prior.alpha)})"
    if hasattr(prior, "dist"):
        arguments = [f"{a:g}" for a in prior.args] + [f"{k}={v:g}" for k, v in prior.kwds.items()]
        return f"{prior.dist.name}({', '.join(arguments)})"
    return str(getattr(prior, "__doc__", None) or type(prior).__name__).strip().split("\n")[0]
