"""The rounds of a campaign, each a run in its own folder that builds on earlier findings.

A campaign is a folder: `campaign.json` contains the question and the progress, `round-1`, `round-2`
… are ordinary runs, and `notebook.json` (or a file shared by several campaigns) contains their
findings. A campaign can be killed at any time: `sage resume` continues with the current round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agents.campaign.moves import (
    FRESH,
    Earlier,
    Move,
    Policy,
    exploring_power,
    information,
    next_moves,
)
from agents.question.types import Question
from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.llm.budget import BudgetError
from sage.core.models import Strict, read_model
from sage.run.campaign.notebook import (
    Asked,
    Finding,
    Notebook,
    earlier_claims,
    held_back,
    history,
    notebook_at,
    spent,
)
from sage.run.campaign.results import findings_of
from sage.run.folder import (
    RunFolder,
    list_folders,
    list_runs,
    match_name,
    new_id,
    take_lock,
)
from sage.run.spec import RunSpec

if TYPE_CHECKING:
    from sage.run.drive import Pause
    from sage.run.services import Services
    from sage.settings import Settings
    from validation.core.dictionary import DataDictionary
    from validation.core.hypothesis import Hypothesis

FORMAT = 2
FILE = "campaign.json"
LEAST_BITS = 0.005
"""Expected information in bits below which another round is not worthwhile."""
Status = Literal["running", "waiting", "finished"]


class Plan(Strict):
    """The campaign's spec and progress.

    `spec` is shared by all rounds; `settings` come from the command line. `widened` counts
    how often the scientist ran out of claims, each time making the next round read more
    paths.
    """

    format: int = FORMAT
    id: str
    spec: RunSpec
    created: str
    rounds: int = Field(ge=1)
    least_bits: float = LEAST_BITS
    notebook: str
    settings: dict[str, Any]
    status: Status = "running"
    stopped: str = ""
    widened: int = 0


class CampaignFolder:
    """Paths and plan of a campaign."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def plan(self) -> Plan:
        """Read the plan.

        Raises
        ------
        InputError
            If the plan cannot be read.
        """
        path = self.root / FILE
        found = read_model(path, Plan)
        if found.format != FORMAT:
            raise InputError(
                f"{path} has format {found.format}, but this version of SAGE reads {FORMAT}"
            )
        return found

    def save(self, plan: Plan) -> Plan:
        """Write the plan."""
        write_json(self.root / FILE, plan)
        return plan

    def update(self, **changes: Any) -> Plan:
        """Change fields of the plan."""
        return self.save(self.plan().model_copy(update=changes))

    def round(self, number: int) -> RunFolder:
        """Return the run folder of a round."""
        return RunFolder(self.root / f"round-{number}")

    def notebook(self, settings: Settings) -> Notebook:
        """Return the campaign's notebook, at the location given by the settings."""
        return notebook_at(Path(self.plan().notebook), settings)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the campaign for this process.

        Raises
        ------
        InputError
            If another process is working on the campaign.
        """
        with take_lock(self.root / "campaign.lock", f"campaign {self.root.name}"):
            yield


def runs_and_rounds(runs_dir: Path) -> list[RunFolder]:
    """List all runs in a folder, including rounds of its campaigns."""
    found = list_runs(runs_dir)
    for path in list_folders(runs_dir, FILE):
        found += list_runs(path)
    return found


def find_campaign(name: str, runs_dir: Path) -> CampaignFolder | None:
    """Find the campaign given by `name`, a path, an id or a unique prefix; None if not found.

    "last" means the newest run or campaign, so it matches a campaign only if that campaign is
    newer than all runs.
    """
    direct = Path(name)
    if (direct / FILE).is_file():
        return CampaignFolder(direct.resolve())
    campaigns = list_campaigns(runs_dir)
    found = match_name(name, campaigns)
    if name == "last":
        runs = [run.root for run in list_runs(runs_dir)]
        newest = max([*runs, *(campaign.root for campaign in campaigns)], default=None)
        found = [campaign for campaign in campaigns if campaign.root == newest]
    return found[0] if len(found) == 1 else None


def list_campaigns(runs_dir: Path) -> list[CampaignFolder]:
    """List the campaigns in a folder, oldest first."""
    return [CampaignFolder(path) for path in list_folders(runs_dir, FILE)]


def begin_campaign(
    spec: RunSpec,
    settings: Settings,
    *,
    rounds: int,
    overrides: dict[str, Any],
    least_bits: float = LEAST_BITS,
    notebook: Path | None = None,
    out: Path | None = None,
) -> CampaignFolder:
    """Create a campaign's folder without running anything.

    Parameters
    ----------
    spec : shared by all rounds; its budget covers the whole campaign
    notebook : a file shared by several campaigns; by default, one in the campaign's folder

    Raises
    ------
    InputError
        If the folder already exists, the notebook is not valid, or the question is empty.
    """
    spec = spec.resolve()
    root = (out or settings.runs_dir / f"{new_id(spec.prompt)}-campaign").resolve()
    if root.is_dir() and any(root.iterdir()):
        raise InputError(f"--out: {root} is not empty; choose another folder, or `sage resume` it")
    place = (notebook or root / "notebook.json").resolve()
    notebook_at(place, settings).load()
    root.mkdir(parents=True, exist_ok=True)
    folder = CampaignFolder(root)
    folder.save(
        Plan(
            id=root.name,
            spec=spec.model_copy(update={"campaign": root.name}),
            created=clock.stamp(),
            rounds=rounds,
            least_bits=least_bits,
            notebook=str(place),
            settings=overrides,
        )
    )
    return folder


def conduct(
    folder: CampaignFolder,
    settings: Settings,
    advance: Callable[[Services], Pause | None],
    report: Callable[[str], None],
    agree: Callable[[Question], None],
) -> Pause | None:
    """Run rounds until one pauses for a person (returned) or a rule ends the campaign (None).

    Parameters
    ----------
    advance : advances a round's run until it ends or has to wait
    report : called with a line of text at each step
    agree : called with the question's contract before the first round; raises `InputError` to
        stop
    """
    from sage.run.campaign.page import write_pages

    notebook = folder.notebook(settings)
    while True:
        plan = folder.plan()
        number = notebook.load().rounds.get(plan.id, 0) + 1
        found = _opening(folder, plan, number, settings, agree)
        if isinstance(found, str):
            folder.update(status="finished", stopped=found)
            notebook.enter(_describe_campaign(folder, found))
            write_pages(notebook)
            return None
        services, moves = found
        folder.update(status="running", stopped="")
        notebook.enter(_describe_campaign(folder, ""))
        aim = f"{moves[0].kind}: {moves[0].why}" if moves else "what the literature suggests"
        report(f"round {number} of {plan.rounds}: {aim}")
        try:
            finished = services.folder.manifest().status == "finished"
            pause = None if finished else advance(services)
        except BudgetError as error:
            folder.update(status="finished", stopped=f"budget: {error}")
            write_pages(notebook)
            raise
        except InputError as error:
            services.folder.update(status="failed", problem=str(error)[:1000])
            pause = None
        finally:
            services.folder.release()
        if pause is not None:
            folder.update(status="waiting")
            write_pages(notebook)
            return pause
        new = findings_of(plan.id, number, services, moves)
        notebook.add(plan.id, number, new)
        if all(finding.hypothesis is None for finding in new):
            folder.update(widened=plan.widened + 1)
        for finding in new:
            report(f"  {finding.id}: {finding.badge or finding.reason}")
        write_pages(notebook)


def _describe_campaign(folder: CampaignFolder, ended: str) -> Asked:
    plan = folder.plan()
    first = folder.round(1).root / "manifest.json"
    manifest = folder.round(1).manifest() if first.exists() else None
    return Asked(
        id=plan.id,
        question=plan.spec.prompt,
        cohort=(manifest.cohort_title or manifest.spec.cohort) if manifest else plan.spec.cohort,
        simulated=bool(manifest and manifest.simulated),
        created=plan.created,
        ended=ended,
    )


def _opening(
    folder: CampaignFolder,
    plan: Plan,
    number: int,
    settings: Settings,
    agree: Callable[[Question], None],
) -> tuple[Services, tuple[Move, ...]] | str:
    """Open the current round, or a new round with its moves; return the reason if there is none."""
    from sage.run.begin import begin, reopen
    from sage.run.questions import refuse
    from sage.run.spec import Corrections

    left, budget = None, plan.spec.budget_usd
    pages = folder.notebook(settings).load()
    if budget is not None:
        left = budget - spent(pages.findings, plan.id)
    run = folder.round(number)
    if (run.root / "manifest.json").is_file():
        services = reopen(str(run.root), budget_usd=left)
        mine = _same_patients(pages.findings, services.dictionary.cohort, plan)
        return services, _chosen(earlier_claims(mine), plan, services.dictionary)[0]
    if number > plan.rounds:
        return f"all {plan.rounds} rounds are done"
    if left is not None and left <= 0:
        return f"the budget of {budget:.2f} USD is spent"
    known = _dictionary(plan, settings)
    mine = _same_patients(pages.findings, known.cohort, plan)
    earlier = earlier_claims(mine)
    moves, why = _chosen(earlier, plan, known)
    if why:
        return why
    findings = history(mine, next_moves(earlier, known), [move.hypothesis for move in moves])
    spec = plan.spec.model_copy(update={"history": findings, "budget_usd": left})
    wide = settings.model_copy(update={"paths": min(50, settings.paths * (1 + plan.widened))})
    asked = folder.round(1).output("question_contract")
    if number > 1 and asked.exists():  # every round answers the agreed question
        corrections = Corrections(edited=read_model(asked, Question), yes=True)
        spec, agree = spec.model_copy(update={"corrections": corrections}), refuse
    return begin(spec, wide, out=run.root, agree=agree), moves


def _dictionary(plan: Plan, settings: Settings) -> DataDictionary:
    from sage.run.wiring import load_cohort

    spec = plan.spec
    return load_cohort(spec.cohort, settings, spec.cohort_root, spec.features).dictionary()


def _same_patients(findings: Sequence[Finding], cohort: str, plan: Plan) -> list[Finding]:
    """Select the findings on this cohort from all campaigns in the notebook.

    If patients are held back, only findings from campaigns that held back the same patients
    count. Otherwise claims could be selected by exploring the very patients meant to confirm
    them.
    """
    mine = held_back(plan.spec.split, plan.spec.seed)
    return [
        finding
        for finding in findings
        if finding.cohort == cohort and (not mine or finding.held_back == mine)
    ]


def _chosen(
    earlier: Sequence[Earlier], plan: Plan, known: DataDictionary
) -> tuple[tuple[Move, ...], str]:
    """Choose the next round's moves, none if the literature comes first, or a stop reason.

    The literature comes first as long as a new claim has higher expected information than the
    best move and the scientist has not run out of paths.
    """
    share = 1 - (plan.spec.split or 0.0)
    best = Policy((), known, share).rank(earlier)
    fresh = _fresh_bits(known, share) if plan.widened < 2 else 0.0
    if not best and plan.widened >= 2:
        return (), "nothing is left to test: no move, and no further claim on the paths"
    most = max(fresh, best[0][0] if best else 0.0)
    if most < plan.least_bits:
        return (), (
            f"expected information too low: {most:.4f} bits at best, but the campaign requires "
            f"{plan.least_bits:g} (--least-bits)"
        )
    if not best or best[0][0] < fresh:
        return (), ""
    wanted = plan.spec.hypotheses
    return tuple(move for bits, move in best[:wanted] if bits >= plan.least_bits), ""


def _fresh_bits(known: DataDictionary, share: float) -> float:
    """Compute the expected information from testing a literature claim with equal groups."""
    from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population

    variables = [
        *(f"expression:{gene}" for gene in known.expression[:1]),
        *(each.key for each in known.variables if each.kind == "continuous"),
    ]

    def claim(variable: str, endpoint: str) -> Hypothesis:
        return Hypothesis(
            id="fresh", statement="", population=Population(description=""),
            exposures=(Exposure(variable=variable, label=variable),),
            comparison=Comparison.EXPOSED_VS_REST, endpoint=endpoint,
            direction=Direction.HIGHER_RISK,
        )  # fmt: skip

    return max(
        (
            information(FRESH, exploring_power(claim(variable, endpoint.key), known, share))
            for variable in variables[:1]
            for endpoint in known.endpoints
        ),
        default=0.0,
    )
