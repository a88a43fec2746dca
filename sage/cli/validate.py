"""`sage validate`: a hypothesis through contract, tests and controls to a verdict; screening."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer
from typer.core import TyperGroup

from sage.errors import InputError

if TYPE_CHECKING:
    from validation.contract import Contract, FrozenContract, MissingRule, SplitRule
    from validation.results import Results


class RunByDefault(TyperGroup):
    """`sage validate FILE …` means `sage validate run FILE …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` first when the first word is no command and no option."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="validate",
    cls=RunByDefault,
    no_args_is_help=True,
    help="Test a hypothesis on a cohort; screen features.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
CohortName = Annotated[str, typer.Option("--cohort", help="A cohort folder or built-in name.")]
Root = Annotated[
    Path | None, typer.Option(help="Where the cohort's files lie, if not beside cohort.toml.")
]
Features = Annotated[
    list[Path] | None,
    typer.Option("--features", help="A table that a tool computed on the slides; repeat."),
]
Seed = Annotated[int, typer.Option(help="Seed of permutations, random features, imputation.")]
Split = Annotated[
    float | None,
    typer.Option(min=0.2, max=0.8, help="Hold this share back to confirm a discovery."),
]
Impute = Annotated[
    bool, typer.Option("--impute", help="Impute missing covariates (default: complete cases).")
]
Files = Annotated[
    list[Path], typer.Argument(metavar="HYPOTHESIS.json...", help="One or more hypotheses.")
]
COLORS = {"supported": "green", "not_supported": "yellow", "inconclusive": "cyan"}
PREFIX = {"replication": "replicate.", "discovery": "discovery."}
MARKS = {"for": "+", "against": "-", "limits": "~", "prevents": "!"}


@app.command()
def run(
    hypotheses: Files,
    cohort: CohortName,
    root: Root = None,
    features: Features = None,
    replicate: Annotated[
        str | None, typer.Option(help="A second cohort on which the claim must hold as well.")
    ] = None,
    replicate_root: Annotated[Path | None, typer.Option(help="--root of the second one.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("validation"),
    seed: Seed = 0,
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.2)] = 0.05,
    split: Split = None,
    impute: Impute = False,
    as_json: AsJson = False,
) -> None:
    """Freeze a contract for each hypothesis, run its tests and controls, and judge.

    Several hypotheses share one ledger: error rates are controlled over all of them. A repeated
    call with the same --out goes on with its ledger.

    Example: sage validate run docs/hypotheses/table8_cxcl13.json --cohort cohorts/tcga-blca
    """
    from sage.cli.cohort import load_named
    from sage.console import err, print_json
    from validation.contract import draft, freeze, read_hypothesis
    from validation.ledger import Ledger
    from validation.runner import finalize
    from validation.runner import run as run_contract

    claims = [read_hypothesis(path) for path in hypotheses]
    if len({one.id for one in claims}) != len(claims):
        raise InputError("two hypotheses have the same id; give each its own")
    rules = _rules(split, impute)
    with err.status(f"reading {cohort}") as status:
        data = load_named(cohort, root, features)
        other = load_named(replicate, replicate_root) if replicate is not None else None
        dictionary = data.dictionary()
        frozen: list[tuple[FrozenContract, Path]] = []
        for claim in claims:
            status.update(f"{claim.id}: contract")
            plan = draft(claim, dictionary, seed=seed, alpha=alpha, **rules)
            frozen.append((freeze(plan, data), out / claim.id))
        ledger = Ledger(out / "ledger.jsonl")
        for contract, folder in frozen:
            name = contract.contract.hypothesis.id
            run_contract(
                contract,
                data,
                folder,
                ledger=ledger,
                replicate=other,
                progress=partial(_say, status, name),
            )
        results = finalize(frozen, ledger)
    if as_json:
        print_json([one.model_dump(mode="json") for one in results])
        return
    for (contract, folder), found in zip(frozen, results, strict=True):
        _print(contract, found, folder)


class Rules(TypedDict):
    """The parts of a contract that options decide."""

    split: SplitRule
    missing: MissingRule


