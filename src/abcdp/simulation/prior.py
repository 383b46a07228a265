"""Priors: independent marginals, one joint distribution, or a function that draws."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, as_array
from abcdp._common.support import Support, as_support
from abcdp.errors import ModelError

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

    @property
    def support(self) -> Support | None:
        """Where parameters are allowed, None where that is not known or they are whole numbers."""
        return self._own_support() if self._support is None else self._support

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

    def _own_support(self) -> Support | None:
        return None


class Marginals(Prior):
    """Independent distributions by the names of the parameters."""

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        columns = [_floats(m.rvs(size=count, random_state=rng)) for m in self.given.values()]
        return np.stack(columns, axis=1) if all(c.shape == (count,) for c in columns) else np.empty(0)

    def _own_log_density(self, theta: FloatArray) -> FloatArray | None:
        terms = [m.logpdf(theta[:, i]) for i, m in enumerate(self.given.values())]
        return np.asarray(np.sum(terms, axis=0), dtype=np.float64)

    def _own_latent(self) -> Latent | None:
        known = all(hasattr(m, "ppf") for m in self.given.values())
        return (len(self.parameters), self._quantiles) if known else None

    def _quantiles(self, z: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        columns = []
        for i, marginal in enumerate(self.given.values()):
            # from whichever tail is nearer, so that neither loses digits
            columns.append(np.where(z[:, i] < 0, marginal.ppf(ndtr(z[:, i])), marginal.isf(ndtr(-z[:, i]))))
        return np.stack(columns, axis=1)

    def _own_support(self) -> Support | None:
        marginals = self.given.values()
        if all(hasattr(m, "support") and hasattr(m, "pdf") and not hasattr(m, "pmf") for m in marginals):
            return as_support([m.support() for m in marginals], len(self.parameters))
        return None

    def describe(self) -> str:
        return "; ".join(f"{name} ~ {_word(marginal)}" for name, marginal in self.given.items())


class Joint(Prior):
    """One distribution of all parameters: an object with ``rvs`` and, if it has a density, ``logpdf``."""

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return _floats(self.given.rvs(size=count, random_state=rng))

    def _own_log_density(self, theta: FloatArray) -> FloatArray | None:
        return np.array([float(self.given.logpdf(row)) for row in theta]) if hasattr(self.given, "logpdf") else None

    def _own_support(self) -> Support | None:
        return "simplex" if type(self.given).__name__ == "dirichlet_frozen" else None


class Sampler(Joint):
    """A function ``prior(size, rng)`` that returns a row per draw; it may carry a ``logpdf``."""

    def _sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return _floats(self.given(count, rng))


def parameter_names(given: Any, parameters: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the parameters, or raise where a prior is none or does not fit them."""
    if isinstance(given, Mapping):
        if parameters is not None and tuple(parameters) != tuple(given):
            raise ModelError("parameters differ from the names in prior; leave parameters out.")
        for name, marginal in given.items():
            if not hasattr(marginal, "rvs"):
                _refuse_own_generator(marginal, f"prior of {name!r}")
                raise ModelError(f"prior of {name!r} has no rvs; give a frozen distribution such as stats.norm(0, 1).")
    elif not (callable(given) or hasattr(given, "rvs")):
        _refuse_own_generator(given, "prior")
        raise ModelError("prior: give a dictionary of distributions, an object with rvs, or a function (size, rng).")
    elif parameters is None:
        raise ModelError(
            "prior without a name: a joint prior needs parameters=[...], the names in the order of its columns; "
            "a single parameter can be written prior={'name': distribution}."
        )
    names = tuple(given) if parameters is None else tuple(parameters)
    if not names or any(not isinstance(n, str) or not n for n in names) or len(set(names)) != len(names):
        raise ModelError(f"parameters={names!r}: every parameter needs a name of its own.")
    return names


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
    if isinstance(given, Mapping):
        return Marginals
    return Joint if hasattr(given, "rvs") else Sampler


def _floats(values: Any) -> FloatArray:
    return np.asarray(as_array(values), dtype=np.float64)


def _word(prior: Any) -> str:
    if hasattr(prior, "dist"):
        arguments = [f"{a:g}" for a in prior.args] + [f"{k}={v:g}" for k, v in prior.kwds.items()]
        return f"{prior.dist.name}({', '.join(arguments)})"
    return str(getattr(prior, "__doc__", None) or type(prior).__name__).strip().split("\n")[0]
