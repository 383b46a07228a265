"""Programs as simulators: parameters by arguments or JSON, records as CSV, JSON or .npy on standard output."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_whole
from abcdp.bank.status import CRASHED, TIMED_OUT, UNREADABLE, DrawFailed
from abcdp.errors import ModelError, WorkerError
from abcdp.simulation.isolated import kill_group
from abcdp.simulation.simulators import PerDrawSimulator

_SEED_BITS = 31  # what programs in C, Fortran and R take as a seed
_TAIL = 300  # characters of standard error that a message repeats


@dataclass(frozen=True)
class Program(PerDrawSimulator):
    """A simulator that runs a program once per draw.

    Parameters
    ----------
    command
        The program and its arguments. In them ``{name}`` stands for the parameter of that name, ``{records}`` for the
        number of records and ``{seed}`` for a number from 0 to 2^31 - 1 that the draw's own random stream gives; an
        argument ``{theta}`` of its own becomes one argument per parameter. Numbers are written so that they read back
        exactly.
    parameters
        The names of the parameters.
    stdin
        ``"json"`` also writes ``{"theta": {name: value}, "records": n, "seed": s}`` to standard input.
    stdout
        How records are printed: ``"csv"``, a line each, separated by commas or blanks, with or without a line of names;
        ``"json"``, a list of numbers or of lists; or ``"npy"``, the bytes of a numpy array.
    columns
        The number of columns of a record.
    time_limit
        Seconds after which the program and all that it started are killed and the draw counts as timed out.

    An error code, a death and output of another form each fail the draw, with a status of their own, and spare the
    others. A program that cannot be started at all is an error.
    """

    command: Sequence[str]
    parameters: tuple[str, ...]
    stdin: Literal["none", "json"] = "none"
    stdout: Literal["csv", "json", "npy"] = "csv"
    columns: int = 1
    time_limit: float | None = None

    threads: ClassVar[bool] = True
    own_streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise ModelError(
                f"command={self.command!r}: give a list, the program first, such as ['./simulate', '--mu', '{{mu}}']; "
                "no shell is involved."
            )
        if self.stdin not in ("none", "json") or self.stdout not in _READERS:
            raise ModelError(
                f"stdin={self.stdin!r}, stdout={self.stdout!r}: choose none or json, and csv, json or npy."
            )
        if not is_whole(self.columns, 1):
            raise ModelError(f"columns={self.columns!r}: a whole number of at least 1.")
        told = self.stdin == "json"
        if not told and "{theta}" not in self.command:
            absent = [name for name in self.parameters if not self._mentions(name)]
            if absent:
                raise ModelError(
                    f"the command never gets {', '.join(absent)}; write {{{absent[0]}}} in an argument, or "
                    "stdin='json'."
                )
        if not told and not self._mentions("seed"):
            raise ModelError(
                "the command never gets a seed, so no bank could be made again; write {seed} in an argument, or "
                "stdin='json'."
            )

    @property
    def name(self) -> str:
        """The name of the program."""
        return os.path.basename(self.command[0])

    def _mentions(self, word: str) -> bool:
        return any(f"{{{word}}}" in argument for argument in self.command)

    def simulate_draw(self, theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
        """Run the program for one draw."""
        values = dict(zip(self.parameters, theta.tolist(), strict=True))
        seed = int(rng.integers(1 << _SEED_BITS))
        sent = json.dumps({"theta": values, "records": records, "seed": seed}) if self.stdin == "json" else ""
        output = self._run(self._arguments(values, records, seed), sent.encode())
        try:
            data = _READERS[self.stdout](output)
        except Exception as error:
            raise DrawFailed(UNREADABLE, f"{self.name}: its output is not {self.stdout}: {error}") from None
        data = data[:, None] if data.ndim == 1 else data
        if data.shape != (records, self.columns) or data.dtype.kind not in "fiub":
            raise DrawFailed(
                UNREADABLE,
                f"{self.name} printed a table of {data.shape}, not {records} records of {self.columns} columns",
            )
        return np.asarray(data, dtype=np.float64)

    def _arguments(self, values: dict[str, float], records: int, seed: int) -> list[str]:
        words = {name: repr(value) for name, value in values.items()}
        words |= {"records": str(records), "seed": str(seed)}
        arguments: list[str] = []
        for argument in self.command:
            if argument == "{theta}":
                arguments += [words[name] for name in self.parameters]
                continue
            for name, word in words.items():
                argument = argument.replace(f"{{{name}}}", word)
            arguments.append(argument)
        return arguments

    def _run(self, arguments: Sequence[str], sent: bytes) -> bytes:
        try:
            process = subprocess.Popen(  # noqa: S603 - the modeler's own program
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that all it starts can be killed with it
            )
        except (FileNotFoundError, PermissionError) as error:
            raise ModelError(f"the program {arguments[0]!r} cannot be run: {error.strerror}.") from error
        except OSError as error:  # no memory, no free process: of this machine, not of the draw
            raise WorkerError(f"the program {arguments[0]!r} could not be started: {error}") from error
        try:
            output, errors = process.communicate(sent, self.time_limit)
        except subprocess.TimeoutExpired:
            raise DrawFailed(TIMED_OUT, f"{self.name} took longer than {self.time_limit:g} s") from None
        finally:
            if process.poll() is None:
                kill_group(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if process.returncode != 0:
            said = errors.decode(errors="replace").strip()[-_TAIL:]
            raise DrawFailed(CRASHED, f"{self.name} ended with code {process.returncode}: {said}")
        return output


def _read_csv(output: bytes) -> npt.NDArray[Any]:
    lines = output.decode().replace(",", " ").splitlines()
    if lines and not _numeric(lines[0]):
        lines = lines[1:]
    if not any(line.strip() for line in lines):
        raise ValueError("no records")
    return np.loadtxt(lines, ndmin=2, comments=None)


def _numeric(line: str) -> bool:
    try:
        [float(cell) for cell in line.split()]
    except ValueError:
        return False
    return True


def _read_json(output: bytes) -> npt.NDArray[Any]:
    found = np.asarray(json.loads(output))
    return np.asarray(found, dtype=np.float64) if found.dtype.kind == "O" else found  # null is a missing cell


def _read_npy(output: bytes) -> npt.NDArray[Any]:
    return np.asarray(np.load(io.BytesIO(output), allow_pickle=False))


_READERS = {"csv": _read_csv, "json": _read_json, "npy": _read_npy}
