"""Simulators whose arrays are those of another library: PyTorch, CuPy, or whatever speaks DLPack, on any device.

The library is the caller's own. A function gets the parameters of many draws as a numpy array, and a seed for its own
generator; what it returns is taken back from its device. With PyTorch::

    def simulate(theta, records, seed):
        source = torch.Generator("cuda").manual_seed(seed)
        mu = torch.as_tensor(theta, device="cuda")
        return mu + torch.randn(len(theta), records, generator=source, device="cuda", dtype=torch.float64)

    model = abcdp.Model(prior, simulate, backend="dlpack")

and with CuPy a generator is made of the seed likewise. The draws of a call share a seed,
so that a bank depends on how many these are, which its recipe says (``simulate(..., batch=4096)`` suits a device).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray, as_array
from abcdp.errors import ModelError
from abcdp.simulation.simulators import BatchSimulator, Outcome, as_datasets

_CPU = 1  # DLPack's number of the kind of device
_SEED_BITS = 63  # what every library takes as a seed


class TensorSimulator(BatchSimulator):
    """A function of many draws: ``f(theta, records, seed)`` with a row of theta per draw, which returns a tensor."""

    threads: ClassVar[bool] = True

    def simulate(self, theta: FloatArray, records: int, rng: np.random.Generator) -> Outcome:
        seed = int(rng.integers(1 << _SEED_BITS))
        data = on_host(self._function(theta, records, seed), self._name)
        data = as_datasets(data, (len(theta), records), self._name, "one draw, let it simulate all rows of theta")
        return data, np.zeros(len(theta), dtype=np.int8), None


def on_host(tensor: Any, name: str) -> npt.NDArray[Any]:
    """Return a tensor as an array of this process's memory, without a copy where it lies there."""
    if hasattr(tensor, "detach"):  # a tensor with gradients gives nothing away
        tensor = tensor.detach()
    if isinstance(tensor, np.ndarray) or not hasattr(tensor, "__dlpack__"):
        return as_array(tensor)
    if int(tensor.__dlpack_device__()[0]) == _CPU:
        return np.from_dlpack(tensor)
    for back in ("cpu", "get"):  # how PyTorch and CuPy call it
        if hasattr(tensor, back):
            return as_array(getattr(tensor, back)())
    try:
        return np.from_dlpack(tensor, device="cpu", copy=True)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"simulator {name!r} returned a {type(tensor).__name__} on a device, which cannot be taken back ({error}); "
            "copy it to the host's memory before it is returned."
        ) from error
