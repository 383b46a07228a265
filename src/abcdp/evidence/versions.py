"""What evidence was made with: versions of programs, and digests of the proofs that a guarantee rests on."""

from __future__ import annotations

import json
from typing import Any

from abcdp._common.version import __version__

_PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "xarray", "arviz-base", "opendp", "cryptography", "matplotlib")


def versions() -> dict[str, str]:
    """Return the versions of what runs here."""
    import platform
    from importlib import metadata

    found = {"abcdp": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def proofs() -> dict[str, Any]:
    """Return the sha256 of each file with a proof, as it was when this version was made.

    An installed package has the digests and not the files: these are in its source, where a test compares both.
    """
    from importlib import resources

    text = resources.files("abcdp.evidence").joinpath("proofs.json").read_text(encoding="utf-8")
    return {"software": f"abcdp {__version__}", "sha256": json.loads(text)}
