from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.bank.status import NOT_FINITE, OK, RAISED
from abcdp.errors import ModelError
from sample_models import PRIOR, failing, normal


def test_names_keep_their_order_whatever_the_kind_of_prior():
    rng = np.random.default_rng(0)
    joint = stats.multivariate_normal([0, 100], np.eye(2))
    for prior in ({"b": stats.norm(0, 1), "a": stats.norm(100, 1)}, joint, lambda size, rng: joint.rvs(size, rng)):
        names = None if isinstance(prior, dict) else ["b", "a"]
        model = abcdp.Model(prior=prior, simulator=normal, parameters=names)
        assert model.parameters == ("b", "a")
        theta = model.draw(50, rng)
        assert theta.shape == (50, 2)
        assert abs(theta[:, 1].mean() - 100) < 2 > abs(theta[:, 0].mean())


def test_log_prior_of_each_kind_of_prior():
    theta = np.array([[0.1, 0.7], [-0.3, 2.0]])
    expected = stats.norm(0, 1).logpdf(theta[:, 0]) + stats.uniform(0.5, 1.0).logpdf(theta[:, 1])
    assert np.array_equal(abcdp.Model(prior=PRIOR, simulator=normal).log_prior(theta), expected)
    joint = stats.multivariate_normal([0, 0], np.eye(2))
    model = abcdp.Model(prior=joint, simulator=normal, parameters=["a", "b"])
    assert np.allclose(model.log_prior(theta), joint.logpdf(theta))
    with pytest.raises(ModelError, match="log_prior"):
        abcdp.Model(prior=lambda size, rng: None, simulator=normal, parameters=["a"]).log_prior(theta)
    inside = abcdp.models.mixture.log_prior(np.array([[0.2] * 5, [0.3] * 5]))
    assert np.isclose(inside[0], np.log(24.0))
    assert inside[1] == -np.inf


def test_failures_are_told_apart_and_spare_the_other_draws():
    theta = np.array([[0.0, 1.0], [2.0, 1.0], [-2.0, 1.0], [0.5, 1.0]])
    data, status, trouble = failing.run(theta, 7, np.random.default_rng(0))
    assert status.tolist() == [OK, RAISED, NOT_FINITE, OK]
    assert isinstance(trouble, ArithmeticError)
    assert data is not None
    assert np.isfinite(data).all()
    assert data.shape == (4, 7, 1)


def test_a_batch_that_raises_fails_as_a_whole():
    def breaks(theta, records, rng):
        raise RuntimeError("no")

    data, status, _ = abcdp.Model(prior=PRIOR, simulator=breaks).run(np.zeros((3, 2)), 4, np.random.default_rng(0))
    assert data is None
    assert (status == RAISED).all()


def test_huge_finite_values_are_not_mistaken_for_infinities():
    model = abcdp.Model(prior=PRIOR, simulator=lambda theta, n, rng: np.full((len(theta), n), 1e308))
    _, status, _ = model.run(np.zeros((2, 2)), 10, np.random.default_rng(0))
    assert (status == OK).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": stats.norm(0, 1)}, "prior without a name"),
        ({"prior": {"a": 3}}, "prior of 'a' has no rvs"),
        ({"prior": 3, "parameters": ["a"]}, "give a dictionary"),
        ({"prior": {}}, "every parameter needs a name"),
        ({"prior": {"": stats.norm()}}, "every parameter needs a name"),
        ({"prior": stats.norm(), "parameters": ["a", "a"]}, "name of its own"),
        ({"prior": {"a": stats.norm()}, "parameters": ["b"]}, "parameters differ"),
        ({"prior": {"a": stats.norm()}, "simulator": 3}, "not callable"),
    ],
)
def test_bad_models_are_named(arguments, message):
    with pytest.raises(ModelError, match=message):
        abcdp.Model(**({"simulator": normal} | arguments))


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda size, rng: np.zeros((size, 3)), r"shape \(5, 3\) for 5 draws of 2"),
        (lambda size, rng: np.full((size, 2), np.nan), "NaN or infinity"),
    ],
)
def test_a_prior_of_the_wrong_shape_is_named(prior, message):
    model = abcdp.Model(prior=prior, simulator=normal, parameters=["a", "b"])
    with pytest.raises(ModelError, match=message):
        model.draw(5, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros((2, 9)), r"shape \(2, 9\); it must be \(2, 10\)"),
        (np.zeros(10), "vectorised=False"),
        (np.zeros((2, 10, 0)), "plus one axis"),
        (np.array([["a"] * 10] * 2), "must return numbers"),
        (np.zeros((2, 10), dtype=complex), "must return numbers"),
    ],
)
def test_a_simulator_of_the_wrong_shape_is_named(result, message):
    model = abcdp.Model(prior=PRIOR, simulator=lambda theta, n, rng: result)
    with pytest.raises(ModelError, match=message):
        model.run(np.zeros((2, 2)), 10, np.random.default_rng(0))


