"""`sage bench campaigns` and `sage bench planted`: how often campaigns err, and what they find."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from agents.scientist import ScientistInput
    from sage.core.models import Strict
    from sage.settings import Settings
    from validation.core.hypothesis import Hypothesis

Out = typer.Option(None, help="JSON lines, one per world; those that are there are not run again.")


def campaigns(
    runs: int = typer.Option(300, min=1, help="How many null worlds."),
    seed: int = typer.Option(700_000, min=0, help="Seed of the first; the next ones follow."),
    jobs: int = typer.Option(1, min=1, help="How many at once."),
    out: Path | None = Out,
    as_json: AsJson = False,
) -> None:
    """Campaigns of 60 claims where nothing is true: how many make a false claim?

    The claims are those of `sage campaign` with the rules, explored and confirmed in a simulated
    cohort of 400 whose biomarkers are related to no outcome; six seconds of processor time each.

    Example: sage bench campaigns --runs 2
    """
    from benchmarks.adapters.campaigns import Line, null_campaign, null_summary
    from sage.cli.console import out as console
    from sage.cli.console import print_json

    lines = _lines(null_campaign, Line, range(seed, seed + runs), jobs, out, quiet=as_json)
    found = null_summary(lines)
    if as_json:
        print_json(found)
        return
    console.print(
        f"{found['campaigns']} campaigns, {found['claims']:,} claims, {found['opened']:,} of them"
        " confirmed"
    )
    from rich.table import Table

    table = Table("a false claim, where", "campaigns", "share", "95% interval")
    for row in found["rates"]:
        interval = f"{row['lower']:.1%} to {row['upper']:.1%}"
        table.add_row(row["rule"], str(row["false"]), f"{row['rate']:.1%}", interval)
    console.print(table)


def planted(
    runs: int = typer.Option(50, min=1, help="How many worlds."),
    seed: int = typer.Option(900_000, min=0, help="Seed of the first; the next ones follow."),
    jobs: int = typer.Option(1, min=1, help="How many at once."),
    reasoner: Literal["rules", "chat"] = typer.Option(
        "rules", help="With `chat` the settings' model searches too."
    ),
    out: Path | None = Out,
    as_json: AsJson = False,
) -> None:
    """Worlds with one to five planted mechanisms: which does a campaign find in 60 claims?

    Beside it, claims at random under the same contracts, and a screen of every measured variable
    with the false discovery rate at 0.05. Half a minute of processor time per world. With
    `--reasoner chat` the scientist of a language model searches as well, 20 claims at a time.

    Example: sage bench planted --runs 1
    """
    from benchmarks.adapters.planted import Line, planted_summary, planted_world
    from sage.cli.console import out as console
    from sage.cli.console import print_json

    world: Callable[..., Any] = planted_world
    if reasoner == "chat":
        world = partial(planted_world, model=_model())
    lines = _lines(world, Line, range(seed, seed + runs), jobs, out, quiet=as_json)
    found = planted_summary(lines)
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    searchers = found["searchers"]
    table = Table("found of", "planted", *(row["searcher"] for row in searchers))
    for kind, counted in searchers[0]["kinds"].items():
        shares = [
            f"{row['kinds'][kind]['share']:.0%} ({row['kinds'][kind]['lower']:.0%} to"
            f" {row['kinds'][kind]['upper']:.0%})"
            for row in searchers
        ]
        table.add_row(kind, str(counted["planted"]), *shares)
    table.add_section()
    for name, form in (
        ("claims", "{:.0f}"), ("supported", "{}"), ("false", "{}"),
        ("worlds_with_false", "{:.0%}"), ("worlds_with_truth", "{:.0%}"),
        ("claims_to_first", "{}"), ("usd_to_first", "{}"),
    ):  # fmt: skip
        table.add_row(name.replace("_", " "), "", *(form.format(row[name]) for row in searchers))
    console.print(f"{found['worlds']} worlds")
    console.print(table)


def _model() -> tuple[Settings, ScientistInput]:
    from benchmarks.adapters.campaigns import QUESTION, briefed
    from sage.core.extras import need
    from sage.run.wiring import load_cohort
    from sage.settings import load

    need("models", "a search by a language model")
    settings = load(reasoner="chat")
    return settings, briefed(QUESTION, load_cohort("demo", settings).dictionary(), settings)


def _lines(
    run: Callable[[Path, int, Sequence[Hypothesis]], Any],
    model: type[Strict],
    seeds: range,
    jobs: int,
    out: Path | None,
    *,
    quiet: bool,
) -> list[Any]:
    """One line per seed: read where it is there, else run and written at once."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from benchmarks.adapters.campaigns import QUESTION, fresh_claims
    from sage.cli.console import counting
    from sage.core.files import append_line
    from sage.run.wiring import load_cohort
    from sage.settings import load

    known = {}
    if out is not None and out.exists():
        for text in out.read_text(encoding="utf-8").splitlines():
            line = model.model_validate(json.loads(text))
            known[line.seed] = line  # type: ignore[attr-defined]
    left = [seed for seed in seeds if seed not in known]
    with counting("worlds", quiet=quiet) as advance, tempfile.TemporaryDirectory() as folder:
        if left:
            settings = load()
            fresh = fresh_claims(QUESTION, load_cohort("demo", settings).dictionary(), settings)
            work = partial(_one_world, run, Path(folder), fresh)
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                for done in as_completed([pool.submit(work, seed) for seed in left]):
                    line = done.result()
                    known[line.seed] = line
                    if out is not None:
                        append_line(out, line.model_dump_json())
                    advance("worlds", len(known), len(seeds))
    return [known[seed] for seed in seeds]


def _one_world(
    run: Callable[[Path, int, Sequence[Hypothesis]], Any],
    folder: Path,
    fresh: Sequence[Hypothesis],
    seed: int,
) -> Any:
    return run(folder, seed, fresh)
