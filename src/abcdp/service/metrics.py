"""Counts for whoever watches the server, in the text format of Prometheus. They name no account and no dataset."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """What this process has counted since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.time()
        self._answers: Counter[tuple[str, str, int]] = Counter()
        self._slower: Counter[tuple[str, float]] = Counter()  # answers of a method by the first bound they keep
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._events: Counter[str] = Counter()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        with self._lock:
            self._answers[method, route, status] += 1
            self._seconds[method] += seconds
            self._slower[method, next((bound for bound in _BOUNDS if seconds <= bound), float("inf"))] += 1

    def count(self, event: str, by: int = 1) -> None:
        """Count something else: bytes received, calls that were turned away."""
        with self._lock:
            self._events[event] += by

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all counts, and numbers that are measured now."""
        with self._lock:
            answers, slower, events = dict(self._answers), dict(self._slower), dict(self._events)
            seconds = dict(self._seconds)
        lines = ["# TYPE abcdp_http_requests_total counter"]
        for (method, route, status), count in sorted(answers.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"abcdp_http_requests_total{{{labels}}} {count}")
        lines.append("# TYPE abcdp_http_seconds histogram")
        for method in sorted(seconds):
            below = 0
            for bound in (*_BOUNDS, float("inf")):
                below += slower.get((method, bound), 0)
                name = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'abcdp_http_seconds_bucket{{method="{method}",le="{name}"}} {below}')
            lines.append(f'abcdp_http_seconds_sum{{method="{method}"}} {seconds[method]:.6f}')
            lines.append(f'abcdp_http_seconds_count{{method="{method}"}} {below}')
        for event, count in sorted(events.items()):
            lines += [f"# TYPE abcdp_{event}_total counter", f"abcdp_{event}_total {count}"]
        for name, value in {"uptime_seconds": time.time() - self._started, **gauges}.items():
            lines += [f"# TYPE abcdp_{name} gauge", f"abcdp_{name} {value:g}"]
        return "\n".join(lines) + "\n"
