"""`sage bench hypobench`: planted rules, found from rows alone."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from sage.cli.options import AsJson


def hypobench(
    benchmark: Path = typer.Argument(
        ..., help="Folder of settings: metadata.json beside *_train.json, *_val.json, *_test.json."
    ),
    permuted: int = typer.Option(
        0, min=0, help="Shuffle each setting's labels so often, and count what is claimed then."
    ),
    seed: int = typer.Option(0, help="Of the shuffles and of the tree."),
    as_json: AsJson = False,
) -> None:
    """Find HypoBench's planted rules: conditions and their interactions, confirmed on other rows.

    Training rows suggest a rule, validation rows confirm it and each of its conditions, test rows
    are opened once. A decision tree on the same rows stands beside.

    Example: sage bench hypobench hypobench/admission --permuted 20
    """
    from statistics import mean

    from benchmarks.adapters.hypobench import false_rules, read_settings, score_settings
    from sage.cli.console import out as console
    from sage.cli.console import print_json

    settings = read_settings(benchmark)
    scores = score_settings(settings, seed)
    claimed, shuffles = false_rules(settings, permuted, seed)
    means = {
        method: {
            name: mean(getattr(row, name) for row in scores if row.method == method)
            for name in ("recall", "precision", "accuracy", "planted")
        }
        for method in ("rules", "tree")
    }
    if as_json:
        print_json(
            {
                "cpu_seconds": round(sum(os.times()[:4]), 1),
                "settings": [row.model_dump() for row in scores],
                "mean": means,
                "shuffled": shuffles,
                "claimed_when_shuffled": claimed,
            }
        )
        return
    for row in scores:
        console.print(
            f"{row.setting:24} {row.method:5} columns named {row.recall:.3f} right"
            f" {row.precision:.3f}  test rows {row.accuracy:.3f} as planted {row.planted:.3f}",
            soft_wrap=True,
        )
        if row.method == "rules":
            for said in row.found:
                console.print(f"    {said}", markup=False, highlight=False, soft_wrap=True)
    for method, held in means.items():
        console.print(
            f"mean of {len(settings)}, {method:5}: columns named {held['recall']:.3f}, right"
            f" {held['precision']:.3f}, test rows {held['accuracy']:.3f}, as planted"
            f" {held['planted']:.3f}",
            soft_wrap=True,
        )
    if shuffles:
        console.print(f"shuffled labels: a rule was claimed in {claimed} of {shuffles}")
