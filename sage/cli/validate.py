"""`sage validate`: take a hypothesis through contract, tests and controls to a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sage.cli import ledger
from sage.cli.gate import gate
from sage.cli.options import AsJson, CohortOption, CohortRoot, Features
from sage.core.errors import InputError

if TYPE_CHECKING:
    from sage.api import Claim
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import FrozenContract


class RunByDefault(TyperGroup):
    """A command group in which `sage validate FILE …` means `sage validate run FILE …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` as the command if no command is named and help is not requested."""
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    add_completion=False,
    name="validate",
    cls=RunByDefault,
    no_args_is_help=True,
    help="Test hypotheses on cohorts; gate measurements; ledger.",
)
app.command()(gate)
app.add_typer(ledger.app, name="ledger")

Seed = Annotated[int, typer.Option(help="Seed for permutations, random features and imputation.")]
Split = Annotated[
    float | None,
    typer.Option(min=0.2, max=0.8, help="Hold back this share of patients to confirm a discovery."),
]
Impute = Annotated[
    bool, typer.Option("--impute", help="Impute missing covariates (default: complete cases).")
]
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE.json...", help="Hypotheses, or frozen contracts."),
]
Alpha = Annotated[float, typer.Option(min=0.0001, max=0.2, help="Two-sided significance level.")]
Save = Annotated[Path | None, typer.Option("--out", help="Write the frozen contract to this file.")]
DRAFTED = {"seed": "--seed", "alpha": "--alpha", "split": "--split", "impute": "--impute"}
"""Options whose values are already fixed by a frozen contract."""


@app.command()
def run(
    context: typer.Context,
    files: Files,
    cohort: CohortOption,
    cohort_root: CohortRoot = None,
    features: Features = None,
    replicate: Annotated[
        str | None, typer.Option(help="Second cohort in which the claim must also be supported.")
    ] = None,
    replicate_root: Annotated[
        Path | None, typer.Option(help="--cohort-root for the second cohort.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("sage-validation"),
    seed: Seed = 0,
    alpha: Alpha = 0.05,
    split: Split = None,
    impute: Impute = False,
    figures: Annotated[
        bool, typer.Option(help="Draw figures, which takes about half of the run time.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Freeze a contract for each hypothesis, run its tests and controls, and judge it.

    If a file cannot be tested, its error is printed, the other files are still tested, and
    the exit code is 2. A file may be a frozen contract (`sage validate contract`, `sage
    validate amend`), which runs exactly as it was frozen, on the same data, or not at all.
    Error rates are controlled over all claims ever made on the same patients (`sage validate
    ledger show --cohort`), in any folder; repeating a contract counts as the same attempt.

    Example: sage validate run docs/hypotheses/table8_cxcl13.json --cohort cohorts/tcga-blca
    """
    from sage.api import Claim, test_claims
    from sage.cli.cohort import load_named
    from sage.cli.console import err, print_json, working
    from sage.cli.validate_text import print_verdict
    from sage.run.wiring import open_ledger
    from sage.settings import load
    from validation.run.prepare import require_variables

    rules = _rules(split, impute)
    read: list[tuple[Path, Claim]] = []
    claims: list[tuple[Claim, FrozenContract]] = []
    refused: list[str] = []
    for path in files:
        with _collect_error(path, refused):
            claim = Claim.load(path)
            _refuse_fixed(context, path, claim)
            read.append((path, claim))
    if not read:
        raise InputError("; ".join(refused))
    with working(f"reading {cohort}") as status:
        data = load_named(cohort, cohort_root, features)
        other = load_named(replicate, replicate_root) if replicate is not None else None
        for path, claim in read:
            with _collect_error(path, refused):
                frozen = claim.freeze(data, seed=seed, alpha=alpha, **rules)
                if other is not None:
                    require_variables(frozen, other)
                claims.append((claim, frozen))
        if not claims:
            raise InputError("; ".join(refused))
        names = [frozen.contract.name for _, frozen in claims]
        if len(set(names)) != len(names):
            raise InputError("two hypotheses have the same ID; use unique IDs")
        ledger = open_ledger(out / "ledger.jsonl", load())
        for note in ledger.notes:
            err.print(f"[yellow]warning[/] {note}", soft_wrap=True)
        results = test_claims(
            claims, data, out, ledger, replicate=other, figures=figures, progress=status.update
        )
    if as_json:
        print_json([result.model_dump(mode="json") for result in results])
    else:
        for (_, frozen), found in zip(claims, results, strict=True):
            print_verdict(frozen, found, out / frozen.contract.name)
    for text in refused:
        err.print(f"[red]error[/] {text}", soft_wrap=True)
    if refused:
        raise typer.Exit(2)


