"""Hooks into SAGE's commands and servers (see `sage.core.hooks`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from prometheus_client.core import Metric

    from sage.run.campaign.notebook import Notebook
    from sage.run.folder import Manifest
    from sage.run.services import Services
    from sage.settings import Settings
    from sage.web.people import People
    from sage.web.reviews import Reviews
    from sage_hospital.callers import LoggedCallers


def log_command(settings: Settings, what: str, about: object = "", **detail: Any) -> None:
    """Log a command by this machine's user if a log is kept."""
    from sage.core.hooks import current_owner
    from sage_hospital.audit import open_audit

    with open_audit(settings) as log:
        if log is not None:
            log.add(current_owner(), what, str(about), via="command line", **detail)


def open_people(settings: Settings, header: str, proxies: list[str], roles: Path | None) -> People:
    """Open the people that the page server identifies."""
    from sage_hospital.people import open_people
    from sage_hospital.roles import parse_trust

    return open_people(settings, parse_trust(header, proxies, roles))


def open_callers(
    settings: Settings, header: str, proxies: list[str], roles: Path | None
) -> AbstractContextManager[LoggedCallers | None]:
    """Open the callers that the MCP server identifies."""
    from sage_hospital.callers import open_callers
    from sage_hospital.roles import parse_trust

    return open_callers(parse_trust(header, proxies, roles), settings)


def open_checkpoints(
    url: str, serializer: Any, manifest: Manifest
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    """Open run checkpoints in PostgreSQL."""
    from sage_hospital.checkpoints import open_checkpoints

    return open_checkpoints(url, serializer, manifest)


def open_notebook(path: Path, settings: Settings) -> Notebook:
    """Open a campaign notebook in PostgreSQL."""
    from sage_hospital.notebook import SharedNotebook

    return SharedNotebook(path, settings)


def open_reviews(settings: Settings) -> AbstractContextManager[Reviews]:
    """Open reviewers' comments and votes in PostgreSQL."""
    from sage_hospital.reviews import open_reviews

    return open_reviews(settings)


def hold_run(services: Services, owner: str) -> AbstractContextManager[None]:
    """Claim a run in the table of runs, if there is one, and renew its lease."""
    from sage_hospital.lease import hold_lease

    return hold_lease(services, owner)


def queue_run(services: Services, answer: dict[str, Any] | None) -> None:
    """Leave a run to a worker, with the person's decision if the run waited for it."""
    from sage.core.hooks import current_owner
    from sage_hospital.runs import open_runs

    manifest = services.manifest
    with open_runs(services.settings, new=True) as runs:
        assert runs is not None
        services.folder.update(status="queued")
        services.folder.release()
        if answer is None:
            runs.add(manifest, current_owner())
        else:
            runs.answer(manifest, current_owner(), answer)


def collect_metrics(settings: Settings) -> list[Metric]:
    """Collect the queue's metrics; if the database does not respond, report only that."""
    from contextlib import suppress

    from prometheus_client.core import GaugeMetricFamily

    from mcp_servers.servers.health import make_gauges
    from sage.core.errors import FaultError
    from sage_hospital.runs import open_runs

    found, up = [], False
    with suppress(FaultError):
        with open_runs(settings) as table:
            if table is not None:
                states = table.count_states()
                found.append(make_gauges("sage_queue_runs", "Runs in the queue.", "state", states))
        up = True
    found.append(GaugeMetricFamily("sage_database_up", "1 if the database of runs answers.", up))
    return found
