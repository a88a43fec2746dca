"""`sage campaign`: rounds of runs that learn from each other, under a shared error rate."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sage.cli.advance import advance_run
from sage.cli.ask import ask_to_agree
from sage.cli.options import (
    Agreed,
    AsJson,
    AutoApprove,
    BudgetUsd,
    CohortName,
    GraphPath,
    Hypotheses,
    ReasonerName,
    Seed,
    SpecFile,
)
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from sage.run.campaign.rounds import CampaignFolder
    from sage.run.drive import Pause
    from sage.settings import Settings

SHARE = 0.5
"""Default fraction of patients held back for confirmation."""


def campaign(
    prompt: str = typer.Argument("", metavar="QUESTION", help="The research question."),
    spec: SpecFile = None,
    cohort: CohortName = None,
    kg: GraphPath = None,
    confirm: str | None = typer.Option(
        None,
        metavar="SHARE|COHORT",
        help="Confirm claims in this share of patients, or in a second cohort; default: 0.5.",
    ),
    rounds: int = typer.Option(6, min=1, max=200, help="Maximum number of rounds."),
    least_bits: float | None = typer.Option(
        None,
        min=0,
        max=1,
        help="Stop if no claim has at least this expected information, in bits; default: 0.005.",
    ),
    notebook: Path | None = typer.Option(
        None, help="Notebook shared by several campaigns; default: a new notebook in the folder."
    ),
    hypotheses: Hypotheses = None,
    seed: Seed = None,
    budget_usd: BudgetUsd = None,
    reasoner: ReasonerName = None,
    auto_approve: AutoApprove = None,
    yes: Agreed = False,
    out: Path | None = typer.Option(None, help="Folder for the campaign; default: runs/ID."),
    as_json: AsJson = False,
) -> None:
    """Test a question in rounds; each round learns from the findings of earlier rounds.

    Claims are explored in one part of the patients and confirmed in the other, or in a second
    cohort. At most 5% of campaigns make a false claim, regardless of how many claims each
    tests. `sage resume` continues an interrupted campaign; NOTEBOOK.html reports every claim
    and its result.

    Example: sage campaign "Link tertiary lymphoid structures and genes in bladder cancer"
    --cohort demo --rounds 2 --auto-approve
    """
    from sage.core.hooks import ASKED, BEGAN, log_command
    from sage.run.campaign.rounds import LEAST_BITS, begin_campaign
    from sage.run.spec import make_spec
    from sage.settings import load

    require_extra("literature", "a campaign")
    settings = load(reasoner=reasoner)
    asked = make_spec(
        settings, spec, prompt=prompt or None, cohort=cohort, kg=kg, confirm=confirm,
        hypotheses=hypotheses, seed=seed, budget_usd=budget_usd, auto_approve=auto_approve,
        yes=yes or as_json,
    )  # fmt: skip
    if asked.confirm is None:
        asked = asked.model_copy(update={"confirm": SHARE})
    log_command(settings, ASKED, command="campaign")
    folder = begin_campaign(
        asked,
        settings,
        rounds=rounds,
        overrides={"reasoner": reasoner} if reasoner else {},
        least_bits=LEAST_BITS if least_bits is None else least_bits,
        notebook=notebook,
        out=out,
    )
    log_command(settings, BEGAN, folder.root.name, command="campaign")
    try:
        _conduct(folder, settings, as_json=as_json)
    except InputError:
        if not (folder.round(1).root / "manifest.json").exists():
            shutil.rmtree(folder.root)  # the question was refused, so nothing started
        raise


def resume_campaign(folder: CampaignFolder, *, budget_usd: float | None, as_json: bool) -> None:
    """Continue a campaign with its current round, or with the next."""
    from sage.settings import load

    plan = folder.plan()
    if budget_usd is not None:
        plan = folder.update(spec=plan.spec.model_copy(update={"budget_usd": budget_usd}))
    if plan.status == "finished" and budget_usd is None:
        _tell(folder, None, load(**plan.settings), as_json=as_json)
        return
    _conduct(folder, load(**plan.settings), as_json=as_json)


def show_campaign(folder: CampaignFolder, *, as_json: bool) -> None:
    """Print a campaign's question, its progress, and the result of each claim."""
    from sage.cli.console import out, print_line
    from sage.settings import load

    plan = folder.plan()
    settings = load(**plan.settings)
    if not as_json:
        done = folder.notebook(settings).load().rounds.get(plan.id, 0)
        out.print(
            f"[bold]{plan.id}[/]  {plan.status}, {done} of {count_noun(plan.rounds, 'round')}"
        )
        print_line(f"question: {plan.spec.prompt}")
        print_line(f"cohort: {plan.spec.cohort}")
    _tell(folder, None, settings, as_json=as_json)


def _conduct(folder: CampaignFolder, settings: Settings, *, as_json: bool) -> None:
    from sage.cli.console import print_line
    from sage.run.campaign.rounds import conduct

    def report(text: str) -> None:
        if not as_json:
            print_line(text, err=True)

    report(f"campaign {folder.root.name}  ({settings.destination})")
    agree = ask_to_agree(yes=folder.plan().spec.corrections.yes, quiet=as_json)
    with folder.hold():
        pause = conduct(folder, settings, partial(advance_run, quiet=as_json), report, agree)
    _tell(folder, pause, settings, as_json=as_json)


def _tell(
    folder: CampaignFolder, pause: Pause | None, settings: Settings, *, as_json: bool
) -> None:
    from sage.cli.console import out, print_json, print_line
    from sage.run.campaign.notebook import CAME

    plan = folder.plan()
    notebook = folder.notebook(settings)
    pages = notebook.load()
    mine = [finding for finding in pages.findings if finding.campaign == plan.id]
    page = notebook.path.with_suffix(".html")
    waiting = f"{folder.root}/round-{pages.rounds.get(plan.id, 0) + 1}" if pause else None
    if as_json:
        print_json(
            {
                "campaign": plan.id,
                "folder": str(folder.root),
                "status": plan.status,
                "stopped": plan.stopped,
                "waiting": waiting,
                "findings": [finding.model_dump(mode="json") for finding in mine],
                "notebook": str(page),
            }
        )
        return
    for finding in mine:
        out.print(f"\n[bold]r{finding.round}-{finding.id}[/] {finding.statement}")
        if finding.why:
            print_line(f"  {finding.kind}: {finding.why}")
        out.print(f"  {CAME[finding.came]}{': ' if finding.explored else ''}{finding.explored}")
        if finding.confirmed:
            print_line(f"  confirming patients: {finding.confirmed}")
        print_line(f"  verdict: {finding.badge or finding.reason}", style="bold")
    if any(campaign.simulated for campaign in pages.campaigns if campaign.id == plan.id):
        out.print("\n[yellow]Simulated cohort: a demonstration, not evidence about patients.[/]")
    if pause is not None:
        verb = "review" if pause.kind == "review" else "resume"
        text = f"\nwaiting for you: sage {verb} {waiting}\nthen: sage resume {folder.root}"
        print_line(text)  # to be copied whole
    elif plan.stopped:
        print_line(f"\nstopped: {plan.stopped}")
    else:
        print_line(f"\ncontinue with: sage resume {folder.root}")
    out.print(f"notebook: {page}", soft_wrap=True)
