"""A model: a prior over named parameters and a simulator."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.missing import NONE, Rules
from abcdp._common.support import Support
from abcdp.errors import ModelError
from abcdp.simulation.prior import Latent, LogDensity, keyed_kind_of, kind_of, parameter_names
from abcdp.simulation.program import Program
from abcdp.simulation.simulators import Backend, Outcome, Simulator, missing_rules, outcome_of, seconds, simulator_for

if TYPE_CHECKING:
    from abcdp.bank import Bank
    from abcdp.distance import Distance


class Model:
    """A prior and a simulator.

    Parameters
    ----------
    prior
        A dictionary from parameter names to frozen scipy distributions; or one object with ``rvs(size, random_state)``
        for a joint prior; or a function ``prior(size, rng)`` that returns an array with a row per draw. The last two
        need `parameters`. ``scipy.stats.dirichlet`` may be the whole prior, or stand in the dictionary for several
        parameters: the weights of ``{"w": stats.dirichlet([1, 1, 1])}`` are w_1, w_2 and w_3.
    simulator
        ``simulator(theta, records, rng)``. If `vectorised`, theta has a row per draw and the result has the shape
        (draws, records) or (draws, records, columns). Otherwise theta is one draw and the result has the shape
        (records,) or (records, columns). A draw that cannot be simulated is returned as NaN throughout; an exception
        fails the draw, or all draws of the batch if `vectorised`. Or an object that is a
        :class:`abcdp.simulation.simulators.Simulator`, which says itself how it is to be called.
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
        prior's law. Independent marginals with ``ppf`` and Dirichlet laws have one of their own. It lets
        :func:`abcdp.refine` move freely.
    distance
        The distance to use where none is named, as the command line does.
    time_limit
        Seconds that one draw may take. The simulator, which must be per draw (``vectorised=False``), then runs in a
        process of its own, which is killed where it takes longer; the draw is kept as timed out, is never accepted, and
        is counted. That costs half a second for each process started and 0.2 ms a draw, and whether a draw near the
        limit makes it depends on the machine: choose a limit that only what hangs exceeds.
    support
        Where the prior allows the parameters: ``"simplex"``, or a pair (low, high) for each, None where it has no end;
        ``("simplex", k)`` among the pairs is for k parameters in a row that sum to 1. Continuous scipy distributions
        and Dirichlet laws say it themselves. It lets a regression adjustment keep to it.
    missing
        What single NaN cells of a simulated dataset stand for: ``"none"``, so that they fail the draw; a number that
        takes their place; ``"case"``, which a ``Histogram(..., missing=True)`` counts, or a :class:`abcdp.Table` with
        that column among `missing`; or one of these for each column by its number, or its name among `columns`, as in
        ``{0: "case", "*": "none"}``. Private records must have been registered with the same.
    columns
        The names of the columns of a record, in their order. Where private records were registered with `columns` too,
        a release whose columns stand in another order is refused, which nobody would notice otherwise.
    iid
        Whether the records of a dataset are independent and alike given the parameters, so that they tell the
        covariance of their mean. Records that share a path, as those of an epidemic, are not: False. Said or not
        (None), it is checked against repeated simulations.
    backend
        ``"jax"``: the simulator is a function ``simulator(key, theta, records)`` of *one* draw, written with
        :mod:`jax.numpy`, that returns (records,) or (records, columns) numbers. It is compiled for many draws at a time
        and runs on the devices that JAX sees, with 64-bit numbers switched on while it runs. The key of a draw is
        folded from the seed and the place of the draw. A function as prior may then be ``prior(key)``, one draw in JAX
        as well. ``"dlpack"``: the simulator is ``simulator(theta, records, seed)``, of many draws, and returns a tensor
        of PyTorch, CuPy or whatever speaks DLPack, on any device (:mod:`abcdp.simulation.tensors`).

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
        simulator: Callable[..., Any] | Simulator,
        *,
        parameters: Sequence[str] | None = None,
        name: str | None = None,
        vectorised: bool = True,
        log_prior: LogDensity | None = None,
        latent: Latent | None = None,
        distance: Distance | None = None,
        time_limit: float | None = None,
        support: Any = None,
        missing: Any = NONE,
        columns: Sequence[str] | None = None,
        iid: bool | None = None,
        backend: Backend = "numpy",
    ) -> None:
        if iid not in (None, True, False):
            raise ModelError(f"iid={iid!r}: True, False, or None where nothing is said.")
        self.iid = iid
        names = parameter_names(prior, parameters)
        self.prior = prior
        self.simulator = simulator
        self.parameters = names
        self.name = name or str(getattr(simulator, "__name__", type(simulator).__name__))
        self.distance = distance
        self.columns = _column_names(columns)
        self.missing = _by_number(missing, self.columns)
        self.engine = simulator_for(simulator, self.name, vectorised, time_limit, backend)
        self._law = (keyed_kind_of if backend == "jax" else kind_of)(prior)(
            prior, names, self.name, log_prior, latent, support
        )

    @classmethod
    def command(
        cls,
        command: Sequence[str],
        prior: Any,
        *,
        parameters: Sequence[str] | None = None,
        stdin: Literal["none", "json"] = "none",
        stdout: Literal["csv", "json", "npy"] = "csv",
        columns: int | Sequence[str] = 1,
        time_limit: float | None = None,
        **options: Any,
    ) -> Model:
        """Return the model whose simulator is a program, run once per draw (:class:`abcdp.simulation.program.Program`).

        `columns` are the names of what it prints for each record, or how many there are.

        >>> from scipy import stats
        >>> prior = {"rate": stats.gamma(2)}
        >>> Model.command(["./simulate", "{theta}", "{records}", "--seed={seed}"], prior, time_limit=60)
        Model('simulate', parameters=('rate',))
        """
        names = parameter_names(prior, parameters)
        words = command if isinstance(command, str) else tuple(map(str, command))
        named, width = ((), columns) if isinstance(columns, int) else (_column_names(columns), len(columns))
        program = Program(words, names, stdin, stdout, width, seconds(time_limit))
        options = {"name": program.name, "columns": named} | options
        return cls(prior, program, parameters=parameters, vectorised=False, **options)

    @property
    def vectorised(self) -> bool:
        """Whether one call simulates many draws."""
        return not self.engine.per_draw

    @property
    def time_limit(self) -> float | None:
        """Seconds that a draw may take, None where there is no limit."""
        return self.engine.time_limit

    def missing_rules(self, columns: int) -> Rules:
        """Return what a missing cell stands for in each of so many columns."""
        return missing_rules(self.missing, columns, self.name)

    def check_bank(self, bank: Bank) -> None:
        """Raise where draws of this model could not stand beside those of a bank."""
        if self.parameters != bank.parameters:
            raise ModelError(f"the model has the parameters {self.parameters}, the bank {bank.parameters}.")
        if self.missing_rules(bank.columns) != bank.missing:
            raise ModelError(
                f"the model says missing={self.missing!r}, the bank was simulated with {list(bank.missing)}: a missing "
                "cell has to mean the same in both."
            )

    def close(self) -> None:
        """End the processes that wait for further draws, where a time limit made any."""
        self.engine.close()

    def __repr__(self) -> str:
        return f"Model({self.name!r}, parameters={self.parameters})"

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` draws from the prior, a row each."""
        return self._law.draw(count, rng)

    def log_prior(self, theta: FloatArray) -> FloatArray:
        """Return the log density of the prior at each row of theta."""
        return self._law.log_density(theta)

    @property
    def independent_laws(self) -> tuple[Any, ...] | None:
        """The laws of the independent numbers that a draw is made of, None where nothing is known of them.

        For the weights of a Dirichlet law these are the shares that each but the last takes of what those before left.
        """
        return self._law.independent

    @property
    def latent_dimension(self) -> int:
        """The number of standard normal numbers behind a draw of the prior."""
        return self._law.latent[0]

    def from_latent(self, z: FloatArray) -> FloatArray:
        """Return parameters from rows of standard normal numbers: those of the prior, if these are independent."""
        return np.asarray(self._law.latent[1](z), dtype=np.float64)

    def to_latent(self, theta: FloatArray) -> FloatArray:
        """Return rows of normal numbers that :meth:`from_latent` makes these parameters of, within eight deviations."""
        return self._law.to_latent(theta)

    @property
    def support(self) -> Support | None:
        """Where the prior allows the parameters, None where that is not known or they are whole numbers."""
        return self._law.support

    def describe_prior(self) -> str:
        """Return the prior as text, for the manifest of a bank."""
        return self._law.describe()

    def run(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        """Simulate a batch.

        Returns the data as (draws, records, columns), a status per draw, and the last exception. Where no draw gave
        data the first part is None; the data of a failed draw are zeros. Cells that are missing have their number, or
        are NaN where they are a case of their own.
        """
        outcome = outcome_of(self.engine, self.name, theta, records, rng, self.missing)
        if self.columns and outcome[0] is not None and outcome[0].shape[2] != len(self.columns):
            raise ModelError(
                f"simulator {self.name!r} returned {outcome[0].shape[2]} columns; the model names {len(self.columns)}: "
                f"{', '.join(self.columns)}."
            )
        return outcome


def _column_names(columns: Any) -> tuple[str, ...]:
    """Return the names of columns as they were given, none where they were not."""
    names = tuple(columns or ()) if isinstance(columns, list | tuple) or columns is None else ("",)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise ModelError(f"columns={columns!r}: give a list of names, each once, as columns=['onset', 'ward'].")
    return names


def _by_number(missing: Any, columns: tuple[str, ...]) -> Any:
    """Return what missing cells stand for with the numbers of columns in the place of their names."""
    if not isinstance(missing, Mapping):
        return missing
    return {columns.index(key) if key in columns else key: rule for key, rule in missing.items()}


def load(reference: str) -> Any:
    """Return the object named by ``package.module:object``."""
    module, sign, name = reference.partition(":")
    if not sign or not module or not name:
        raise ModelError(f"{reference!r}: write package.module:object.")
    if module.endswith(".py") or "/" in module:
        raise ModelError(
            f"{reference!r} names a file: go to its folder and write {PurePath(module).stem}:{name}, without .py."
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{reference!r} cannot be loaded: {error}.") from error
    return found
