"""`sage bench`: calibration benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from benchmarks.cli.claims import claims, claims_score
from benchmarks.cli.slidequest import slidequest
from benchmarks.cli.slides import slides

if TYPE_CHECKING:
    from agents.core.base import Reasoner
    from benchmarks.adapters.novelty import Scored
    from kg.literature.local import LocalIndex
    from kg.literature.rank import Embed
    from kg.literature.search import Literature
    from sage.settings import Settings

app = typer.Typer(
    add_completion=False,
    help="Public benchmarks and SAGE's own calibration.",
    no_args_is_help=True,
)


app.command()(slides)
app.command()(slidequest)
app.command()(claims)
app.command()(claims_score)


@app.callback()
def bench() -> None:
    """Public benchmarks and SAGE's own calibration."""


@app.command()
def novelty(
    dataset: Path = typer.Argument(
        ..., help="Proposals (.jsonl), labeled ideas (.csv) or human reviews (.json)."
    ),
    literature: Path | None = typer.Option(
        None, help="Dated records for an offline index (.jsonl); default: the set that ships."
    ),
    reasoner: Literal["rules", "chat"] = typer.Option("rules", help="Who the critics are."),
    online: bool = typer.Option(False, help="Search the six literature services."),
    embed: bool = typer.Option(False, help="Rank by words and by embedding."),
    budget_usd: float | None = typer.Option(None, min=0, help="Stop a model at this cost."),
    limit: int | None = typer.Option(None, min=1, help="Only the first proposals."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Score known cases as of their date, in four configurations of the critics.

    Reports accuracy, the A-E gap, how often and how long was debated, retrieval and cost (SAGE,
    Tables 3 and 11).

    Example: sage bench novelty data/novelty/proposals.jsonl
    """
    from sage.core.errors import InputError

    kind = dataset.suffix.lower()
    if kind == ".jsonl":
        _proposals(dataset, literature, reasoner, online, embed, budget_usd, limit, as_json)
    elif kind == ".csv":
        _ideas(dataset, reasoner, budget_usd, limit, as_json)
    elif kind == ".json":
        _reviews(dataset, as_json)
    else:
        raise InputError(
            f"{dataset}: give proposals as .jsonl, labeled ideas as .csv, or reviews as .json"
        )


def _proposals(
    dataset: Path,
    literature: Path | None,
    kind: str,
    online: bool,
    embed: bool,
    budget_usd: float | None,
    limit: int | None,
    as_json: bool,
) -> None:
    from agents.novelty.debate import hold_debate, retriever
    from agents.novelty.settings import DebateSettings
    from benchmarks.adapters.novelty import as_expanded, local_retriever, scored, without_own
    from benchmarks.novelty_sets import read_literature, read_proposals
    from kg.literature.local import LocalIndex
    from sage.cli.console import counting
    from sage.core.data import data_root
    from sage.settings import load

    proposals = read_proposals(dataset)[:limit]
    settings = load()
    debate = DebateSettings(threshold=settings.novelty_threshold)
    critics = _reasoner(kind, settings, budget_usd)
    records = read_literature(literature or data_root() / "novelty" / "literature.jsonl")
    index = LocalIndex([*records, *LocalIndex.from_folder(data_root() / "corpus").records])
    encode = _embed(settings) if embed else None
    live = _online(settings, index, encode) if online else None
    if live is not None:
        # Here completeness counts, not time: wait for every source's next slot.
        debate = debate.model_copy(update={"patience_seconds": 10.0})
    rows = []
    with counting("proposals", quiet=as_json) as advance:
        for number, proposal in enumerate(proposals):
            advance("proposals", number, len(proposals))
            search = (
                retriever(live, debate, proposal.as_of)
                if live is not None
                else local_retriever(index, debate.records_per_critic, proposal.as_of, encode)
            )
            outcome = hold_debate(
                as_expanded(proposal.id, proposal.statement, proposal.parts),
                critics,
                without_own(search, proposal.own_title),
                debate,
                as_of=proposal.as_of,
            )
            rows.append(scored(proposal.id, proposal.tier, outcome))
        advance("proposals", len(proposals), len(proposals))
    if live is not None:
        live.close()
    source = "six services and the local index" if online else f"local index, {len(index)} records"
    _report(rows, critics.name, source, as_json)


def _ideas(
    dataset: Path, kind: str, budget_usd: float | None, limit: int | None, as_json: bool
) -> None:
    from agents.novelty.debate import hold_debate
    from agents.novelty.settings import DebateSettings
    from benchmarks.adapters.novelty import as_expanded, over, rank_correlation, separation
    from benchmarks.novelty_sets import read_ideas
    from sage.cli.console import counting, out, print_json
    from sage.settings import load

    ideas = read_ideas(dataset)[:limit]
    debate = DebateSettings()
    critics = _reasoner(kind, load(), budget_usd)
    scores = []
    with counting("ideas", quiet=as_json) as advance:
        for number, idea in enumerate(ideas):
            advance("ideas", number, len(ideas))
            found = over(idea.papers, debate.records_per_critic)
            expanded = as_expanded(idea.id, idea.statement, idea.parts)
            scores.append(hold_debate(expanded, critics, found, debate).score)
        advance("ideas", len(ideas), len(ideas))
    labels = [idea.label for idea in ideas]
    result = {
        "dataset": str(dataset),
        "reasoner": critics.name,
        "ideas": len(ideas),
        "novel": int(sum(labels)),
        "spearman": rank_correlation(labels, scores),
        "area_under_curve": separation(labels, scores),
        "scores": dict(zip((idea.id for idea in ideas), scores, strict=True)),
    }
    if as_json:
        print_json(result)
        return
    out.print(
        f"{len(ideas)} ideas, {result['novel']} labeled novel by experts, scored by"
        f" {critics.name}: Spearman {result['spearman']:.2f}, area under the curve"
        f" {result['area_under_curve']:.2f} (0.5 is chance)"
    )


def _reviews(dataset: Path, as_json: bool) -> None:
    from benchmarks.novelty_sets import reviewer_agreement
    from sage.cli.console import out, print_json

    result = reviewer_agreement(dataset)
    if as_json:
        print_json({"dataset": str(dataset), **result})
        return
    out.print(
        f"{result['reviews']:.0f} reviews; {result['ideas_with_two_or_more']:.0f} ideas with two"
        f" or more. Between two reviewers of one idea: correlation"
        f" {result['pearson_between_reviewers']:.2f}, mean absolute difference"
        f" {result['mean_absolute_difference']:.2f} of 10."
    )
    out.print(
        "The set holds no idea's text, so nothing can be scored on it; this is the agreement that"
        " any scorer of these ideas could hope for."
    )


def _report(rows: list[Scored], reasoner: str, source: str, as_json: bool) -> None:
    from benchmarks.adapters import novelty as c
    from sage.cli.console import out, print_json

    table = {
        name: {
            "accuracy": c.accuracy(rows, name),
            "gap": c.gap(rows, name),
            "spearman": c.tier_correlation(rows, name),
            "tiers": c.tier_means(rows, name),
        }
        for name in c.CONFIGURATIONS
    }
    tiers = c.tier_statistics(rows)
    if as_json:
        print_json(
            {
                "reasoner": reasoner,
                "literature": source,
                "configurations": table,
                "tiers": tiers,
                "proposals": [row.model_dump(mode="json") for row in rows],
            }
        )
        return
    from rich.table import Table

    first = Table("configuration", "accuracy", "A-E gap", "Spearman", *c.RANGES)
    for name, item in table.items():
        means: dict[Any, float] = item["tiers"]  # type: ignore[assignment]
        cells = [f"{means[tier]:.2f}" if tier in means else "-" for tier in c.RANGES]
        figures = (f"{item['accuracy']:.1%}", f"{item['gap']:.2f}", f"{item['spearman']:.2f}")
        first.add_row(name, *figures, *cells)
    out.print(first)
    second = Table(
        "tier", "n", "debated", "rounds", "retrieved", "cited", "contradictions", "s", "USD"
    )
    for tier, stats in tiers.items():
        second.add_row(
            tier,
            f"{stats['n']:.0f}",
            f"{stats['debated']:.0%}",
            f"{stats['rounds']:.2f}",
            f"{stats['retrieved']:.1f} ± {stats['retrieved_sd']:.1f}",
            f"{stats['cited']:.1f}",
            f"{stats['contradictions']:.1f} ± {stats['contradictions_sd']:.1f}",
            f"{stats['seconds']:.3f}",
            f"{stats['usd']:.4f}",
        )
    out.print(second)
    out.print(f"Critics: {reasoner}. Literature: {source}.")
    if reasoner == "rules":
        out.print("Rules count co-mentions and denials; they are a proxy, not a reader.")


def _reasoner(kind: str, settings: Settings, budget_usd: float | None) -> Reasoner:
    from agents.core.base import Resources
    from kg.lexicon.ontology import Ontology
    from sage.core.data import data_root

    if kind == "rules":
        from agents.core.rules import RulesReasoner

        return RulesReasoner(Resources(ontology=Ontology.load(data_root() / "ontology")))
    from sage.run.wiring import make_chat

    return make_chat(settings, settings.cache_dir.expanduser() / "bench", budget_usd=budget_usd)


def _embed(settings: Settings) -> Embed:
    from kg.literature.rank import cache_embedding
    from sage.run.wiring import make_embedder

    return cache_embedding(make_embedder(settings).embed)


def _online(settings: Settings, index: LocalIndex, embed: Embed | None) -> Literature:
    from kg.lexicon.ontology import Ontology
    from kg.literature.catalog import make_retraction_source, make_sources
    from kg.literature.expansion import make_expander
    from kg.literature.search import Literature
    from sage.core.data import data_root
    from sage.core.errors import InputError

    if not settings.contact_email:
        raise InputError("--online needs contact_email in sage.toml: the services ask for it")
    return Literature(
        make_sources(settings.services, settings.contact_email),
        settings.cache_dir.expanduser() / "literature",
        index,
        expand=make_expander(Ontology.load(data_root() / "ontology")),
        embed=embed,
        retractions=make_retraction_source(settings.services, settings.contact_email),
    )
