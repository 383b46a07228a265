"""The bank: simulated parameters and datasets, public, in a folder of Parquet shards with a manifest.

Reading a stranger's bank runs nothing and trusts nothing: every type, shape, size, digest and bound is checked, and a
message names the file and the fault. What privacy rests on is never read from it.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.display import card
from abcdp._common.files import MEMORY
from abcdp._common.missing import NONE, Rules
from abcdp._common.storage import Folder, open_folder, shown
from abcdp._common.version import __version__
from abcdp.bank.covariances import Covariances, read_covariances, write_covariances
from abcdp.bank.manifest import (
    MANIFEST,
    Header,
    Place,
    bank_digest,
    open_manifest,
    read_manifest,
    run_start,
    write_manifest,
)
from abcdp.bank.networks import Beside, Network
from abcdp.bank.pairs import Noising, as_noising, noised
from abcdp.bank.shards import Shard, ShardData
from abcdp.bank.status import OK, STATUS_WORDS
from abcdp.bank.storage import SHARDS, find_shard, read_shard, write_shard
from abcdp.distance import Distance
from abcdp.errors import BankError, SimulationWarning
from abcdp.privacy.noise_law import Law

_FindCovariances = Callable[[Sequence[Shard]], dict[tuple[int, int], Covariances]]


class Bank:
    """A bank of simulations, opened from a folder.

    Parameters
    ----------
    path
        The folder, or its URL on any filesystem that pyarrow opens (``s3://bucket/bank``).
    distance
        Your own :class:`~abcdp.CustomDistance` or :class:`~abcdp.RecordFeatures`, or an object of your own class of
        distances, where the bank names one: code is never read from a bank.
    memory
        The bytes that reading may take, whatever the bank declares: its manifest, one shard at a time, and each array
        of all draws. A bank that takes more is refused. None is for a bank of your own.

    Opening checks the manifest and the shape of every shard; content digests and bounds are checked whenever a shard is
    read, and by :meth:`verify` for all.
    """

    def __init__(self, path: Place, distance: Distance | None = None, *, memory: int | None = MEMORY) -> None:
        folder = open_folder(path)
        header, shards = open_manifest(folder, distance, memory)
        read = functools.partial(read_shard, folder, header)
        covariances = functools.partial(read_covariances, folder, header)
        self._init(header, shards, read, memory, covariances, Beside(folder))
        there = folder.names(SHARDS)
        for shard in shards:
            if shard.file not in there:
                raise BankError(
                    f"bank {folder}: shard {shard.file} is missing. Simulate again, or copy the whole folder."
                )
        self.path: str | None = str(folder)

    def _init(
        self,
        header: Header,
        shards: Sequence[Shard],
        read: Callable[[Shard], ShardData],
        memory: int | None,
        covariances: _FindCovariances,
        beside: Beside,
    ) -> None:
        self.header = header
        self.parts = tuple(shards)
        self.memory = memory
        self._read = read
        self._covariances = covariances
        self._beside = beside
        self.path = None

    @classmethod
    def from_memory(
        cls,
        header: Header,
        contents: Sequence[tuple[Shard, ShardData]],
        covariances: Mapping[tuple[int, int], Covariances] | None = None,
    ) -> Bank:
        """Return a bank that lives in memory, with covariances of some draws by the seed and number of their shards."""
        held = {(shard.seed, shard.number): data for shard, data in contents}
        bank = cls.__new__(cls)
        bank._init(
            header,
            [shard for shard, _ in contents],
            lambda shard: held[shard.seed, shard.number],
            None,
            lambda _: dict(covariances or {}),
            Beside(),
        )
        return bank

    @classmethod
    def merge(cls, banks: Sequence[Bank | Place], to: Place | None = None, *, memory: int | None = MEMORY) -> Bank:
        """Return the bank of all draws of several, each draw once.

        They must share model, prior, distance and records. Shards are told apart by their seed and number, in the order
        of the banks; one that several hold counts once, and two of the same name with other content are refused. A
        release of the first bank stays valid, since its shards come first, and so does one of any bank whose shards
        still stand in a row. With `to` the draws are copied there; otherwise they are read from the banks when needed.
        `memory` is for those that are opened here.
        """
        from abcdp.bank.failures import failures_and_where  # which looks into banks

        opened = [bank if isinstance(bank, Bank) else cls(bank, memory=memory) for bank in banks]
        if len(opened) < 2:
            raise BankError("merging takes at least two banks.")
        origin: dict[tuple[int, int], tuple[Shard, Bank]] = {}
        for bank in opened:
            _check_mergeable(opened[0], bank)
            for shard in bank.parts:
                held, other = origin.setdefault((shard.seed, shard.number), (shard, bank))
                if held != shard:
                    raise BankError(
                        f"{other} and {bank} both hold shard {shard.number} of seed {shard.seed}, with other content "
                        f"({held.rows} and {shard.rows} draws); nothing was written. Its draws are not independent: "
                        "merge banks of other seeds, or keep the longer one alone."
                    )
        header = opened[0].header
        merged = cls.__new__(cls)
        merged._init(
            header,
            [shard for shard, _ in origin.values()],
            lambda shard: origin[shard.seed, shard.number][1]._read(shard),
            memory,
            lambda shards: {key: found for bank in opened for key, found in bank._covariances(shards).items()},
            opened[0]._beside,
        )
        if to is not None:
            _write_merge(open_folder(to), merged, [bank.digest for bank in opened])
            merged = cls(to, header.distance, memory=memory)
        failed = failures_and_where(merged)
        if failed is not None:
            warnings.warn(f"{failed} Banks that were merged keep their failed draws.", SimulationWarning, stacklevel=2)
        return merged

    def select(self, keys: Sequence[tuple[int, int]]) -> Bank:
        """Return the bank of the shards with these (seed, number), in this order."""
        known = {(shard.seed, shard.number): shard for shard in self.parts}
        missing = [key for key in keys if tuple(key) not in known]
        if missing:
            raise BankError(f"the bank lacks {len(missing)} of {len(keys)} shards, first {missing[0]}.")
        bank = type(self).__new__(type(self))
        shards = [known[seed, number] for seed, number in keys]
        bank._init(self.header, shards, self._read, self.memory, self._covariances, self._beside)
        return bank

    def containing(self, digest: str, shards: int) -> Bank:
        """Return the run of `shards` shards with this digest: the bank itself, or the part that a release used."""
        start = run_start(digest, shards, self.header, self.parts)
        if start is None:
            raise BankError(f"the bank {self.digest[:12]} does not contain the bank {digest[:12]}.")
        return self.select([(shard.seed, shard.number) for shard in self.parts[start : start + shards]])

    def __repr__(self) -> str:
        return f"Bank({self.header.model!r}, draws={self.draws}, records={self.records}, digest={self.digest[:12]!r})"

    def _repr_html_(self) -> str:
        failed = f", {self.failed} of them failed" if self.failed else ""
        rows = {
            "draws": f"{self.draws:,}{failed}",
            "records of each": f"{self.records:,}",
            "parameters": ", ".join(self.parameters),
            "distance": type(self.distance).__name__,
            "digest": self.digest[:12],
            **({"place": shown(self.path)} if self.path else {}),
        }
        return card(f"Bank of {self.header.model}", rows)

    def __len__(self) -> int:
        return self.draws

    @property
    def digest(self) -> str:
        """The name of this content: a hash over the header and the digests of the shards in order."""
        return bank_digest(self.header, self.parts)

    @property
    def draws(self) -> int:
        """The number of draws, failed ones included."""
        return sum(shard.rows for shard in self.parts)

    @property
    def failed(self) -> int:
        """The number of draws whose simulation failed; they are never accepted."""
        return sum(shard.failed for shard in self.parts)

    @functools.cached_property
    def failures(self) -> dict[str, int]:
        """How many draws failed in which way, in words; reads the shards that hold any."""
        found = np.zeros(len(STATUS_WORDS), dtype=np.int64)
        for shard in self.parts:
            if shard.failed:
                found += np.bincount(self._read(shard).status, minlength=len(found))
        return {word: int(found[status]) for status, word in STATUS_WORDS.items() if status != OK and found[status]}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in the order of theta's columns."""
        return self.header.parameters

    @property
    def distance(self) -> Distance:
        """The distance whose encodings the bank holds."""
        return self.header.distance

    @property
    def records(self) -> int:
        """The number of records of each simulated dataset."""
        return self.header.records

    @property
    def columns(self) -> int:
        """The number of columns of a record."""
        return self.header.columns

    @property
    def missing(self) -> Rules:
        """What a missing cell of a simulated record stood for, for each column."""
        return self.header.missing or (NONE,) * self.columns

    def shards(self) -> Iterator[tuple[int, ShardData]]:
        """Yield the number of the first row and the content of each shard, one at a time."""
        start = 0
        for shard in self.parts:
            yield start, self._read(shard)
            start += shard.rows

    @property
    def narrowed(self) -> bool:
        """Whether its draws come from around an earlier answer, so that they count by weights."""
        return self.header.proposal is not None

    @functools.cached_property
    def log_weight(self) -> FloatArray | None:
        """The log density of the prior over that of what each draw was drawn from; None where that is the prior."""
        if not self.narrowed:
            return None
        self.check_room(2 * self.draws, "holding the weights")
        return np.concatenate([data.log_weight for _, data in self.shards() if data.log_weight is not None])

    @property
    def near(self) -> BoolArray:
        """Which draws are likelier to come from around an earlier answer than from the prior; all, without one.

        They stand for a prior that knows of that answer: where the next release is planned, and its summary learned.
        """
        if self.header.proposal is None or self.log_weight is None:
            return np.ones(self.draws, dtype=np.bool_)
        return self.header.proposal.near(self.log_weight)

    @property
    def earlier(self) -> Bank | None:
        """The same simulated datasets as the bank of the earlier release encodes them; None where they are not kept."""
        proposal = self.header.proposal
        if proposal is None or proposal.distance is None:
            return None
        header = self.header.alone.with_distance(proposal.distance)
        bank = type(self).__new__(type(self))
        bank._init(
            header,
            self.parts,
            lambda shard: _as_earlier(self._read(shard)),
            self.memory,
            lambda _: {},
            Beside(),
        )
        return bank

    def covariances(self) -> Covariances | None:
        """Return how the summaries of some draws vary as their own records tell, with the rows of these draws.

        None where there are none: the summaries are no means over records, or the bank was made before they were kept.
        """
        found = self.covariances_by_shard()
        starts = itertools.accumulate((shard.rows for shard in self.parts), initial=0)
        parts = [
            Covariances(start + found[shard.seed, shard.number].rows, found[shard.seed, shard.number].triangles)
            for shard, start in zip(self.parts, starts, strict=False)
            if (shard.seed, shard.number) in found
        ]
        return Covariances.joined(parts)

    def covariances_by_shard(self) -> dict[tuple[int, int], Covariances]:
        """Return the same by the seed and number of the shards, with rows as they stand there."""
        return self._covariances(self.parts)

    def network(self, header: Header | None = None) -> Network | None:
        """Return the numbers of the network that was trained on these draws, None where none was.

        With a `header`, of the one that was trained on several banks with the same simulated datasets.
        """
        return self._beside.network(self.header if header is None else header)

    def keep_network(self, network: Network) -> None:
        """Keep a network beside the bank, in place of the one that was there: in its folder, if it has one."""
        self._beside.keep(self.header, network)

    def verify(self) -> None:
        """Read everything, two shards at a time, and raise a :class:`BankError` at the first fault."""

        def check(shard: Shard) -> None:
            data = self._read(shard)
            if self.path is None:  # what comes from a file is checked as it is read
                self.header.check(data, f"shard {shard.number} of seed {shard.seed}")

        with ThreadPoolExecutor(2) as readers:
            for start in range(0, len(self.parts), 64):  # of a million shards only a few wait at a time
                list(readers.map(check, self.parts[start : start + 64]))

    def check_room(self, numbers: int, what: str) -> None:
        """Raise where so many numbers at once are more than the bank's limit of memory."""
        if self.memory is not None and 8 * numbers > self.memory:
            raise BankError(
                f"{what} of {self.draws} draws takes up to {numbers / 2**17:.0f} MiB, above memory={self.memory} "
                "bytes. Allow more if you trust the bank: Bank(path, memory=...), or --memory."
            )

    @functools.cached_property
    def theta(self) -> FloatArray:
        """All parameters, a row per draw."""
        self.check_room(2 * self.draws * len(self.parameters), "holding all parameters")
        return np.concatenate([data.theta for _, data in self.shards()])

    @functools.cached_property
    def status(self) -> npt.NDArray[np.int8]:
        """What became of each draw; 0 is fine."""
        return np.concatenate([data.status for _, data in self.shards()])

    @property
    def fine(self) -> BoolArray:
        """Which draws were simulated: these alone may count."""
        return np.asarray(self.status == OK)

    @functools.cached_property
    def rows(self) -> FloatArray:
        """All encoded datasets, a row per draw; NaN where the simulation failed."""
        self.check_room(2 * self.draws * self.header.width, "holding all encoded datasets")
        return np.concatenate([data.rows for _, data in self.shards()])

    def pairs(
        self, noise: Noising | Law | tuple[Any, ...] | None, *, most: int | None = None, seed: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return parameters and summaries with fresh noise, a row each: what an estimator of others is trained on.

        Failed draws are left out. The noise is anew in every call, so that each epoch can have its own.

        Parameters
        ----------
        noise
            Whose law it has: a release of a private summary, a :class:`abcdp.NoisySummary`, a calibrated
            :class:`abcdp.PrivateSummary`, an :class:`abcdp.Law` or a name with its scale, or any object with
            ``noised(rows, rng)``. None is for summaries as they are.
        most
            How many pairs there are at most, from the first draws on.
        seed
            With one, the noise is the same in every call. It is public randomness and protects nobody.
        """
        if not self.distance.has_summary:
            raise BankError(
                f"the bank's distance ({self.distance.kind}) has no summary: use a bank with MeanSummary, MMD features "
                "or a learned summary."
            )
        if self.narrowed:
            raise BankError(
                "the bank is narrowed: its draws are not those of the prior, and pairs of them would train an "
                "estimator for another one. Take bank.theta, bank.rows and bank.log_weight, and weight them."
            )
        for name, value, least in (("most", most, 1), ("seed", seed, 0)):
            if value is not None and not is_whole(value, least):
                raise BankError(f"{name}={value!r}: a whole number of at least {least}, or None.")
        law = None if noise is None else as_noising(noise)
        count = min(self.draws - self.failed, self.draws if most is None else most)
        if not count:
            raise BankError("every simulation of the bank failed: there are no pairs.")
        self.check_room(3 * count * (len(self.parameters) + self.header.width), "holding pairs")
        parts: list[tuple[FloatArray, FloatArray]] = []
        left = count
        for _, shard in self.shards():
            fine = np.flatnonzero(shard.fine)[:left]
            parts.append((shard.theta[fine], shard.rows[fine]))
            left -= len(fine)
            if not left:
                break
        theta, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
        return theta, rows if law is None else noised(law, rows, np.random.default_rng(seed))

    def take(self, rows: Sequence[int]) -> FloatArray:
        """Return the parameters of these draws, reading only the shards that hold them."""
        wanted = np.asarray(rows, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.draws):
            raise BankError(f"the bank has rows 0 to {self.draws - 1}; row {int(wanted.max())} was asked for.")
        out = np.empty((len(wanted), len(self.parameters)))
        start = 0
        for shard in self.parts:
            inside = (wanted >= start) & (wanted < start + shard.rows)
            if inside.any():
                out[inside] = self._read(shard).theta[wanted[inside] - start]
            start += shard.rows
        return out


def _as_earlier(data: ShardData) -> ShardData:
    """Return the content of a shard with the rows of the earlier distance."""
    assert data.earlier is not None  # noqa: S101 - the header says that it is there
    return ShardData(data.status, data.theta, data.earlier, data.log_weight)


def _check_mergeable(first: Bank, other: Bank) -> None:
    ours, theirs = first.header.to_json(), other.header.to_json()
    for name in ours | theirs:
        value = ours.get(name)
        if theirs.get(name) != value and name == "proposal":
            raise BankError(
                "banks that were narrowed around other answers, or not at all, cannot be merged; nothing was written."
            )
        if theirs.get(name) != value:
            raise BankError(
                f"banks of another {name} cannot be merged ({value!r} and {theirs.get(name)!r}); nothing was written."
            )


def _write_merge(folder: Folder, bank: Bank, sources: list[str]) -> None:
    """Copy a merged bank's shards to a folder, or those that an interrupted copy of the same did not reach."""
    if folder.state() in ("file", "full"):
        begun = read_manifest(folder) if folder.size(MANIFEST) is not None else {}
        if begun.get("merging") != bank.digest:
            raise BankError(f"{folder} exists and is not empty; nothing was written. Choose another folder.")
    header = bank.header.to_json() | {"software": {"abcdp": __version__}, "merged": sources}
    write_manifest(folder, {**header, "merging": bank.digest, "shards": None, "digest": None})
    folder.sweep()
    for shard in bank.parts:
        if find_shard(folder, bank.header, shard.seed, shard.number, shard.rows) != shard:
            write_shard(folder, shard, bank._read(shard))
    found = bank.covariances_by_shard()
    for shard in bank.parts:
        if (shard.seed, shard.number) in found:
            write_covariances(folder, shard, found[shard.seed, shard.number])
    write_manifest(folder, {**header, "shards": [s.to_json() for s in bank.parts], "digest": bank.digest})
