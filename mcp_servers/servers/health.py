"""Server health and metrics: public /healthz, and token-protected /metrics (OpenMetrics)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

HEALTH = "/healthz"
METRICS = "/metrics"


def make_gauges(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Make a gauge metric with one value per label."""
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def make_counters(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Make a counter metric with one value per label; its samples end with `_total`."""
    family = CounterMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class Watch:
    """Handler of health and metrics requests that also counts the server's responses.

    `collect_more` returns further metrics for each request.
    """

    def __init__(self, collect_more: Callable[[], Iterable[Metric]] = tuple) -> None:
        self.collect_more = collect_more
        self.answers: Counter[str] = Counter()
        self.process = ProcessCollector(registry=None)

    async def answer_health(self, scope: Any, send: Any) -> bool:
        """Answer /healthz without details; return False for any other request."""
        if scope["type"] != "http" or scope["path"] != HEALTH:
            return False
        await _send(send, b'{"status": "ok"}\n', "application/json")
        return True

    async def answer_metrics(self, scope: Any, send: Any) -> bool:
        """Answer /metrics; return False for any other request."""
        if scope["path"] != METRICS or scope["method"] != "GET":
            return False

        await _send(
            send, await anyio.to_thread.run_sync(generate_latest, self), CONTENT_TYPE_LATEST
        )
        return True

    def collect(self) -> Iterable[Metric]:
        """Collect all metrics, as a prometheus_client registry does."""
        yield from self.process.collect()
        yield make_counters("sage_http_answers", "Answers by status.", "status", self.answers)
        yield from self.collect_more()

    def count_answers(self, send: Any) -> Any:
        """Wrap `send` so that it also counts the response."""

        async def counting_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answers[str(message["status"])] += 1
            await send(message)

        return counting_send


async def _send(send: Any, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()),
               (b"cache-control", b"no-store")]  # fmt: skip
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