def _rules(split: float | None, impute: bool) -> Rules:
    from validation.contract import MissingRule, SplitRule

    return {
        "split": SplitRule()
        if split is None
        else SplitRule(policy="discovery_confirmation", confirmation=split),
        "missing": MissingRule(policy="multiple_imputation" if impute else "complete_case"),
    }


def _say(status: Any, name: str, step: str) -> None:
    status.update(f"{name}: {step}")


def _print(frozen: FrozenContract, found: Results, folder: Path) -> None:
    from sage.console import out
    from validation.analysis import APPLIED

    contract = frozen.contract
    out.print(f"\n{contract.hypothesis.id}", markup=False, highlight=False, style="bold", end="")
    out.print(" [magenta]SIMULATED DATA[/]" if found.simulated else "")
    out.print(f"  {contract.hypothesis.statement}", markup=False, soft_wrap=True)
    out.print(
        f"  contract {frozen.sha256[:12]}, cohort {found.cohort}: {contract.exposed} against "
        f"{contract.reference}",
        markup=False,
        soft_wrap=True,
    )
    color = COLORS[found.verdict.verdict]
    words = found.verdict.verdict.replace("_", " ")
    out.print(f"  [{color}]{words}[/] ({found.verdict.because})")
    for reason in found.verdict.reasons:
        out.print(
            f"    {MARKS[reason.outcome]} {reason.rule}: {reason.text}",
            markup=False,
            soft_wrap=True,
        )
    for limit in found.verdict.limits:
        out.print(f"    limit: {limit}", markup=False, style="dim", soft_wrap=True)
    for test in found.tests:
        part = PREFIX.get(test.part, "") if test.part != found.tests[0].part else ""
        summary = found.numbers.get(f"{part}{test.id}.summary")
        number = found.numbers.get(f"{part}{test.id}.p")
        if test.status != "ok":
            out.print(f"    {test.id}: {test.status}: {test.reason}", markup=False, soft_wrap=True)
        elif summary is not None and number is not None and not test.id.startswith("control"):
            line = f"    {part}{test.id} ({test.endpoint}): {summary.text}, p = {number.text}"
            out.print(line, markup=False, soft_wrap=True)
        elif test.method in ("gray", "joint_groups") and number is not None:
            out.print(f"    {part}{test.id} ({test.endpoint}): p = {number.text}", markup=False)
        elif test.method == "calibration":
            slope, harrell = (
                found.numbers[f"{part}{test.id}.{name}"].text for name in ("slope", "harrell")
            )
            where = "corrected for optimism"
            if test.part in APPLIED:
                where = "the first model, nothing fitted here"
                low, high = (
                    found.numbers[f"{part}{test.id}.slope_{end}"].text for end in ("lower", "upper")
                )
                slope += f" (95% CI {low} to {high})"
            line = f"    {part}{test.id} ({test.endpoint}): slope {slope}, concordance {harrell}"
            out.print(f"{line} ({where})", markup=False, soft_wrap=True)
    out.print(f"  results in {folder}", markup=False, soft_wrap=True)


@app.command()
def contract(
    hypothesis: Annotated[Path, typer.Argument(metavar="HYPOTHESIS.json")],
    cohort: CohortName,
    root: Root = None,
    features: Features = None,
    seed: Seed = 0,
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.2)] = 0.05,
    split: Split = None,
    impute: Impute = False,
    as_json: AsJson = False,
) -> None:
    """Draft and freeze a contract without running it, to read before any outcome is.

    With the options of `sage validate run` it is the very contract that such a run carries out.

    Example: sage validate contract docs/hypotheses/e5_fabp5_tls.json --cohort cohorts/tcga-blca
    """
    from sage.cli.cohort import load_named
    from sage.console import err, out, print_json
    from validation.contract import draft, freeze, read_hypothesis

    claim = read_hypothesis(hypothesis)
    with err.status(f"reading {cohort}"):
        data = load_named(cohort, root, features)
        rules = _rules(split, impute)
        frozen = freeze(draft(claim, data.dictionary(), seed=seed, alpha=alpha, **rules), data)
    if as_json:
        print_json(frozen)
        return
    for line in _lines(frozen.contract):
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"sha256 {frozen.sha256}")


