"""The built-in models: those of the paper's experiments, and three more.

``mixture``
    Figures 2 and 3: five uniform distributions with unknown weights. A record is a number.
``covid``, ``covid_pairs``
    Figure 4: a cubic polynomial through 18 cumulative counts. A record is the count of a day, or a day and its count;
    the records of a draw are the days 0, 1, 2, ...
``tuberculosis``
    Figure 5: outbreaks of a birth-death process. A record is one outbreak, as eight summaries, and records are compared
    in pairs: the data need as many outbreaks as each simulation.
``outbreak``
    One outbreak of the same process. A record is a patient, as the number of a cluster, and `records` is the room for
    them: rows that no patient fills hold -1.
``epidemic``
    An epidemic curve. A record is a person, as the day on which he or she fell ill.
``regression``
    Linear regression with two covariates of known law. A record is (y, x1, x2), clamped and divided by 10; the summary
    is nine sums over 100 records, as papers published them with noise.
``patients``
    Two latent groups of patients. A record is a patient, as four lab values, a dose and a response; what tells the five
    parameters is how the columns go together.
``mixture_jax``, ``covid_jax``, ``epidemic_jax``, ``regression_jax``
    The same laws in JAX, for its devices.
"""

from __future__ import annotations

from typing import Any

from abcdp.errors import ModelError
from abcdp.models._covid import covid, covid_pairs
from abcdp.models._epidemic import epidemic
from abcdp.models._jax import covid_jax, epidemic_jax, mixture_jax, regression_jax
from abcdp.models._mixture import mixture
from abcdp.models._patients import patients
from abcdp.models._regression import regression
from abcdp.models._tuberculosis import outbreak, tuberculosis
from abcdp.simulation.model import Model, load

__all__ = [
    "BUILT_IN",
    "covid",
    "covid_jax",
    "covid_pairs",
    "epidemic",
    "epidemic_jax",
    "find",
    "mixture",
    "mixture_jax",
    "outbreak",
    "patients",
    "regression",
    "regression_jax",
    "tuberculosis",
]

BUILT_IN: dict[str, Model] = {
    model.name: model
    for model in (
        *(mixture, covid, covid_pairs, tuberculosis, outbreak, epidemic, regression, patients),
        *(mixture_jax, covid_jax, epidemic_jax, regression_jax),
    )
}


def find(name: str) -> Model:
    """Return a built-in model by its name, or any model as ``package.module:object``."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        raise ModelError(f"no model {name!r}; built in: {', '.join(BUILT_IN)}. Or write package.module:object.")
    found: Any = load(name)
    if not isinstance(found, Model):
        raise ModelError(f"{name!r} is a {type(found).__name__}, not an abcdp.Model.")
    return found
