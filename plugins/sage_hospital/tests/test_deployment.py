"""Findings of `sage hospital check` on a good server and on bad servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage.cli.show import list_all
from sage.core.errors import InputError
from sage.run.folder import RunFolder
from sage.settings import Settings, load
from sage.web.app import collect_metrics
from sage.web.site import Site
from sage_hospital.audit import open_audit
from sage_hospital.deployment import check_deployment
from sage_hospital.runs import open_runs
from sage_hospital.tests.test_queue import manifest
from tests.postgres import NEEDED, server
from validation.ledger.store import open_store


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of this file."""
    with server() as found:
        yield found


def states(settings: Settings) -> dict[str, str]:
    """State of each check."""
    return {check.what: check.state for check in check_deployment(settings)}


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=NEEDED)])
def test_a_server_with_its_database_has_what_it_needs(kind: str, url: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=NEEDED)])
def test_a_database_that_cannot_keep_every_letter_is_refused(
    kind: str, url: str, tmp_path: Path
) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as live:
        live.execute(
            "CREATE DATABASE old ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
            " TEMPLATE template0"
        )
    old = f"{url.rpartition('/')[0]}/old"
    place = {"runs_dir": tmp_path, "checkpoint_url": old, "ledger": old}
    found = check_deployment(Settings.model_validate(place))
    found_broken = {check.what: check.found for check in found if check.state == "broken"}
    assert set(found_broken) == {"database of runs", "queue of runs", "audit log"}
    assert all("uses the encoding SQL_ASCII" in said for said in found_broken.values())
    with pytest.raises(InputError, match=r"the ledger .* uses the encoding SQL_ASCII"):
        open_store(old)


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=NEEDED)])
def test_a_user_without_rights_is_told_which(kind: str, url: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as live:
        live.execute("CREATE ROLE poor LOGIN")
        given = {"runs_dir": tmp_path, "checkpoint_url": url.replace("sage@", "poor@")}
        for taken, reason in (("CREATE", "permission denied"), ("ALL", "no schema")):
            live.execute(f"REVOKE {taken} ON SCHEMA public FROM public")
            found = check_deployment(Settings.model_validate(given))
            broken = {check.what: check for check in found if check.state == "broken"}
            assert set(broken) == {"database of runs", "queue of runs", "audit log"}
            for check in broken.values():
                assert reason in check.found
                assert "granted CREATE" in check.found
                assert "checkpoint_url" in check.remedy


@pytest.mark.parametrize("url", ["postgres//sage:hunter2@h/d", "mysql://sage:hunter2@h/d"])
def test_an_address_that_is_none_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_CHECKPOINT_URL", url)
    with pytest.raises(InputError, match=r"checkpoint_url.*postgresql://USER") as said:
        load()
    assert "hunter2" not in str(said.value)


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "hurt"):
        RunFolder(tmp_path / name).save(manifest(1).model_copy(update={"id": name}))
    (tmp_path / "hurt/manifest.json").write_text("{")
    settings = Settings(runs_dir=tmp_path)
    found = {check.what: check for check in check_deployment(settings)}["manifests of runs"]
    assert found.state == "broken"
    assert found.found.startswith("2 runs, of which 1 cannot be read:")
    assert "hurt/manifest.json is damaged" in found.found
    assert [name for name, _ in Site(settings).runs()] == ["first"]
    assert "sage_runs" in str(collect_metrics(Site(settings)))
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path))
    list_all(20, as_json=False)
    found_broken = capsys.readouterr()
    assert "first" in found_broken.out
    assert "left out" in found_broken.err
    assert "hurt/manifest.json" in found_broken.err


def test_runs_that_nobody_takes_and_an_edited_log_are_broken(tmp_path: Path) -> None:
    settings = Settings(runs_dir=tmp_path)
    assert "broken" not in states(settings).values()
    with open_runs(settings, new=True) as runs, open_audit(settings, new=True) as audit:
        assert runs is not None
        assert audit is not None
        runs.add(manifest(1), "ann")
        assert states(settings)["queue of runs"] == "ok"
        runs.database.run("UPDATE sage_runs SET updated = ? RETURNING id", [time.time() - 1000])
        audit.add("ann", "asked")
        audit.database.run("UPDATE sage_audit SET who = 'eve' RETURNING seq")
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