def _lines(plan: Contract) -> list[str]:
    power = plan.power
    lines = [
        f"population: {plan.population}"
        + "".join(f"; {one.variable} {one.op} {one.value}" for one in plan.filters),
        f"comparison: {plan.exposed} against {plan.reference} ({plan.comparison.value})",
    ]
    lines += [
        f"exposure: {one.key} [{one.unit or one.kind}], cut {one.cut.value if one.cut else 'none'}"
        for one in plan.exposures
    ]
    lines += [
        f"endpoints: {', '.join(one.key for one in plan.endpoints)}; expected: "
        f"{plan.direction.value.replace('_', ' ')}",
        f"primary test: {plan.primary_test.method} on {plan.primary_test.endpoint}, two-sided "
        f"alpha {plan.rules.alpha:g}",
        f"covariates: {', '.join(plan.covariates) or 'none'}; missing: {plan.missing.policy}",
        f"strata: {', '.join(plan.strata) or 'none'}",
        f"power: {power.n} patients, {power.events or 0:.0f} expected events; detectable at 80%: "
        f"{power.minimum_detectable or float('nan'):.2f} ({plan.scale}); events for "
        f"{plan.rules.relevant_ratio:g}: {power.required_events}",
        f"tests: {', '.join(one.id for one in plan.tests)}",
        f"split: {plan.split.policy}"
        + (f", {plan.split.confirmation:g} held back" if plan.split.policy != "none" else "")
        + f"; seed {plan.seed}",
    ]
    return [*lines, *(f"note: {one}" for one in plan.notes)]


@app.command()
def screen(
    cohort: CohortName,
    endpoint: Annotated[str, typer.Option(help="A survival endpoint of the cohort.")] = "OS",
    root: Root = None,
    features: Features = None,
    covariates: Annotated[
        list[str] | None, typer.Option("--covariate", help="Adjust for it; repeat for more.")
    ] = None,
    top: Annotated[int, typer.Option(min=1)] = 20,
    detected: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out genes detected in a smaller share.")
    ] = 0.2,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table and the volcano plot.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank all genes and continuous features by their Cox association with an endpoint.

    A screen finds candidates; it supports no claim. Test a candidate under a contract, on other
    patients.

    Example: sage validate screen --cohort cohorts/tcga-blca --endpoint OS --covariate clinical:age
    """
    from sage.cli.cohort import load_named
    from sage.console import err, print_json
    from sage.console import out as console
    from validation.screening import screen_cohort

    with err.status(f"reading {cohort}") as status:
        data = load_named(cohort, root, features)
        status.update(f"screening {data.id} for {endpoint}")
        found = screen_cohort(data, endpoint, tuple(covariates or ()), detected=detected, out=out)
    rows: list[dict[str, Any]] = found.rows(top)
    if as_json:
        print_json({**found.summary(), "top": rows})
        return
    summary = found.summary()
    console.print(
        f"{summary['features']} features, {summary['n']} patients, {summary['events']} events; "
        f"{summary['significant']} with q below 0.05; {summary['undetected']} genes left out; "
        f"{summary['seconds']:.1f} s"
    )
    for row in rows:
        console.print(
            f"  {row['feature']:<34} HR {row['hr']:.2f} per SD (95% CI {row['lower']:.2f} to "
            f"{row['upper']:.2f})  p {row['p']:.2g}  q {row['q']:.2g}",
            markup=False,
        )
    if out is not None:
        console.print(f"table and volcano plot in {out}")


@app.command()
def schema(
    what: Annotated[str, typer.Argument(help="contract, hypothesis, results or cohort.")] = (
        "contract"
    ),
) -> None:
    """Print a JSON schema.

    Example: sage validate schema contract
    """
    from pydantic import BaseModel

    from sage.console import print_json
    from validation.cohort.model import CohortSpec
    from validation.contract import Contract
    from validation.hypothesis import Hypothesis
    from validation.results import Results

    models: dict[str, type[BaseModel]] = {
        "contract": Contract,
        "hypothesis": Hypothesis,
        "results": Results,
        "cohort": CohortSpec,
    }
    if what not in models:
        raise InputError(f'schema "{what}": there are {", ".join(models)}')
    print_json(models[what].model_json_schema())


if __name__ == "__main__":
    app()
