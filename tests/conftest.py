"""What tests of the library share: trainings that are short where nobody looks at how good they are."""

from __future__ import annotations

from collections.abc import Generator

import pytest

WHOLE = {"test_readme"}  # what users are shown is learned as users have it


@pytest.fixture(autouse=True, scope="module")
def short_trainings(request: pytest.FixtureRequest) -> Generator[None]:
    """Train summaries for a tenth of the time; `python -m bench answers` says what whole trainings are worth."""
    from abcdp.learning import information

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ not in WHOLE:
            patch.setattr(information, "_STEPS", (400, 1500))
        yield
