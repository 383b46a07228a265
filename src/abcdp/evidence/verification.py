"""Whose a release is, whether it is whole, and what belongs to it: for whoever was handed a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.files import read_bounded, read_json
from abcdp._common.signatures import KEY_SIZE, fingerprint, from_pem
from abcdp.bank import Bank
from abcdp.errors import ReleaseError, SignatureError
from abcdp.inference.posterior import bank_of
from abcdp.releases.release import Release
from abcdp.releases.signed import check_signature

if TYPE_CHECKING:
    import xarray

_LARGEST_KEY = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was checked of a release, and held; `said` has it in words, and what it does not show.

    `key` is the fingerprint of the key that signed it, None where it is not signed and that was allowed.
    """

    dataset: str
    digest: str
    key: str | None
    said: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what was checked as plain values."""
        return {"dataset": self.dataset, "digest": self.digest, "key": self.key, "said": list(self.said)}


def verify(
    release: Any,
    *,
    key: Any = None,
    bank: Bank | str | os.PathLike[str] | None = None,
    posterior: Any = None,
    allow_unsigned: bool = False,
) -> Verified:
    """Return what holds of a release, or raise :class:`abcdp.errors.SignatureError` where something does not.

    Parameters
    ----------
    release
        The file, or a release that was read from it.
    key
        The owner's public key: its file (``abcdp ledger key`` writes it), or its 32 bytes. Get it from the owner, not
        from whoever handed out the release.
    bank
        The bank that it should have been made with: it is read as a whole.
    posterior
        A posterior that should have been made of it, as :func:`abcdp.posterior` returns it or as its netCDF file. What
        it says of itself is compared; :func:`abcdp.evidence.reproduce` makes it again.
    allow_unsigned
        Whether a release without a signature will do, as earlier versions made them: nobody answers for it then.
    """
    values = release.to_json() if isinstance(release, Release) else _values(release)
    where = "the release" if isinstance(release, Release) else os.fspath(release)
    said = [_signature(values, where, key, allow_unsigned)]  # first: a forged file is called forged, not malformed
    found = release if isinstance(release, Release) else _loaded(values, where)
    if found.seeded:
        said.append("Its noise is seeded: it is an experiment on public data and protects nobody.")
    if bank is not None:
        said.append(_bank(found, bank))
    if posterior is not None:
        said.append(_posterior(found, posterior))
    signed_by = None if found.signature is None or key is None else fingerprint(public_key_of(key))
    return Verified(dataset=found.dataset, digest=found.digest, key=signed_by, said=tuple(said))


def public_key_of(key: Any) -> bytes:
    """Return a public key from its bytes, or from its file."""
    if isinstance(key, bytes) and len(key) == KEY_SIZE:
        return key
    if not isinstance(key, str | os.PathLike):
        raise SignatureError("key: give the file of the owner's public key, such as owner.pub.")
    try:
        return from_pem(read_bounded(key, _LARGEST_KEY))
    except OSError as error:
        raise SignatureError(f"{os.fspath(key)} cannot be read: {error.strerror}.") from None
    except SignatureError as error:
        raise SignatureError(f"{os.fspath(key)}: {error}") from None


def _signature(values: Mapping[str, Any], where: str, key: Any, allow_unsigned: bool) -> str:
    if "signature" not in values and allow_unsigned:
        return "It is not signed: nobody answers for it."
    if key is None:
        raise SignatureError(
            f"{where}: without the owner's public key nobody can tell whose it is, since whoever changes a file can "
            "sign it too, with a key of their own. Give key= (--key owner.pub)."
        )
    owner = public_key_of(key)
    try:
        check_signature(values, owner)
    except SignatureError as error:
        raise SignatureError(f"{where}: {error}") from None
    return f"It is whole, and signed by the holder of the key {fingerprint(owner)}."


def _values(path: Any) -> Mapping[str, Any]:
    """Return what stands in a file, all of it: what a release would not keep must not pass unsigned."""
    try:
        values = read_json(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ReleaseError(f"{path}: cut off or damaged, and no release: {error}.") from None
    if not isinstance(values, Mapping):
        raise ReleaseError(f"{path}: not a release.")
    return values


def _loaded(values: Mapping[str, Any], where: str) -> Release:
    try:
        return Release.from_json(values)
    except ReleaseError as error:
        raise ReleaseError(f"{where}: {error}") from None


def _bank(release: Release, bank: Bank | str | os.PathLike[str]) -> str:
    used = bank if isinstance(bank, Bank) else Bank(bank)
    try:
        used = bank_of(release, used)
        used.verify()
    except ReleaseError as error:
        raise SignatureError(f"the bank does not belong to the release: {error}") from None
    if not np.array_equal(used.take(release.accepted), np.reshape(release.theta, (-1, len(used.parameters)))):
        raise SignatureError("the bank does not belong to the release: its rows have other parameters.")
    return f"The bank is the one that it was made with ({used.digest[:16]}), and whole."


def _posterior(release: Release, posterior: Any) -> str:
    attributes = _attributes(posterior)
    named = str(attributes.get("release_digest", "")).split(", ")
    if named == [""]:
        raise SignatureError(
            "the posterior does not say what it was made of: an earlier version of abcdp made it, or another program. "
            "Make it again from the release and its bank."
        )
    if release.digest not in named:
        raise SignatureError("the posterior was made of another release: it names another digest.")
    if len(named) == 1 and attributes.get("bank_digest") != release.bank.digest:
        raise SignatureError("the posterior was made with another bank: it names another digest.")
    others = f" and {len(named) - 1} others" if len(named) > 1 else ""
    return (
        f"The posterior says that it was made of it{others}, with its bank; nobody signed that: make it again to see."
    )


def _attributes(posterior: Any) -> Mapping[str, Any]:
    if not isinstance(posterior, str | os.PathLike):
        found: xarray.DataTree = posterior
        return {str(name): value for name, value in found.attrs.items()}
    import xarray

    try:
        with xarray.open_datatree(Path(posterior), engine="h5netcdf") as tree:
            return {str(name): value for name, value in tree.attrs.items()}
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{posterior}: not a posterior in netCDF ({type(error).__name__}).") from None
