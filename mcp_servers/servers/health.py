"""What a server tells those who watch it: /healthz to anybody, /metrics to who has the token.

The text of /metrics is OpenMetrics 1.0, which Prometheus reads.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HEALTH = "/healthz"
METRICS = "/metrics"
KIND = b"application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """One metric: its values by labels. A counter's samples get the ending `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    meaning: str
    values: Mapping[tuple[tuple[str, str], ...], float]


Measured = Callable[[], Iterable[Family]]


def one(name: str, kind: Literal["gauge", "counter"], meaning: str, value: float) -> Family:
    """A metric without labels.

    Parameters
    ----------
    name, kind, meaning : of the metric
    value : its only one
    """
    return Family(name, kind, meaning, {(): value})


def by(
    label: str,
    name: str,
    kind: Literal["gauge", "counter"],
    meaning: str,
    values: Mapping[str, float],
) -> Family:
    """A metric with one label.

    Parameters
    ----------
    label : its name
    name, kind, meaning : of the metric
    values : by the label's value
    """
    return Family(name, kind, meaning, {((label, key),): count for key, count in values.items()})


def exposition(families: Iterable[Family]) -> str:
    """The metrics as OpenMetrics text."""
    lines = []
    for family in families:
        lines += [f"# TYPE {family.name} {family.kind}", f"# HELP {family.name} {family.meaning}"]
        ending = "_total" if family.kind == "counter" else ""
        for labels, value in family.values.items():
            said = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(f"{family.name}{ending}{{{said}}} {value:g}" if said else
                         f"{family.name}{ending} {value:.17g}")  # fmt: skip
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def of_process() -> list[Family]:
    """Memory and open files of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return [
        one("process_resident_memory_bytes", "gauge", "Memory of the server.",
            pages * os.sysconf("SC_PAGE_SIZE")),
        one("process_open_fds", "gauge", "Open files and sockets of the server.",
            len(list(Path("/proc/self/fd").iterdir()))),
    ]  # fmt: skip


class Watch:
    """Answers the two addresses, and counts what the server answers.

    Parameters
    ----------
    measured : further metrics, asked at each request
    """

    def __init__(self, measured: Measured = tuple) -> None:
        self.measured = measured
        self.answers: Counter[str] = Counter()

    async def healthy(self, scope: Any, send: Any) -> bool:
        """Answer /healthz, which tells nothing else; False for any other request."""
        if scope["type"] != "http" or scope["path"] != HEALTH:
            return False
        await answer(send, b'{"status": "ok"}\n', b"application/json")
        return True

    async def measures(self, scope: Any, send: Any) -> bool:
        """Answer /metrics; False for any other request."""
        if scope["path"] != METRICS or scope["method"] != "GET":
            return False
        import anyio

        text = await anyio.to_thread.run_sync(self.text)
        await answer(send, text.encode(), KIND)
        return True

    def text(self) -> str:
        """All metrics."""
        said = by("status", "sage_http_answers", "counter", "Answers by status.", self.answers)
        return exposition([*of_process(), said, *self.measured()])

    def counting(self, send: Any) -> Any:
        """`send`, which also counts the answer."""

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answers[str(message["status"])] += 1
            await send(message)

        return sending


async def answer(send: Any, body: bytes, kind: bytes) -> None:
    """A whole answer of status 200."""
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()),
               (b"cache-control", b"no-store")]  # fmt: skip
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
