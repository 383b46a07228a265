"""Signatures of files (Ed25519): who holds a key made these bytes, as they are.

The only module that loads the library behind them, and only when somebody signs or checks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from abcdp.errors import SignatureError, SignaturesMissingError

KEY_SIZE = 32
_TEXT = re.compile(r"ed25519:([0-9a-f]{64}):([0-9a-f]{128})")
_FINGERPRINT = 32  # hexadecimal digits that people compare: 128 bits, which nobody finds a second key for


def check_installed() -> None:
    """Raise where signatures can be neither made nor checked."""
    _library()


def public_key(private: bytes) -> bytes:
    """Return what others check signatures with."""
    return _library().Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()  # type: ignore[no-any-return]


def signature(private: bytes, message: bytes) -> str:
    """Return the signature of a message as one word, which names the public key."""
    made = _library().Ed25519PrivateKey.from_private_bytes(private).sign(message)
    return f"ed25519:{public_key(private).hex()}:{made.hex()}"


def named_key(text: str) -> bytes:
    """Return the public key that a signature names, true or not."""
    return _parts(text)[0]


def check(text: str, message: bytes, key: bytes) -> None:
    """Raise unless a signature is that of this message by the holder of this key."""
    named, made = _parts(text)
    if named != key:
        raise SignatureError(
            f"it is signed with another key ({fingerprint(named)}) than the one given ({fingerprint(key)}): somebody "
            "else made it, or signed it anew."
        )
    library = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        library.Ed25519PublicKey.from_public_bytes(key).verify(made, message)
    except InvalidSignature:
        raise SignatureError(
            "it was changed after it was signed: its content is not what the signature is for. Ask its owner for the "
            "file as it was handed out."
        ) from None


def fingerprint(key: bytes) -> str:
    """Return what people compare: on paper, on a page of the owner's, on the telephone."""
    return hashlib.sha256(key).hexdigest()[:_FINGERPRINT]


def to_pem(key: bytes) -> str:
    """Return a public key as the file that other tools read too."""
    library = _library()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    text: bytes = library.Ed25519PublicKey.from_public_bytes(key).public_bytes(*form)
    return text.decode()


def from_pem(content: bytes) -> bytes:
    """Return the public key of such a file."""
    library = _library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, library.Ed25519PublicKey):
        raise SignatureError("not a public key of an owner (Ed25519, in PEM); abcdp ledger key LEDGER --out writes it.")
    return bytes(found.public_bytes_raw())


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the one text of JSON values: names sorted, no blanks, in ASCII."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parts(text: str) -> tuple[bytes, bytes]:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise SignatureError("its signature is damaged: it is not written as one of Ed25519 is.")
    return bytes.fromhex(found[1]), bytes.fromhex(found[2])


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SignaturesMissingError(
            'signatures need cryptography, which is not installed: pip install "abcdp[signatures]" (an owner has it '
            'with "abcdp[owner]").'
        ) from None
    return ed25519
