"""`sage runs` and `sage show`: what was run, and what came of it."""

from __future__ import annotations

import typer

from sage.cli.options import AsJson
from sage.cli.run import RunName, tell_verdict


def runs(
    limit: int = typer.Option(20, min=1, help="How many, newest first."),
    as_json: AsJson = False,
) -> None:
    """List the runs.

    Example: sage runs
    """
    from sage.console import out, print_json
    from sage.runfolder import list_runs
    from sage.settings import load

    settings = load()
    found = [(run, run.manifest()) for run in reversed(list_runs(settings.runs_dir))][:limit]
    if as_json:
        print_json([manifest.model_dump(mode="json") for _, manifest in found])
        return
    if not found:
        out.print(f'no runs in {settings.runs_dir}; start one with: sage run "PROMPT"')
        return
    from rich.table import Table

    table = Table("run", "status", "reasoner", "cohort", "prompt")
    for folder, manifest in found:
        cohort = manifest.cohort_title or manifest.cohort
        table.add_row(folder.id, manifest.status, manifest.reasoner, cohort, manifest.prompt[:60])
    out.print(table)


def show(name: str = RunName, as_json: AsJson = False) -> None:
    """Show a run or a campaign: status, time and cost per step, hypotheses, verdicts, files.

    The cost is what was paid: failed steps and replies that never came count as well.

    Example: sage show last
    """
    from sage.begin import open_run
    from sage.campaign.rounds import find_campaign
    from sage.console import out, print_json
    from sage.report.build import brief_result
    from sage.report.spending import paid
    from sage.settings import load

    if (campaign := find_campaign(name, load().runs_dir)) is not None:
        from sage.cli.campaign import show_campaign

        show_campaign(campaign, as_json=as_json)
        return
    folder = open_run(name)
    manifest = folder.manifest()
    result = brief_result(folder)
    rows = paid(folder)
    if as_json:
        print_json(
            {
                "manifest": manifest.model_dump(mode="json"),
                "result": result,
                "spending": [row.model_dump(mode="json") for row in rows],
            }
        )
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out.print(f"[bold]{folder.id}[/]  {manifest.status}")
    out.print(f"prompt: {manifest.prompt}")
    out.print(
        f"cohort: {manifest.cohort_title}{' (simulated)' if manifest.simulated else ''};"
        f" reasoner: {manifest.reasoner}"
    )
    if manifest.problem:
        out.print(f"[yellow]{manifest.problem}[/]")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", no_wrap=True)
    for heading in ("times", "seconds", "prompt", "reply", "USD"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        remarks = (
            (row.failed, "failed"),
            (row.unanswered, "without a whole reply"),
            (row.estimated, "estimated"),
        )
        table.add_row(
            f"{row.hypothesis} {row.step.replace('_', ' ')}".strip(),
            str(row.times),
            f"{row.seconds:.2f}",
            f"{row.prompt_tokens:,}",
            f"{row.completion_tokens:,}",
            f"{row.usd:.4f}",
            ", ".join(f"{count} {what}" for count, what in remarks if count),
        )
    if len(rows) > 1:
        table.add_section()
        table.add_row(
            "all",
            "",
            f"{sum(row.seconds for row in rows):.2f}",
            f"{sum(row.prompt_tokens for row in rows):,}",
            f"{sum(row.completion_tokens for row in rows):,}",
            f"{sum(row.usd for row in rows):.4f}",
        )
    out.print(table)
    out.print("prompt and reply: tokens", style="dim")
    for hypothesis in result["hypotheses"]:
        out.print(f"[bold]{hypothesis['id']}[/] {hypothesis['statement']}")
        tell_verdict(hypothesis)
    out.print(f"folder: {folder.root}", soft_wrap=True)
    if result["report"]:
        out.print(f"report: {result['report']}", soft_wrap=True)
