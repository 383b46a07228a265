"""The signature of a release: over all that its file says, but for the signature itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from abcdp._common.signatures import canonical, check
from abcdp.errors import SignatureError
from abcdp.releases.release import Release

_WORD = "signature"


def signed_part(values: Mapping[str, Any]) -> bytes:
    """Return what is signed of a release: everything else that stands in it."""
    return canonical({name: value for name, value in values.items() if name != _WORD})


def signed(release: Release, sign: Callable[[bytes], str]) -> Release:
    """Return a release with its signature: what is stored, handed out and checked are the same bytes."""
    return replace(release, signature=sign(signed_part(release.to_json())))


def check_signature(values: Mapping[str, Any], key: bytes) -> None:
    """Raise unless the values of a file of a release are those that the holder of a key signed."""
    text = values.get(_WORD)
    if not isinstance(text, str):
        raise SignatureError(
            "it is not signed: nobody answers for it. Releases of earlier versions of abcdp have no signature; compare "
            "its digest with its owner's ledger, or allow it (allow_unsigned=True, --allow-unsigned)."
        )
    check(text, signed_part(values), key)
