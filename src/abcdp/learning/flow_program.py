"""Train an ensemble of flows, in JAX: a program of its own, ``python -m abcdp.learning.flow_program FOLDER``.

A process that has loaded JAX runs threads and must not be forked, as those that simulate are; so it is another process
than the one that asks. It reads ``data.npz`` and ``settings.json`` of the folder, writes ``network.npz`` there, and
says how far it is, a line of JSON each. A GPU is used where JAX sees one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import logsumexp

from abcdp.inference.flow import NARROWEST, WIDEST, Shape

_BATCH = 256
_RATE, _DECAY, _LARGEST = 2e-3, 1e-2, 5.0  # of Adam's steps: the first, the weights' decay, the longest gradient
_AVERAGED = 0.998  # of the weights: those that are kept are averages over some hundred steps
_LOOKS = 60  # at the held-out draws in the course of training
_PATIENCE = 20  # looks without a better one, after which it ends
_REPEATS = 4  # of each held-out draw, each with noise of its own

Arrays = dict[str, Any]


def main(folder: Path) -> None:
    """Train as the folder says, and leave the numbers there."""
    settings = json.loads((folder / "settings.json").read_text())
    with np.load(folder / "data.npz", allow_pickle=False) as file:
        data = {name: jnp.asarray(file[name]) for name in file.files}
    shape = Shape(**settings["shape"])
    trainer = _Trainer(shape, data, settings)
    found, losses = [], []
    for member in range(settings["members"]):
        arrays, loss = trainer.train(jax.random.fold_in(jax.random.key(settings["seed"]), member))
        found.append(arrays)
        losses.append(loss)
    out = {name: np.stack([np.asarray(one[name]) for one in found]) for name in shape.arrays()}
    out["losses"] = np.array(losses)
    np.savez(folder / "network.npz", allow_pickle=False, **out)


class _Trainer:
    """Trains one network at a time on the same draws."""

    def __init__(self, shape: Shape, data: Arrays, settings: dict[str, Any]) -> None:
        self._shape, self._data, self._settings = shape, data, settings
        held = data["held"]
        self._train, self._held = jnp.flatnonzero(~held), jnp.tile(jnp.flatnonzero(held), _REPEATS)
        self._looks = min(_LOOKS, settings["steps"])
        self._each = settings["steps"] // self._looks
        rate = optax.cosine_decay_schedule(_RATE, self._each * self._looks)
        self._optimiser = optax.chain(optax.clip_by_global_norm(_LARGEST), optax.adamw(rate, weight_decay=_DECAY))
        self._steps = jax.jit(self._some_steps)
        self._judge = jax.jit(lambda arrays: self._loss(arrays, jax.random.key(0), self._held))

    def train(self, key: jax.Array) -> tuple[Arrays, float]:
        """Return the network that did best on the held-out draws, and its loss there."""
        first, key = jax.random.split(key)
        arrays = averaged = first_arrays(self._shape, first)
        state = self._optimiser.init(arrays)
        best, least, waited = arrays, np.inf, 0
        for look in range(self._looks):
            key, now = jax.random.split(key)
            arrays, averaged, state = self._steps(arrays, averaged, state, now)
            loss = float(self._judge(averaged))
            waited = waited + 1
            if loss < least:
                best, least, waited = averaged, loss, 0
            stop = waited >= _PATIENCE
            print(json.dumps({"done": self._looks - look if stop else 1, "loss": least}), flush=True)
            if stop:
                break
        return best, least

    def _some_steps(self, arrays: Arrays, averaged: Arrays, state: Any, key: jax.Array) -> tuple[Arrays, Arrays, Any]:
        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            arrays, averaged, state = carry
            chosen, noise = jax.random.split(key)
            rows = self._train[jax.random.randint(chosen, (_BATCH,), 0, len(self._train))]
            gradient = jax.grad(self._loss)(arrays, noise, rows)
            change, state = self._optimiser.update(gradient, state, arrays)
            arrays = optax.apply_updates(arrays, change)
            averaged = jax.tree.map(lambda a, b: _AVERAGED * a + (1.0 - _AVERAGED) * b, averaged, arrays)
            return (arrays, averaged, state), None

        (arrays, averaged, state), _ = jax.lax.scan(step, (arrays, averaged, state), jax.random.split(key, self._each))
        return arrays, averaged, state

    def _loss(self, arrays: Arrays, key: jax.Array, rows: jax.Array) -> jax.Array:
        """Return how unlikely the parameters of draws are, on average, given their summaries with fresh noise."""
        return -log_density(self._shape, arrays, self._contexts(key, rows), self._data["z"][rows]).mean()

    def _contexts(self, key: jax.Array, rows: jax.Array) -> jax.Array:
        """Return summaries of draws with fresh noise: of any trained kind, of any size, of any number of records.

        Where a summary is that of several releases, each of its blocks has noise of its own.
        """
        data, settings = self._data, self._settings
        x = data["x"][rows]
        inputs, kinds, parts, each = [], [], [], jnp.arange(len(rows))
        if "factors" in data:
            sizes, sampling, key = jax.random.split(key, 3)
            smaller = jax.random.uniform(sizes, (len(rows), 1), minval=settings["least"], maxval=0.0)
            around = jax.random.normal(sampling, x.shape)
            around = jnp.einsum("nij,nj->ni", data["factors"][data["nearest"][rows]], around)
            x = x + jnp.sqrt(jnp.expm1(-smaller)) * around
            inputs.append(smaller)
        for number, block in enumerate(settings["blocks"]):
            chosen, scales, noise, key = jax.random.split(key, 4)
            kind = jax.random.randint(chosen, (len(rows),), 0, len(block["shapes"]))
            low, high = block["range"]
            scale = jax.random.uniform(scales, (len(rows), 1), minval=low, maxval=high)
            spread = jnp.exp(scale) * data[f"patterns_{number}"][kind]
            unit = jnp.stack([DRAWN[name](noise, spread.shape) for name in block["shapes"]])
            own = slice(*block["columns"])
            y = x[:, own] + spread * unit[kind, each]
            parts.append(y / jnp.sqrt(data["variances"][own] + spread**2))
            kinds.append(jax.nn.one_hot(kind, len(block["shapes"])))
            inputs.append(scale)
        inputs = [(one - middle) / size for one, (middle, size) in zip(inputs, settings["inputs"], strict=True)]
        return jnp.concatenate([*inputs, *kinds, *parts], axis=1)


def first_arrays(shape: Shape, key: jax.Array) -> Arrays:
    """Return arrays with which a network says the prior, whatever the context."""
    arrays = {name: jnp.zeros(size) for name, size in shape.arrays().items()}
    scales = {"enter": 1.0, "inner": 0.5, "group": 1.0, "before": 1.0}
    for number, (name, scale) in enumerate(scales.items()):
        size = shape.arrays()[name]
        drawn = jax.random.normal(jax.random.fold_in(key, number), size)
        arrays[name] = scale * drawn / np.sqrt(size[-2])
    places = np.zeros((shape.coordinates, 3, shape.components), dtype=np.float32)
    places[:, 1] = np.linspace(-1.0, 1.0, shape.components)
    arrays["skip_bias"] = jnp.asarray(places.ravel())
    return arrays


def log_density(shape: Shape, arrays: Arrays, contexts: jax.Array, z: jax.Array) -> jax.Array:
    """Return log densities as :class:`abcdp.inference.flow.Flow` does, of a context each."""
    k, outputs = shape.coordinates, 3 * shape.components
    before = np.arange(k)[:, None] < np.repeat(np.arange(k), shape.group)[None]
    hidden = jax.nn.silu(contexts @ arrays["enter"] + arrays["enter_bias"])
    for inner, bias in zip(arrays["inner"], arrays["inner_bias"], strict=True):
        hidden = hidden + jax.nn.silu(hidden @ inner + bias)
    groups = jax.nn.silu(hidden @ arrays["group"] + arrays["group_bias"] + z @ (arrays["before"] * before))
    skipped = (hidden @ arrays["skip"] + arrays["skip_bias"]).reshape(-1, k, outputs)
    parts = groups.reshape(-1, k, shape.group)
    said = jnp.stack([parts[:, i] @ arrays["out"][i] for i in range(k)], axis=1) + skipped
    logits, places, widths = jnp.split(said, 3, axis=2)
    widths = jnp.clip(widths, NARROWEST, WIDEST)
    apart = (z[:, :, None] - places) * jnp.exp(-widths)
    mixture = logsumexp(jax.nn.log_softmax(logits) - widths - 0.5 * apart**2, axis=2)
    return mixture.sum(axis=1) - 0.5 * k * np.log(2.0 * np.pi)


def _box(key: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Return noise whose density falls with its largest entry, with unit variance: a cube of a random size."""
    radius, place = jax.random.split(key)
    width = size[1]
    drawn = jax.random.gamma(radius, width + 1.0, (size[0], 1)) * jax.random.uniform(place, size, minval=-1.0)
    return drawn * np.sqrt(3.0 / ((width + 1.0) * (width + 2.0)))


DRAWN = {  # each of unit variance
    "laplace": lambda key, size: jax.random.laplace(key, size) / np.sqrt(2.0),
    "gaussian": jax.random.normal,
    "box": _box,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
