"""Pictures of what is public: figures of matplotlib that show themselves in a notebook, and `save_figure` for files.

All of it is post-processing: posteriors, plans, checks and audits go in, and no private record is near.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, ParamSpec

from abcdp.reporting import plots as _drawn
from abcdp.reporting.plots import save_figure

__all__ = [
    "audit_losses",
    "calibration_curves",
    "check",
    "intervals",
    "marginals",
    "pairs",
    "plan_curves",
    "predictive",
    "save_figure",
]

P = ParamSpec("P")


def _shown(draw: Callable[P, Any]) -> Callable[P, Any]:
    """Return the function with figures that a notebook shows: they are made without pyplot, which it would look for."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            figure = draw(*args, **kwargs)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "matplotlib":
                raise
            raise ModuleNotFoundError("pictures need matplotlib: pip install 'abcdp[plots]'", name=error.name) from None
        figure._repr_png_ = functools.partial(_png, figure)
        return figure

    return drawn


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


audit_losses = _shown(_drawn.audit_losses)
calibration_curves = _shown(_drawn.calibration_curves)
check = _shown(_drawn.check)
intervals = _shown(_drawn.intervals)
marginals = _shown(_drawn.marginals)
pairs = _shown(_drawn.pairs)
plan_curves = _shown(_drawn.plan_curves)
predictive = _shown(_drawn.predictive)
