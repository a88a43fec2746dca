"""`sage doctor`: check libraries, model, sandbox, GPU and data, and show missing parts."""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from sage.cli.options import AsJson
from sage.core.extras import EXTRAS, absent, install

if TYPE_CHECKING:
    from sage.settings import Settings

PACKAGES = ("agents", "kg", "mcp_servers", "sage", "sandbox", "validation")


@dataclass(frozen=True)
class Check:
    """Result of a check; `missing` marks an absent optional part, `broken` an actual fault."""

    what: str
    state: Literal["ok", "missing", "broken"]
    found: str
    remedy: str = ""


def diagnose(settings: Settings, *, probe: bool = False) -> list[Check]:
    """Run all checks and return their results, most important first."""
    return [
        Check("Python", "ok", platform.python_version()),
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
            "libraries",
            "broken" if gone else "ok",
            f"missing: {', '.join(gone)}" if gone else "all required",
            "make setup" if gone else "",
        )
    ]
    for name, extra in EXTRAS.items():
        gone = absent(name)
        checks.append(
            Check(
                f"extra: {name}",
                "missing" if gone else "ok",
                f"absent: {', '.join(gone)}" if gone else "installed",
                f"{install(name)}: {extra.adds}" if gone else "",
            )
        )
    return checks


def _packages() -> Check:
    """Check that no other distribution has taken the import name of a SAGE package."""
    from importlib.metadata import packages_distributions

    own = Path(__file__).resolve().parents[2]
    owners = packages_distributions()
    taken = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list((spec.submodule_search_locations if spec else None) or ())
        if others := sorted(set(owners.get(name, ())) - {"sage-pathology"}):
            taken.append(f"{name} is also in the package {', '.join(others)}")
        elif own / name not in [Path(place).resolve() for place in places]:
            taken.append(f"{name} is imported from {places[0] if places else 'nowhere'}")
    return Check(
        "packages",
        "broken" if taken else "ok",
        "; ".join(taken) or "SAGE's own",
        "install SAGE in a separate environment, without the other package" if taken else "",
    )


def _data() -> Check:
    from sage.core.data import data_root
    from sage.core.errors import FaultError

    try:
        root = data_root()
    except FaultError as error:
        return Check("data", "broken", str(error), remedy="make setup")
    notes = len(list((root / "corpus").glob("*.md")))
    return Check("data", "ok", f"{notes} literature notes, ontology")


def _reasoner(settings: Settings, *, probe: bool) -> Check:
    kind = settings.effective_reasoner
    if kind == "rules":
        return Check(
            "reasoner",
            "ok",
            "rules (no model)",
            "to use a model, set SAGE_BASE_URL and SAGE_API_KEY, or sage.toml",
        )
    where = settings.endpoint.address
    if not probe:
        return Check("reasoner", "ok", f"chat: {settings.destination}; not contacted (--probe)")
    from sage.core.http.client import BlockingClient, Limit, Policy, Request
    from sage.core.http.errors import ServiceError

    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    url = f"{where}/models"
    headers = {"Authorization": f"Bearer {key}"}
    with BlockingClient(None, Policy(attempts=1, deadline=10, attempt=10)) as client:
        try:
            request = Request("model server", Limit(1), url, secret_headers=headers)
            contexts = read_contexts(client.fetch(request, bytes))
        except ServiceError as error:
            return Check(
                "reasoner",
                "broken",
                f"chat at {where}: {error.reason}",
                "check base_url and SAGE_API_KEY, or use --reasoner rules",
            )
    from sage.run.estimate import describe_misfits

    if misfits := describe_misfits(settings, contexts):
        return Check("reasoner", "missing", f"chat at {where} responds", "; ".join(misfits))
    return Check("reasoner", "ok", f"chat at {where} responds")


CONTEXTS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")
"""Fields in which servers (vLLM, OpenRouter, LM Studio, Groq, llama.cpp) report a context."""


def read_contexts(listing: bytes) -> dict[str, int]:
    """Read each model's context length from a server's model list, where it is stated."""
    try:
        models = json.loads(listing)["data"]
        stated = {model["id"]: model | (model.get("meta") or {}) for model in models}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return {
        name: fields[key]
        for name, fields in stated.items()
        for key in reversed(CONTEXTS)
        if isinstance(fields.get(key), int) and fields[key] > 0
    }


def _sandboxes() -> list[Check]:
    import sandbox

    return [
        Check(
            f"sandbox: {availability.name}",
            "ok" if availability.ok else "missing",
            availability.detail,
            availability.remedy,
        )
        for availability in sandbox.availability()
    ]


def _gpu() -> Check:
    if shutil.which("nvidia-smi") is None:
        return Check("GPU", "missing", "none; tools run on the CPU")
    if importlib.util.find_spec("torch") is None:
        return Check(
            "GPU", "missing", "a GPU, but PyTorch is not installed; install the models extra"
        )
    import torch

    if not torch.cuda.is_available():
        return Check(
            "GPU",
            "missing",
            "a GPU, but this PyTorch is a CPU build",
            "install the CUDA build of torch",
        )
    return Check("GPU", "ok", torch.cuda.get_device_name(0))


def _writable(settings: Settings) -> Check:
    free = shutil.disk_usage(settings.runs_dir if settings.runs_dir.exists() else ".").free
    gib = free / 2**30
    return Check(
        "disk",
        "ok" if gib > 1 else "broken",
        f"{gib:.0f} GiB free for {settings.runs_dir}",
        "" if gib > 1 else "free some space or set runs_dir",
    )


def _ledger(settings: Settings) -> Check:
    from sage.core.errors import SageError
    from validation.ledger.ledger import Ledger
    from validation.ledger.store import open_store

    where = settings.ledger.shown
    if "://" not in where and not Path(where).exists():
        return Check("ledger", "ok", f"{where} (created with the first contract)")
    try:
        store = open_store(settings.ledger.place)
        state, head = Ledger(None, store).state, store.head()
    except SageError as error:
        return Check("ledger", "broken", str(error), remedy="set SAGE_LEDGER")
    return Check(
        "ledger",
        "ok" if state == "intact" else "broken",
        f"{where}: {head.seq if head else 0} rows, {state}",
        "" if state == "intact" else "sage validate ledger verify",
    )


def doctor(
    probe: bool = typer.Option(
        False, "--probe", help="Also contact the configured model endpoint."
    ),
    as_json: AsJson = False,
) -> None:
    """Check the installation: libraries, model, sandbox, GPU, data, disk, ledger.

    Example: sage doctor
    """
    from sage.settings import load

    print_checks(diagnose(load(), probe=probe), as_json=as_json)


def print_checks(checks: list[Check], *, as_json: bool) -> None:
    """Print checks as a table or as JSON.

    Raises
    ------
    typer.Exit
        With code 1 if anything is broken.
    """
    from sage.cli.console import out, print_json

    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        from rich.table import Column, Table

        table = Table("", *(Column(name, overflow="fold") for name in ("what", "found", "to do")))
        marks = {"ok": "[green]ok[/]", "missing": "[yellow]–[/]", "broken": "[red]broken[/]"}
        for item in checks:
            table.add_row(marks[item.state], item.what, item.found, item.remedy)
        out.print(table)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)
