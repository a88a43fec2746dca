"""What `sage doctor --deployment` finds wrong, on a server that has it right and on others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sage.control.audit import open_audit
from sage.control.deployment import check_deployment
from sage.control.runs import open_runs
from sage.settings import Settings
from tests.postgres import NEEDED, server
from tests.sage.control.test_runs import manifest


def states(settings: Settings) -> dict[str, str]:
    """How each thing stands."""
    return {check.what: check.state for check in check_deployment(settings)}


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=NEEDED)])
def test_a_server_with_its_database_has_what_it_needs(kind: str, tmp_path: Path) -> None:
    with server() as url:
        place = {"runs_dir": tmp_path, "checkpoint_url": url, "ledger": url}
        found = states(Settings.model_validate(place))
    assert found["database of runs"] == found["clock"] == found["ledger for all"] == "ok"
    assert "broken" not in found.values()


def test_a_database_that_is_not_there_is_broken(tmp_path: Path) -> None:
    url = "postgresql://sage:hunter2@127.0.0.1:9/none"
    found = check_deployment(Settings.model_validate({"runs_dir": tmp_path, "checkpoint_url": url}))
    broken = {check.what: check.found for check in found if check.state == "broken"}
    assert set(broken) == {"database of runs", "queue of runs", "audit log"}
    assert "hunter2" not in str(broken)


def test_runs_that_nobody_takes_and_an_edited_log_are_broken(tmp_path: Path) -> None:
    settings = Settings(runs_dir=tmp_path)
    assert "broken" not in states(settings).values()
    with open_runs(settings, new=True) as runs, open_audit(settings, new=True) as audit:
        assert runs is not None
        assert audit is not None
        runs.add(manifest(1), "ann")
        assert states(settings)["queue of runs"] == "ok"
        runs.database.one("UPDATE sage_runs SET updated = ? RETURNING id", [time.time() - 1000])
        audit.add("ann", "asked")
        audit.database.one("UPDATE sage_audit SET who = 'eve' RETURNING seq")
    found = states(settings)
    assert found["queue of runs"] == found["audit log"] == "broken"


def test_settings_with_a_key_that_all_can_read_are_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sage.toml"
    path.write_text('api_key = "k"\n')
    monkeypatch.setenv("SAGE_CONFIG", str(path))
    for mode, state in ((0o644, "broken"), (0o640, "ok")):
        path.chmod(mode)
        assert states(Settings(runs_dir=tmp_path))["settings with secrets"] == state
