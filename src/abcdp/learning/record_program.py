"""Train a network of each record, in JAX: a program of its own, ``python -m abcdp.learning.record_program FOLDER``.

A record goes through a few layers and is clipped to a ball; the mean over a dataset's records, with the noise that a
release would carry, goes to a posterior head, and both are trained to make the parameters likely. Several balls and
numbers of outputs are tried for a while, and the one that does best on held-out datasets is trained on.

It reads ``records.npy`` (datasets x records x inputs), ``data.npz`` and ``settings.json`` of the folder, writes
``network.npz`` there, and says how far it is, a line of JSON each. A GPU is used where JAX sees one.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from abcdp.inference.flow import Shape
from abcdp.learning.flow_program import DRAWN, Arrays, first_arrays, log_density

_RATE, _DECAY, _LARGEST = 3e-3, 1e-4, 5.0  # of Adam's steps: the first, the weights' decay, the longest gradient
_FOLLOWS = 0.02  # of what a step sees of means goes into their running mean and variance, less as steps shrink
_POWERS = {"box": 0.0, "l2": 0.5, "l1": 1.0}  # of their number, by which outputs of equal size in a ball are smaller
_REPEATS = 4  # of each held-out dataset, each with noise of its own
_TOGETHER = 1 << 17  # records of held-out datasets that are looked at at once


def main(folder: Path) -> None:
    """Train as the folder says, and leave the numbers there."""
    # the owner computes with all digits: what a GPU rounds away here would be learned
    jax.config.update("jax_default_matmul_precision", "float32")
    settings = json.loads((folder / "settings.json").read_text())
    with np.load(folder / "data.npz", allow_pickle=False) as file:
        data = {name: jnp.asarray(file[name]) for name in file.files}
    records = jnp.asarray(np.load(folder / "records.npy", mmap_mode="r", allow_pickle=False))
    key = jax.random.key(settings["seed"])
    trainers = [_Trainer(records, data, candidate, settings) for candidate in settings["candidates"]]
    trials = trainers if len(trainers) > 1 else []
    tried = [
        trainer.train(jax.random.fold_in(key, number), settings["trial_steps"], settings["trial_looks"])[1]
        for number, trainer in enumerate(trials)
    ]
    best = int(np.argmin(tried)) if tried else 0
    found, loss = trainers[best].train(jax.random.fold_in(key, len(tried)), settings["steps"], settings["looks"])
    out: Arrays = {"chosen": best, "loss": loss, "means": trainers[best].means(found["layers"])}
    out |= {"middle": found["seen"][0], "variances": found["seen"][1]} | found["head"]
    for number, (weights, bias) in enumerate(found["layers"]):
        out |= {f"weights_{number}": weights, f"bias_{number}": bias}
    np.savez(folder / "network.npz", allow_pickle=False, **{name: np.asarray(one) for name, one in out.items()})


class _Trainer:
    """Trains one kind of network: so many outputs, a ball, and the noise that goes with them."""

    def __init__(self, records: jax.Array, data: Arrays, candidate: Arrays, settings: Arrays) -> None:
        self._records, self._z = records, data["z"]
        self._ball, self._draw = candidate["ball"], DRAWN[candidate["shape"]]
        self._spreads = jnp.asarray(candidate["spreads"], dtype=jnp.float32)
        self._sizes = [records.shape[2], *settings["hidden"], len(candidate["spreads"])]
        self._head = Shape(context=len(candidate["spreads"]), coordinates=data["z"].shape[1], **settings["head"])
        self._train, self._held = jnp.flatnonzero(~data["held"]), np.flatnonzero(data["held"])
        self._batch = settings["batch"]
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(_LARGEST), optax.scale_by_adam(), optax.add_decayed_weights(_DECAY)
        )
        # records are handed in: a compiler would take its time over a constant of that size
        self._begin = jax.jit(self._first_weights)
        self._steps = jax.jit(self._some_steps)
        self._means = jax.jit(self._means_of)
        self._judge = jax.jit(self._loss_of_held)

    def train(self, key: jax.Array, steps: int, looks: int) -> tuple[Arrays, float]:
        """Return the network and head that did best on the held-out datasets, and their loss there."""
        weights = self._begin(jax.random.fold_in(key, looks))
        means = self.means(weights["layers"])
        seen, state = (means.mean(axis=0), means.var(axis=0)), self._optimiser.init(weights)
        best, least, waited = {**weights, "seen": seen}, np.inf, 0
        for look in range(looks):
            span = jnp.array([look * steps // looks, (look + 1) * steps // looks, steps])
            weights, seen, state = self._steps(self._records, weights, seen, state, span, jax.random.fold_in(key, look))
            loss = float(self._judge(weights, seen, self.means(weights["layers"])))
            waited += 1
            if loss < least:
                best, least, waited = {**weights, "seen": seen}, loss, 0
            stop = 2 * waited >= looks  # it learns its datasets by heart
            print(json.dumps({"done": looks - look if stop else 1, "loss": least}), flush=True)
            if stop:
                break
        return best, least

    def means(self, layers: Any) -> jax.Array:
        """Return the means over the records of the held-out datasets, without noise."""
        together = max(1, _TOGETHER // self._records.shape[1])
        parts = [self._held[start : start + together] for start in range(0, len(self._held), together)]
        return jnp.concatenate([self._means(self._records[part], layers) for part in parts])

    def _first_weights(self, key: jax.Array) -> Arrays:
        layers, last = [], len(self._sizes) - 2
        for number, (inputs, outputs) in enumerate(itertools.pairwise(self._sizes)):
            own, bias = jax.random.split(jax.random.fold_in(key, number))
            # hidden units bend here and there over the range of standardised inputs; outputs begin inside of the ball
            scale = 1.5 if number < last else 0.5 * outputs ** -_POWERS[self._ball]
            weights = scale * jax.random.normal(own, (inputs, outputs)) / np.sqrt(inputs)
            layers.append((weights, 0.5 * scale * jax.random.normal(bias, (outputs,))))
        return {"layers": layers, "head": first_arrays(self._head, key)}

    def _some_steps(
        self, records: jax.Array, weights: Arrays, seen: Any, state: Any, span: jax.Array, key: jax.Array
    ) -> tuple[Arrays, Any, Any]:
        """Take the steps from one to another of so many, ever shorter ones: along a cosine."""

        def step(number: Any, carry: Any) -> Any:
            weights, seen, state = carry
            chosen, noise = jax.random.split(jax.random.fold_in(key, number))
            rows = self._train[jax.random.randint(chosen, (self._batch,), 0, len(self._train))]
            share = 0.5 * (1.0 + jnp.cos(jnp.pi * number / span[2]))
            loss = jax.grad(self._loss, has_aux=True)
            gradient, now = loss(weights, seen, noise, records[rows], self._z[rows])
            change, state = self._optimiser.update(gradient, state, weights)
            weights = jax.tree.map(lambda one, by: one - share * _RATE * by, weights, change)
            return weights, jax.tree.map(lambda a, b: a + share * _FOLLOWS * (b - a), seen, now), state

        found: tuple[Arrays, Any, Any] = jax.lax.fori_loop(span[0], span[1], step, (weights, seen, state))
        return found

    def _loss(
        self, weights: Arrays, seen: Any, key: jax.Array, records: jax.Array, z: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Return how unlikely parameters are given means with fresh noise, on average, and how these means lie."""
        means = self._means_of(records, weights["layers"])
        now = means.mean(axis=0), means.var(axis=0)
        return -self._log_density(weights["head"], seen, means, key, z).mean(), now

    def _loss_of_held(self, weights: Arrays, seen: Any, means: jax.Array) -> jax.Array:
        means, z = (jnp.tile(one, (_REPEATS, 1)) for one in (means, self._z[self._held]))
        return -self._log_density(weights["head"], seen, means, jax.random.key(0), z).mean()

    def _log_density(self, head: Arrays, seen: Any, means: jax.Array, key: jax.Array, z: jax.Array) -> jax.Array:
        noisy = means + self._spreads * self._draw(key, means.shape)
        contexts = (noisy - seen[0]) / jnp.sqrt(seen[1] + self._spreads**2)
        return log_density(self._head, head, contexts, z)

    def _means_of(self, records: jax.Array, layers: Any) -> jax.Array:
        """Return the means of clipped outputs, as :class:`abcdp.NetworkSummary` has them but for rounding."""
        values = records.reshape(-1, records.shape[2])
        for number, (weights, bias) in enumerate(layers, start=1):
            values = values @ weights + bias
            if number < len(layers):
                values = values * jax.lax.rsqrt(1.0 + values**2)
        values = jnp.clip(values, -1.0, 1.0)
        if self._ball == "l1":
            values = values / jnp.maximum(1.0, jnp.abs(values).sum(axis=1, keepdims=True))
        elif self._ball == "l2":
            values = values * jax.lax.rsqrt(jnp.maximum(1.0, (values**2).sum(axis=1, keepdims=True)))
        return values.reshape(len(records), -1, values.shape[1]).mean(axis=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