@contextmanager
def _collect_error(path: Path, refused: list[str]) -> Iterator[None]:
    """Collect the message of an `InputError`, with its file's name, instead of raising it."""
    try:
        yield
    except InputError as error:
        refused.append(str(error) if str(path) in str(error) else f"{path}: {error}")


def _refuse_fixed(context: typer.Context, path: Path, claim: Claim) -> None:
    """Refuse options whose values are already fixed by a frozen contract."""
    from validation.contracts.contract import FrozenContract

    sources = {name: context.get_parameter_source(name) for name in DRAFTED}
    given = [
        DRAFTED[name]
        for name, source in sources.items()
        if source is not None and source.name != "DEFAULT"
    ]
    if given and isinstance(claim.hypothesis, FrozenContract):
        raise InputError(
            f"{path} is a frozen contract, which already fixes {given[0]}: "
            "omit the option, or write a new version with `sage validate amend`"
        )


def _rules(split: float | None, impute: bool) -> dict[str, Any]:
    from validation.contracts.contract import MissingRule, SplitRule

    held_back = {} if split is None else {"policy": "discovery_confirmation", "confirmation": split}
    return {
        "split": SplitRule.model_validate(held_back),
        "missing": MissingRule(policy="multiple_imputation" if impute else "complete_case"),
    }


