"""What tests of the library share: trainings that are short where nobody looks at how good they are."""

from __future__ import annotations

from collections.abc import Generator

import pytest

WHOLE = {"test_readme"}  # what users are shown is learned as users have it
LONGER = {"test_private_summary": 1500}  # which says what learned summaries explain
# Run first, so that two workers end together: what the one has left last is short.
SLOW = {"test_plan", "test_calibration_check", "test_neural", "test_jax", "test_jax_summaries", "test_doubts"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in SLOW)


@pytest.fixture(autouse=True, scope="module")
def short_trainings(request: pytest.FixtureRequest) -> Generator[None]:
    """Train summaries for a small part of the time; `python -m bench answers` says what whole trainings are worth."""
    from abcdp.learning import information

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ not in WHOLE:
            patch.setattr(information, "_STEPS", (400, LONGER.get(request.module.__name__, 400)))
        yield
