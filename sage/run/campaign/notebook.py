"""Notebook of a campaign: every claim with its result and evidence, and the dead ends.

It is a JSON file, which several campaigns may share, and from which a Markdown and an
HTML page are written. The next round sees only the output of `history`, which covers only
the exploration patients. Hypothesis generation never sees the confirmation patients, so
every claim is confirmed in patients who played no part in its selection; the online error
control relies on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agents.campaign.moves import Came, Earlier, Kind, Move
from agents.core.types import EarlierClaim, EffectView, History
from sage.core.errors import InputError
from sage.core.files import lock_file, write_json
from sage.core.hooks import require_hooks
from sage.core.models import Strict, read_model
from validation.core.hypothesis import Hypothesis

if TYPE_CHECKING:
    from sage.settings import Settings

FORMAT = 1
CAME: dict[Came, str] = {
    "held": "supported in the exploring patients",
    "none": "no relevant association in the exploring patients",
    "other direction": "the other direction in the exploring patients",
    "unclear": "neither shown nor excluded in the exploring patients",
    "dead end": "not tested",
}


class Source(Strict):
    """A source that supports or contradicts the claim."""

    title: str
    year: int | None = None
    key: str
    against: bool = False


class Finding(Strict):
    """A claim made in a campaign.

    `came`, `effect` and `explored` describe the exploration patients. `confirmed` describes
    the confirmation patients: the text of the estimate, or None if their data were never
    opened. `place` and `level` are the claim's position and level in the online error
    control. `why` is the move's reason; `reason` is the verdict's, or explains why the claim
    is a dead end. `held_back` identifies the draw of the patients held back; it is empty if
    all patients were used for exploration. `stood_in` lists the steps of the round in which
    rules replaced the model.
    """

    campaign: str
    round: int
    id: str
    run: str
    cohort: str
    held_back: str = ""
    at: str
    kind: Kind = "move on"
    of: str = ""
    why: str = ""
    depth: int = 0
    statement: str
    hypothesis: Hypothesis | None = None
    came: Came
    explored: str = ""
    effect: EffectView | None = None
    confirmed: str | None = None
    place: int | None = None
    level: float | None = None
    verdict: str = ""
    because: str = ""
    badge: str = ""
    reason: str = ""
    novelty: float | None = None
    sources: tuple[Source, ...] = ()
    stood_in: tuple[str, ...] = ()
    usd: float = 0.0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the claim, unique across all campaigns that share the notebook."""
        return f"{self.campaign}/r{self.round}-{self.id}"


class Asked(Strict):
    """A campaign that writes to the notebook."""

    id: str
    question: str
    cohort: str
    simulated: bool
    created: str
    ended: str = ""


class Pages(Strict):
    """A notebook's content."""

    format: int = FORMAT
    campaigns: tuple[Asked, ...] = ()
    findings: tuple[Finding, ...] = ()
    rounds: dict[str, int] = Field(default_factory=dict)


class Notebook:
    """A notebook file, in which every change is made under a lock and written atomically.

    Parameters
    ----------
    path : the JSON file, which need not exist yet
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Pages:
        """Load the content; a missing file counts as an empty notebook.

        Raises
        ------
        InputError
            If the file is not a notebook, or was written by a newer version of SAGE.
        """
        if not self.path.exists():
            return Pages()
        try:
            found = read_model(self.path, Pages)
        except InputError as error:
            raise InputError(f"{error}, or choose another file with --notebook") from None
        if found.format > FORMAT:
            raise InputError(
                f"{self.path} was written by a newer SAGE version (format "
                f"{found.format}); upgrade SAGE"
            )
        return found

    @contextmanager
    def change_pages(self) -> Iterator[Pages]:
        """Lock the notebook and yield its content for changes."""
        with lock_file(self.path.with_name(f"{self.path.name}.lock")):
            yield self.load()

    def enter(self, asked: Asked) -> None:
        """Record the start or the end of a campaign."""
        with self.change_pages() as pages:
            known = {campaign.id: campaign for campaign in pages.campaigns} | {asked.id: asked}
            update = {"campaigns": tuple(known.values())}
            write_json(self.path, pages.model_copy(update=update))

    def add(self, campaign: str, number: int, findings: Iterable[Finding]) -> None:
        """Record a round's findings; a repeated call, as after a kill, changes nothing."""
        with self.change_pages() as pages:
            known = {finding.name for finding in pages.findings}
            new = tuple(finding for finding in findings if finding.name not in known)
            rounds = pages.rounds | {campaign: max(number, pages.rounds.get(campaign, 0))}
            update = {"findings": (*pages.findings, *new), "rounds": rounds}
            write_json(self.path, pages.model_copy(update=update))


def notebook_at(path: Path, settings: Settings) -> Notebook:
    """Open the notebook at `path` or in the configured database."""
    if settings.checkpoint_url is None:
        return Notebook(path)
    notebook: Notebook = require_hooks("checkpoint_url").open_notebook(path, settings)
    return notebook


def held_back(share: float | None, seed: int) -> str:
    """Name the random draw of patients that a campaign holds back; empty if none are held back."""
    return "" if share is None else f"{share:g} of the patients by their records, seed {seed}"


def earlier_claims(findings: Sequence[Finding]) -> tuple[Earlier, ...]:
    """Convert findings to the form used by the move policy, omitting rounds without drafts."""
    return tuple(
        Earlier(
            id=finding.name, hypothesis=finding.hypothesis, came=finding.came, depth=finding.depth
        )
        for finding in findings
        if finding.hypothesis is not None
    )


def history(
    findings: Sequence[Finding], moves: Sequence[Move], chosen: Sequence[Hypothesis]
) -> History:
    """Select the results shown to the next round's scientist, all from the exploration patients.

    Parameters
    ----------
    findings : earlier claims on the same patients, oldest first
    chosen : the claims that the rules would test next, which a model may treat as suggestions
    """
    suggests: dict[str, list[str]] = {}
    for move in moves:
        suggests.setdefault(move.of, []).append(f"{move.kind}: {move.hypothesis.statement}")
    return History(
        claims=tuple(
            EarlierClaim(
                statement=finding.statement,
                exposures=tuple(exposure.variable for exposure in finding.hypothesis.exposures),
                endpoint=finding.hypothesis.endpoint,
                verdict=CAME[finding.came],
                reason=finding.reason if finding.came == "dead end" else "",
                effect=finding.effect,
                suggests=" ".join(suggests.get(finding.name, [])[:1]),
            )
            for finding in findings
            if finding.hypothesis is not None
        ),
        next=tuple(chosen),
    )


def spent(findings: Iterable[Finding], campaign: str) -> float:
    """Sum the cost of a campaign's rounds so far, in USD."""
    return sum(finding.usd for finding in findings if finding.campaign == campaign)


def counts(findings: Sequence[Finding]) -> dict[str, Any]:
    """Count claims by result."""
    return {
        "claims": sum(finding.came != "dead end" for finding in findings),
        "held": sum(finding.came == "held" for finding in findings),
        "supported": sum(finding.verdict == "supported" for finding in findings),
        "dead_ends": sum(finding.came == "dead end" for finding in findings),
    }
