"""A model: a prior over named parameters and a simulator."""

from __future__ import annotations

import importlib
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number
from abcdp._common.support import Support
from abcdp.bank.status import NOT_FINITE, RAISED, DrawFailed
from abcdp.errors import ModelError, WorkerError
from abcdp.simulation.isolated import Isolated
from abcdp.simulation.prior import Latent, LogDensity, kind_of, parameter_names
from abcdp.simulation.program import Program

if TYPE_CHECKING:
    from abcdp.distance import Distance


class Model:
    """A prior and a simulator.

    Parameters
    ----------
    prior
        A dictionary from parameter names to frozen scipy distributions; or one object with ``rvs(size, random_state)``
        for a joint prior; or a function ``prior(size, rng)`` that returns an array with a row per draw. The last two
        need `parameters`.
    simulator
        ``simulator(theta, records, rng)``. If `vectorised`, theta has a row per draw and the result has the shape
        (draws, records) or (draws, records, columns). Otherwise theta is one draw and the result has the shape
        (records,) or (records, columns). A draw that cannot be simulated is returned as NaN; an exception fails the
        draw, or all draws of the batch if `vectorised`.
    parameters
        The names, in the order of theta's columns.
    name
        What a bank calls the model.
    vectorised
        Whether one call simulates many draws.
    log_prior
        For a function prior: ``log_prior(theta)``, the log density of each row.
    latent
        The prior as a map: a number k and a function from rows of k standard normal numbers to rows of theta with the
        prior's law. Independent marginals with ``ppf`` have one of their own. It lets :func:`abcdp.refine` move freely.
    distance
        The distance to use where none is named, as the command line does.
    time_limit
        Seconds that one draw may take. The simulator, which must be per draw (``vectorised=False``), then runs in a
        process of its own, which is killed where it takes longer; the draw is kept as timed out, is never accepted, and
        is counted. That costs half a second for each process started and 0.2 ms a draw, and whether a draw near the
        limit makes it depends on the machine: choose a limit that only what hangs exceeds.
    support
        Where the prior allows the parameters: ``"simplex"``, or a pair (low, high) for each, None where it has no end.
        Continuous scipy distributions say it themselves. It lets a regression adjustment keep to it.

    With a time limit, and for programs (:meth:`command`), every draw has a random stream of its own, so that a draw
    that was stopped half-way does not change those after it.

    Examples
    --------
    >>> from scipy import stats
    >>> def simulate(theta, records, rng):
    ...     return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))
    >>> model = Model(prior={"mu": stats.norm(0, 5), "sigma": stats.uniform(0.1, 5)}, simulator=simulate)
    >>> model.parameters
    ('mu', 'sigma')
    """

    def __init__(
        self,
        prior: Any,
        simulator: Callable[..., Any],
        *,
        parameters: Sequence[str] | None = None,
        name: str | None = None,
        vectorised: bool = True,
        log_prior: LogDensity | None = None,
        latent: Latent | None = None,
        distance: Distance | None = None,
        time_limit: float | None = None,
        support: Any = None,
    ) -> None:
        names = parameter_names(prior, parameters)
        if not callable(simulator):
            raise ModelError(f"simulator={simulator!r} is not callable; give a function (theta, records, rng).")
        self.prior = prior
        self.simulator = simulator
        self.parameters = names
        self.name = name or str(getattr(simulator, "__name__", type(simulator).__name__))
        self.vectorised = vectorised
        self.distance = distance
        self.time_limit = self._checked_limit(time_limit, vectorised)
        self._isolated: Isolated | None = None
        self._lock = threading.Lock()
        self._law = kind_of(prior)(prior, names, self.name, log_prior, latent, support)

    @staticmethod
    def _checked_limit(limit: float | None, vectorised: bool) -> float | None:
        if limit is None:
            return None
        if not is_number(limit) or not 0 < limit < math.inf:
            raise ModelError(f"time_limit={limit!r}: seconds above 0 that a draw may take.")
        if vectorised:
            raise ModelError(
                "time_limit holds for one draw; give a simulator of one draw and say Model(..., vectorised=False)."
            )
        return float(limit)

    @classmethod
    def command(
        cls,
        command: Sequence[str],
        prior: Any,
        *,
        parameters: Sequence[str] | None = None,
        stdin: Literal["none", "json"] = "none",
        stdout: Literal["csv", "json", "npy"] = "csv",
        columns: int = 1,
        time_limit: float | None = None,
        **options: Any,
    ) -> Model:
        """Return the model whose simulator is a program, run once per draw (:class:`abcdp.simulation.program.Program`).

        >>> from scipy import stats
        >>> prior = {"rate": stats.gamma(2)}
        >>> Model.command(["./simulate", "{theta}", "{records}", "--seed={seed}"], prior, time_limit=60)
        Model('simulate', parameters=('rate',))
        """
        names = parameter_names(prior, parameters)
        words = command if isinstance(command, str) else tuple(map(str, command))
        limit = cls._checked_limit(time_limit, vectorised=False)
        program = Program(words, names, stdin, stdout, columns, limit)
        options = {"name": program.name} | options
        return cls(prior, program, parameters=parameters, vectorised=False, time_limit=limit, **options)

    @property
    def runs_apart(self) -> bool:
        """Whether draws are simulated in other processes, so that this one only waits for them."""
        return self.time_limit is not None or isinstance(self.simulator, Program)

    def close(self) -> None:
        """End the processes that wait for further draws, where a time limit made any."""
        with self._lock:
            isolated, self._isolated = self._isolated, None
        if isolated is not None:
            isolated.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_isolated", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _isolated=None, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"Model({self.name!r}, parameters={self.parameters})"

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` draws from the prior, a row each."""
        return self._law.draw(count, rng)

    def log_prior(self, theta: FloatArray) -> FloatArray:
        """Return the log density of the prior at each row of theta."""
        return self._law.log_density(theta)

    @property
    def latent_dimension(self) -> int:
        """The number of standard normal numbers behind a draw of the prior."""
        return self._law.latent[0]

    def from_latent(self, z: FloatArray) -> FloatArray:
        """Return parameters from rows of standard normal numbers: those of the prior, if these are independent."""
        return np.asarray(self._law.latent[1](z), dtype=np.float64)

    @property
    def support(self) -> Support | None:
        """Where the prior allows the parameters, None where that is not known or they are whole numbers."""
        return self._law.support

    def describe_prior(self) -> str:
        """Return the prior as text, for the manifest of a bank."""
        return self._law.describe()

    def run(
        self, theta: FloatArray, records: int, rng: np.random.Generator
    ) -> tuple[FloatArray | None, npt.NDArray[np.int8], Exception | None]:
        """Simulate a batch.

        Returns the data as (draws, records, columns), a status per draw, and the last exception. Where no draw gave
        data the first part is None; the data of a failed draw are zeros.
        """
        status = np.zeros(len(theta), dtype=np.int8)
        trouble: Exception | None = None
        if self.vectorised:
            try:
                data = self._shaped(self.simulator(theta, records, rng), (len(theta), records))
            except ModelError:
                raise
            except Exception as error:
                return None, np.full(len(theta), RAISED, dtype=np.int8), error
        else:
            parts: list[FloatArray | None] = []
            streams: Iterable[np.random.Generator] = rng.spawn(len(theta)) if self.runs_apart else itertools.repeat(rng)
            for row, stream in zip(range(len(theta)), streams, strict=False):
                try:
                    parts.append(self._shaped(self._one(theta[row], records, stream), (records,)))
                except (ModelError, WorkerError):
                    raise
                except Exception as error:
                    trouble = error
                    parts.append(None)
                    status[row] = error.status if isinstance(error, DrawFailed) else RAISED
            columns = {part.shape[1] for part in parts if part is not None}
            if len(columns) > 1:
                raise ModelError(f"simulator {self.name!r} returned {sorted(columns)} columns for different draws.")
            if not columns:
                return None, status, trouble
            blank = np.zeros((records, columns.pop()))
            data = np.stack([blank if part is None else part for part in parts])
        # a finite sum says that every term is finite, at the cost of one pass
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(data.sum(axis=(1, 2))).all()
        if suspicious:
            bad = np.array([not np.isfinite(one).all() for one in data])
            data = np.where(bad[:, None, None], 0.0, data)
            status[bad] = NOT_FINITE
        return data, status, trouble

    def _one(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Any:
        if self.time_limit is None or isinstance(self.simulator, Program):  # a program keeps its own time
            return self.simulator(theta, records, rng)
        with self._lock:
            if self._isolated is None:
                self._isolated = Isolated(self.simulator, self.name)
            isolated = self._isolated
        return isolated(theta, records, rng, self.time_limit)

    def _shaped(self, result: Any, expected: tuple[int, ...]) -> FloatArray:
        data = np.asarray(result)
        if data.dtype.kind not in "fiub":
            raise ModelError(f"simulator {self.name!r} returned values of type {data.dtype}; it must return numbers.")
        data = np.ascontiguousarray(data, dtype=np.float64)
        if data.shape == expected:
            data = data[..., None]
        if data.ndim != len(expected) + 1 or data.shape[:-1] != expected or data.shape[-1] < 1:
            scope = "one draw" if self.vectorised else "many draws"
            raise ModelError(
                f"simulator {self.name!r} returned the shape {np.shape(result)}; it must be {expected} or "
                f"{expected} plus one axis of columns. If a call simulates {scope}, say "
                f"Model(..., vectorised={not self.vectorised})."
            )
        return data


def load(reference: str) -> Any:
    """Return the object named by ``package.module:object``."""
    module, sign, name = reference.partition(":")
    if not sign or not module or not name:
        raise ModelError(f"{reference!r}: write package.module:object.")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{reference!r} cannot be loaded: {error}.") from error
    return found