def test_models_load_by_name():
    assert abcdp.models.find("mixture") is abcdp.models.mixture
    assert abcdp.models.find("sample_models:per_draw").parameters == ("mu", "sigma")
    for name, message in [
        ("nothing", "no model 'nothing'"),
        ("no_such_module:x", "cannot be loaded"),
        ("sample_models:nothing", "cannot be loaded"),
        ("sample_models:not_a_model", "not an abcdp.Model"),
    ]:
        with pytest.raises(ModelError, match=message):
            abcdp.models.find(name)


def test_priors_are_written_as_text():
    assert abcdp.Model(prior=PRIOR, simulator=normal).describe_prior() == "mu ~ norm(0, 1); sigma ~ uniform(0.5, 1)"
    assert abcdp.models.mixture.describe_prior().endswith("~ dirichlet(1, 1, 1, 1, 1)")


@pytest.mark.statistical(alpha=1e-6)
def test_the_mixture_simulates_its_law(alpha):
    """False failures: alpha (chi-square over 50 cells). Power: a component off by 2% of the records fails."""
    theta = np.array([[0.25, 0.04, 0.33, 0.04, 0.34], [0.0, 1.0, 0.0, 0.0, 0.0]])
    data, _, _ = abcdp.models.mixture.run(theta, 100_000, np.random.default_rng(5))
    assert data is not None
    counts = np.histogram(data[0, :, 0], bins=50, range=(0, 5))[0]
    expected = np.repeat(theta[0], 10) * 10_000
    assert stats.chisquare(counts, expected).pvalue > alpha
    assert ((data[1] >= 1.0) & (data[1] <= 2.0)).all()


class Doubles:
    """A simulator of the user's own: each record is twice the first parameter, plus noise of its stream."""

    per_draw = False
    threads = True
    time_limit = None

    def __init__(self, change=lambda data, status: (data, status, None)):
        self.change = change
        self.closed = False

    def simulate(self, theta, records, rng):
        data = 2 * theta[:, :1] + rng.normal(size=(len(theta), records))
        return self.change(data.astype(np.float32), np.zeros(len(theta), dtype=int))

    def close(self):
        self.closed = True


def raises(data, status):
    raise OSError("no")


def test_an_object_that_is_a_simulator_is_taken_as_it_is():
    simulator = Doubles()
    model = abcdp.Model(PRIOR, simulator)
    assert model.simulator is model.engine is simulator
    assert model.vectorised
    assert model.time_limit is None
    data, status, error = model.run(np.array([[1.0, 1.0], [3.0, 1.0]]), 4, np.random.default_rng(0))
    expected = (np.array([[2.0], [6.0]]) + np.random.default_rng(0).normal(size=(2, 4))).astype(np.float32)
    assert data.dtype == np.float64
    assert np.array_equal(data[:, :, 0], expected)
    assert status.dtype == np.int8
    assert error is None
    model.close()
    assert simulator.closed
    simulator.per_draw = True
    simulator.time_limit = 3.0
    assert not model.vectorised
    assert model.time_limit == 3.0
    with pytest.raises(ModelError, match="keeps its own time"):
        abcdp.Model(PRIOR, simulator, time_limit=2.0)


def test_what_a_simulator_of_the_user_returns_is_checked():
    theta, rng = np.zeros((3, 2)), np.random.default_rng(0)

    def outcome(change):
        return abcdp.Model(PRIOR, Doubles(change)).run(theta, 4, rng)

    for change in (
        lambda data, status: (data, status[:2], None),
        lambda data, status: (data, status + 99, None),
        lambda data, status: (None, status, None),
        lambda data, status: (data[:2], status, None),
        lambda data, status: (data[:, :3], status, None),
        lambda data, status: (data.astype(str), status, None),
    ):
        with pytest.raises(ModelError, match="simulator 'Doubles' returned"):
            outcome(change)
    data, status, _ = outcome(lambda data, status: (data * [[np.nan], [1], [1]], np.array([0, 0, RAISED]), None))
    assert status.tolist() == [NOT_FINITE, OK, RAISED]
    assert (data[[0, 2]] == 0.0).all()
    assert (data[1] != 0.0).all()
    data, status, error = outcome(raises)
    assert data is None
    assert status.tolist() == [RAISED] * 3
    assert isinstance(error, OSError)
