"""`sage campaign`: rounds of runs that learn from each other, under one error rate."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sage.cli.advance import go_on
from sage.cli.ask import QuestionFile
from sage.cli.options import AsJson
from sage.core.errors import InputError
from sage.core.extras import need
from sage.core.printable import amount

if TYPE_CHECKING:
    from agents.question.types import Question
    from sage.run.campaign.rounds import CampaignFolder
    from sage.run.drive import Pause
    from sage.settings import Settings

SHARE = 0.5
"""Share of the patients that confirm, unless a second cohort does."""


def campaign(
    question: str = typer.Argument(..., metavar="QUESTION", help="The research question."),
    cohort: str = typer.Option(
        "demo", help='A cohort folder or built-in name; "demo" is the simulated cohort.'
    ),
    confirm: str | None = typer.Option(
        None, help="A second cohort that confirms; without one, patients are held back to do so."
    ),
    split: float | None = typer.Option(
        None, min=0.2, max=0.8, help="Which share is held back; default 0.5."
    ),
    rounds: int = typer.Option(6, min=1, max=200, help="Stop after so many rounds."),
    budget_usd: float | None = typer.Option(
        None, min=0, help="Stop at this cost of the model; needs prices in sage.toml."
    ),
    least_bits: float | None = typer.Option(
        None, min=0, max=1, help="Stop when no claim promises this much information; default 0.005."
    ),
    notebook: Path | None = typer.Option(
        None, help="A notebook that several campaigns share; default: one in the folder."
    ),
    kg: Path | None = typer.Option(
        None, help="A knowledge graph: GraphML, or a folder that `sage kg build` wrote."
    ),
    cohort_root: Path | None = typer.Option(
        None, help="Where the files of the cohort's cohort.toml lie, when not beside it."
    ),
    features: list[Path] | None = typer.Option(
        None, help="A table of what tools computed on the cohort's slides; may be repeated."
    ),
    reasoner: str | None = typer.Option(None, help="`rules` (no model) or `chat`."),
    hypotheses: int = typer.Option(1, min=1, max=10, help="How many hypotheses each round drafts."),
    auto_approve: bool = typer.Option(
        False, "--auto-approve", help="Pass the human review without a human; the report says so."
    ),
    seed: int = typer.Option(0, help="Seed of everything random, and of who is held back."),
    literature: str | None = typer.Option(None, help="`local` (no network) or `online`."),
    corpus: Path | None = typer.Option(
        None, help="Folder of literature notes for the debate's local index."
    ),
    as_of: int | None = typer.Option(None, help="Judge novelty as of this year."),
    sandbox: str | None = typer.Option(
        None, help="`auto`, `docker`, `bubblewrap` or `subprocess`."
    ),
    base_url: str | None = typer.Option(None, help="An OpenAI-compatible endpoint."),
    out: Path | None = typer.Option(None, help="Folder for the campaign; default runs/ID."),
    question_file: QuestionFile = None,
    yes: bool = typer.Option(
        False, "--yes", help="Take the question as it was read, also where diseases differ."
    ),
    as_json: AsJson = False,
) -> None:
    """Ask on in rounds: each sees what earlier ones found, and proposes what to test next.

    Claims are explored in one part of the patients and confirmed in the other, or in a second
    cohort. At most 5% of campaigns make a false claim, however many claims each asks. `sage resume`
    goes on after a kill; NOTEBOOK.html tells what was asked and what came of it.

    Example: sage campaign "Link tertiary lymphoid structures and genes in bladder cancer"
    --cohort demo --rounds 2 --auto-approve
    """
    from sage.core.hooks import ASKED, BEGAN, log_command
    from sage.run.begin import check_second
    from sage.run.campaign.rounds import LEAST_BITS, begin_campaign
    from sage.settings import load

    need("literature", "a campaign")
    said = {
        "reasoner": reasoner,
        "literature": literature,
        "sandbox": sandbox,
        "base_url": base_url,
    }
    settings = load(**said)
    check_second(None, confirm, split)
    log_command(settings, ASKED, command="campaign")
    request: dict[str, Any] = {
        "kg": _absolute(kg),
        "cohort": _stable(cohort),
        "cohort_root": _absolute(cohort_root),
        "features": [str(path.resolve()) for path in features or ()],
        "confirm": _stable(confirm) if confirm else None,
        "split": None if confirm else (split or SHARE),
        "hypotheses": hypotheses,
        "auto_approve": auto_approve,
        "seed": seed,
        "corpus": _absolute(corpus),
        "as_of": as_of,
        "question": _absolute(question_file),
        "yes": yes or as_json,
    }
    folder = begin_campaign(
        question,
        request,
        settings,
        rounds=rounds,
        said={name: value for name, value in said.items() if value is not None},
        budget_usd=budget_usd,
        least_bits=LEAST_BITS if least_bits is None else least_bits,
        notebook=notebook,
        out=out,
    )
    log_command(settings, BEGAN, folder.root.name, command="campaign")
    try:
        _conduct(folder, settings, as_json=as_json)
    except InputError:
        if not (folder.round(1).root / "manifest.json").exists():
            shutil.rmtree(folder.root)  # The question was refused: nothing began.
        raise


def _absolute(path: Path | None) -> str | None:
    return str(path.resolve()) if path else None


def _stable(cohort: str) -> str:
    path = Path(cohort)
    return str(path.resolve()) if path.exists() else cohort


def resume_campaign(folder: CampaignFolder, *, budget_usd: float | None, as_json: bool) -> None:
    """Go on with a campaign: with the round under way, or the next one."""
    from sage.settings import load

    plan = folder.plan()
    if budget_usd is not None:
        plan = folder.update(budget_usd=budget_usd)
    if plan.status == "finished" and budget_usd is None:
        _tell(folder, None, load(**plan.settings), as_json=as_json)
        return
    _conduct(folder, load(**plan.settings), as_json=as_json)


def show_campaign(folder: CampaignFolder, *, as_json: bool) -> None:
    """Print what was asked, how far it came, and what came of each claim."""
    from sage.cli.console import out
    from sage.settings import load

    plan = folder.plan()
    settings = load(**plan.settings)
    if not as_json:
        done = folder.notebook(settings).read().rounds.get(plan.id, 0)
        out.print(f"[bold]{plan.id}[/]  {plan.status}, {done} of {amount(plan.rounds, 'round')}")
        out.print(f"question: {plan.question}", markup=False)
        out.print(f"cohort: {plan.request['cohort']}", markup=False)
    _tell(folder, None, settings, as_json=as_json)


def _conduct(folder: CampaignFolder, settings: Settings, *, as_json: bool) -> None:
    from sage.cli.console import err
    from sage.run.campaign.rounds import conduct
    from sage.run.questions import lines

    def tell(text: str) -> None:
        if not as_json:
            err.print(text, markup=False, soft_wrap=True)

    def show(found: Question) -> None:
        for line in lines(found):
            tell(line)

    tell(f"campaign {folder.root.name}  ({settings.effective_reasoner} reasoner)")
    with folder.held():
        pause = conduct(folder, settings, partial(go_on, quiet=as_json), tell, show)
    _tell(folder, pause, settings, as_json=as_json)


def _tell(
    folder: CampaignFolder, pause: Pause | None, settings: Settings, *, as_json: bool
) -> None:
    from sage.cli.console import out, print_json
    from sage.run.campaign.notebook import CAME

    plan = folder.plan()
    notebook = folder.notebook(settings)
    pages = notebook.read()
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
            out.print(f"  {finding.kind}: {finding.why}", markup=False)
        out.print(f"  {CAME[finding.came]}{': ' if finding.explored else ''}{finding.explored}")
        if finding.confirmed:
            out.print(f"  confirming patients: {finding.confirmed}", markup=False)
        out.print(f"  verdict: {finding.badge or finding.reason}", markup=False, style="bold")
    if any(campaign.simulated for campaign in pages.campaigns if campaign.id == plan.id):
        out.print("\n[yellow]Simulated cohort: a demonstration, not evidence about patients.[/]")
    if pause is not None:
        verb = "review" if pause.kind == "review" else "resume"
        text = f"\nwaits for you: sage {verb} {waiting}\nthen: sage resume {folder.root}"
        out.print(text, markup=False, soft_wrap=True)  # to be copied whole
    elif plan.stopped:
        out.print(f"\nstopped: {plan.stopped}", markup=False)
    else:
        out.print(f"\ngo on with: sage resume {folder.root}", markup=False, soft_wrap=True)
    out.print(f"notebook: {page}", soft_wrap=True)