@app.command()
def contract(
    hypothesis: Annotated[Path, typer.Argument(metavar="HYPOTHESIS.json")],
    cohort: CohortOption,
    cohort_root: CohortRoot = None,
    features: Features = None,
    seed: Seed = 0,
    alpha: Alpha = 0.05,
    split: Split = None,
    impute: Impute = False,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Draft and freeze a contract without running it, so that it can be read before any outcome.

    With the same options, it equals the contract that `sage validate run` carries out.
    Written with --out, it can be run unchanged, registered elsewhere, or amended; without
    --out, it is only printed.

    Example: sage validate contract docs/hypotheses/e5_fabp5_tls.json --cohort cohorts/tcga-blca
    --out e5.json
    """
    from sage.api import Claim
    from sage.cli.cohort import load_named
    from sage.cli.console import working
    from validation.contracts.contract import read_hypothesis

    claim = Claim(read_hypothesis(hypothesis))
    with working(f"reading {cohort}"):
        data = load_named(cohort, cohort_root, features)
        frozen = claim.freeze(data, seed=seed, alpha=alpha, **_rules(split, impute))
        _register(frozen, data)
    _show(frozen, save, as_json)


@app.command()
def amend(
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT.json", help="Frozen contract.")],
    cohort: CohortOption,
    reason: Annotated[str, typer.Option(help="Reason for the change, shown in the report.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Field to change, e.g. hypothesis.covariates='[\"clinical:age\"]'; repeatable.",
        ),
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Complete new hypothesis, instead of --set.")
    ] = None,
    cohort_root: CohortRoot = None,
    features: Features = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Freeze the next version of a contract, with its parent, the reason and every change.

    A frozen contract is never edited. A version written after results of the earlier version
    were seen cannot be supported in the same patients; both count in the ledger. The seed and
    the fields of hypothesis, rules, missing, split, controls and specification can be set
    (`sage validate schema contract`).

    Example: sage validate amend e5.json --cohort cohorts/tcga-blca
    --reason "stage is recorded late" --set hypothesis.covariates='["clinical:age"]'
    --out e5.v2.json
    """
    from sage.cli.cohort import load_named
    from sage.cli.console import working
    from sage.cli.tools_support import json_or_text, split_setting
    from validation.contracts.contract import FrozenContract, read_hypothesis
    from validation.drafting.amending import amend as next_version

    pairs = [(name, json_or_text(value)) for name, value in map(split_setting, changes or ())]
    wanted: dict[str, Any] = dict(pairs)
    if len(wanted) != len(pairs):
        raise InputError("--set changes the same field twice")
    if hypothesis is not None:
        if any(name.startswith("hypothesis") for name in wanted):
            raise InputError("--hypothesis cannot be combined with --set for its fields")
        wanted["hypothesis"] = read_hypothesis(hypothesis).model_dump(mode="json")
    parent = FrozenContract.load(contract)
    with working(f"reading {cohort}"):
        data = load_named(cohort, cohort_root, features)
        frozen = next_version(parent, data, reason=reason, changes=wanted)
        _register(frozen, data)
    _show(frozen, save, as_json)


def _register(frozen: FrozenContract, data: Cohort) -> None:
    """Register a frozen contract in the ledger."""
    from sage.run.wiring import open_ledger
    from sage.settings import load

    open_ledger(None, load()).register(frozen, data)


def _show(frozen: FrozenContract, save: Path | None, as_json: bool) -> None:
    """Print a frozen contract, and write it to `save` if given."""
    from sage.cli.console import out, print_json, print_line
    from sage.cli.validate_text import contract_lines

    if save is not None:
        if save.is_dir():
            raise InputError(
                f"--out {save} is a folder; give a file name inside it, such as "
                f"{save / 'contract.json'}"
            )
        save.parent.mkdir(parents=True, exist_ok=True)
        frozen.save(save)
    if as_json:
        print_json(frozen)
        return
    for line in contract_lines(frozen):
        print_line(line)
    out.print(f"sha256 {frozen.sha256}")
    if save is not None:
        print_line(f"written to {save}")
    else:
        out.print("not written to a file; use --out to run or amend it later", soft_wrap=True)


@app.command()
def adjust(
    diagram: Annotated[
        Path,
        typer.Argument(metavar="DIAGRAM.txt", help='File with one arrow per line: "age -> stage".'),
    ],
    exposure: Annotated[list[str], typer.Option(help="Exposure; repeat for a joint exposure.")],
    outcome: Annotated[str, typer.Option(help="Outcome.")],
    measured: Annotated[
        list[str] | None, typer.Option(help="Measured variable; repeatable. Default: all.")
    ] = None,
    covariates: Annotated[
        list[str] | None,
        typer.Option(
            "--covariate", help="Covariate whose adjustment is to be assessed; repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive the adjustment set from a causal diagram; list mediators and colliders.

    A hypothesis may contain the same arrows as `causes`, which then determine the contract's
    covariates.

    Example: sage validate adjust diagram.txt --exposure CXCL13 --outcome OS --covariate stage
    """
    from sage.cli.console import print_json, print_line
    from validation.drafting.adjustment import adjust as reason

    try:
        text = diagram.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{diagram}: cannot be read ({error})") from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = reason(lines, exposure, outcome, measured=measured, chosen=covariates or ())
    if as_json:
        print_json(found)
        return
    for line in found.lines():
        print_line(line)


@app.command()
def schema(
    what: Annotated[
        str, typer.Argument(help="Schema: contract, hypothesis, results or cohort.")
    ] = ("contract"),
) -> None:
    """Print the JSON schema for a file format.

    Example: sage validate schema contract
    """
    from pydantic import BaseModel

    from sage.cli.console import print_json
    from validation.cohort.model import CohortSpec
    from validation.contracts.contract import Contract
    from validation.core.hypothesis import Hypothesis
    from validation.results.results import Results

    models: dict[str, type[BaseModel]] = {
        "contract": Contract,
        "hypothesis": Hypothesis,
        "results": Results,
        "cohort": CohortSpec,
    }
    if what not in models:
        raise InputError(f'unknown schema "{what}"; available: {", ".join(models)}')
    print_json(models[what].model_json_schema())


if __name__ == "__main__":
    app()
