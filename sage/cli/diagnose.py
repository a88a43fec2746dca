"""Checks of the machine: libraries, model, sandbox, GPU, data."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path
from typing import Literal

from sage.core.extras import EXTRAS, absent, install
from sage.core.models import Strict
from sage.settings import Settings

PACKAGES = ("agents", "kg", "mcp_servers", "sage", "sandbox", "validation")


class Check(Strict):
    """Result of a check. `missing` things are optional, `broken` things are not."""

    what: str
    state: Literal["ok", "missing", "broken"]
    found: str
    remedy: str = ""


def diagnose(settings: Settings, *, probe: bool = False) -> list[Check]:
    """Run all checks, most important first."""
    return [
        Check(what="Python", state="ok", found=platform.python_version()),
        _packages(),
        *_libraries(),
        _data(),
        _reasoner(settings, probe=probe),
        *_sandboxes(),
        _gpu(),
        _writable(settings),
        _ledger(settings),
    ]


REQUIRED = ("langgraph", "lifelines", "statsmodels", "matplotlib", "mcp")


def _libraries() -> list[Check]:
    gone = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    checks = [
        Check(
            what="libraries",
            state="broken" if gone else "ok",
            found=f"missing: {', '.join(gone)}" if gone else "all required",
            remedy="make setup" if gone else "",
        )
    ]
    for name, extra in EXTRAS.items():
        gone = absent(name)
        checks.append(
            Check(
                what=f"extra: {name}",
                state="missing" if gone else "ok",
                found=f"absent: {', '.join(gone)}" if gone else "installed",
                remedy=f"{install(name)}: {extra.adds}" if gone else "",
            )
        )
    return checks


def _packages() -> Check:
    """Check that no other package took the name of a package of SAGE."""
    from importlib.metadata import packages_distributions

    own = Path(__file__).resolve().parents[2]
    owners = packages_distributions()
    taken = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list((spec.submodule_search_locations if spec else None) or ())
        if others := sorted(set(owners.get(name, ())) - {"sage-pathology"}):
            taken.append(f"{name} also belongs to the package {', '.join(others)}")
        elif own / name not in [Path(place).resolve() for place in places]:
            taken.append(f"{name} is imported from {places[0] if places else 'nowhere'}")
    return Check(
        what="packages",
        state="broken" if taken else "ok",
        found="; ".join(taken) or "SAGE's own",
        remedy="install SAGE in an environment of its own, without the other" if taken else "",
    )


def _data() -> Check:
    from sage.core.data import data_root
    from sage.core.errors import FaultError

    try:
        root = data_root()
    except FaultError as error:
        return Check(what="data", state="broken", found=str(error), remedy="make setup")
    notes = len(list((root / "corpus").glob("*.md")))
    return Check(what="data", state="ok", found=f"{notes} literature notes, ontology")


def _reasoner(settings: Settings, *, probe: bool) -> Check:
    kind = settings.effective_reasoner
    if kind == "rules":
        return Check(
            what="reasoner",
            state="ok",
            found="rules (no model)",
            remedy="for a model: set SAGE_BASE_URL and SAGE_API_KEY, or sage.toml",
        )
    where = settings.base_url or "OpenAI"
    if not probe:
        return Check(what="reasoner", state="ok", found=f"chat at {where} (not contacted; --probe)")
    from sage.core.http.client import BlockingClient, Limit, Policy, Request
    from sage.core.http.errors import ServiceError

    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    url = f"{(settings.base_url or 'https://api.openai.com/v1').rstrip('/')}/models"
    headers = {"Authorization": f"Bearer {key}"}
    with BlockingClient(None, Policy(attempts=1, deadline=10, attempt=10)) as client:
        try:
            client.fetch(Request("model server", Limit(1), url, secret_headers=headers), bytes)
        except ServiceError as error:
            return Check(
                what="reasoner",
                state="broken",
                found=f"chat at {where}: {error.reason}",
                remedy="check base_url and SAGE_API_KEY, or use --reasoner rules",
            )
    return Check(what="reasoner", state="ok", found=f"chat at {where} answers")


def _sandboxes() -> list[Check]:
    import sandbox

    return [
        Check(
            what=f"sandbox: {availability.name}",
            state="ok" if availability.ok else "missing",
            found=availability.detail,
            remedy=availability.remedy,
        )
        for availability in sandbox.availability()
    ]


def _gpu() -> Check:
    if shutil.which("nvidia-smi") is None:
        return Check(what="GPU", state="missing", found="none; tools run on the CPU")
    if importlib.util.find_spec("torch") is None:
        return Check(what="GPU", state="missing", found="a GPU, but no PyTorch: the extra models")
    import torch

    if not torch.cuda.is_available():
        return Check(
            what="GPU",
            state="missing",
            found="a GPU, but this PyTorch is a CPU build",
            remedy="install the CUDA build of torch",
        )
    return Check(what="GPU", state="ok", found=torch.cuda.get_device_name(0))


def _writable(settings: Settings) -> Check:
    free = shutil.disk_usage(settings.runs_dir if settings.runs_dir.exists() else ".").free
    gib = free / 2**30
    return Check(
        what="disk",
        state="ok" if gib > 1 else "broken",
        found=f"{gib:.0f} GiB free for {settings.runs_dir}",
        remedy="" if gib > 1 else "free some space or set runs_dir",
    )


def _ledger(settings: Settings) -> Check:
    from sage.core.errors import SageError
    from validation.ledger.ledger import Ledger
    from validation.ledger.store import open_store

    where = settings.ledger.shown
    if "://" not in where and not Path(where).exists():
        return Check(what="ledger", state="ok", found=f"{where} (made with the first contract)")
    try:
        store = open_store(settings.ledger.place)
        state, head = Ledger(None, store).state, store.head()
    except SageError as error:
        return Check(what="ledger", state="broken", found=str(error), remedy="set SAGE_LEDGER")
    return Check(
        what="ledger",
        state="ok" if state == "intact" else "broken",
        found=f"{where}: {head.seq if head else 0} rows, {state}",
        remedy="" if state == "intact" else "sage validate ledger verify",
    )
