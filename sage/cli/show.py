"""`sage show`: list runs and show their outcomes."""

from __future__ import annotations

import typer

from sage.cli.options import AsJson
from sage.cli.run import tell_answer


def list_all(limit: int, *, as_json: bool) -> None:
    """List runs, newest first."""
    from sage.cli.console import out, print_json, print_line
    from sage.core.errors import InputError
    from sage.run.folder import describe_status, list_runs
    from sage.settings import load

    settings = load()
    found = []
    for run in reversed(list_runs(settings.runs_dir)):
        try:
            found.append((run, run.manifest()))
        except InputError as error:  # the other runs are still listed
            print_line(f"left out: {error}", err=True)
        if len(found) == limit:
            break
    if as_json:
        print_json([manifest.model_dump(mode="json") for _, manifest in found])
        return
    if not found:
        out.print(f'no runs in {settings.runs_dir}; start one with: sage run "PROMPT"')
        return
    for folder, manifest in found:
        cohort = manifest.cohort_title or manifest.spec.cohort
        out.print(f"[cyan]{folder.id}[/]  {describe_status(folder)}", soft_wrap=True)
        print_line(f"    {manifest.spec.prompt[:200]}")
        out.print(f"    [dim]{cohort}; {manifest.reasoner}[/]", soft_wrap=True)


def show(
    name: str = typer.Argument(
        "",
        metavar="[RUN]",
        help='Run or campaign ID, a prefix of it, a path, or "last"; default: list the runs.',
    ),
    limit: int = typer.Option(20, min=1, help="Maximum number of runs to list, newest first."),
    watch: bool = typer.Option(
        False, "--watch", help="Follow the run until it ends or waits for you."
    ),
    browser: bool = typer.Option(
        False, "--open", help="Open the report in the browser; without a display, print its path."
    ),
    as_json: AsJson = False,
) -> None:
    """List the runs, or show a run: status, time and cost per step, hypotheses, verdicts, files.

    The cost is the amount paid, including failed steps and incomplete replies.

    Example:

        sage show

        sage show last

        sage show last --open
    """
    if watch:
        from sage.cli.watch import watch as follow

        follow(name or "last", as_json=as_json)
    elif browser:
        from sage.cli.watch import open_report

        open_report(name or "last", as_json=as_json)
    elif name:
        show_run(name, as_json=as_json)
    else:
        list_all(limit, as_json=as_json)


def show_run(name: str, *, as_json: bool) -> None:
    """Show a run or a campaign."""
    from agents.core.types import Draft
    from sage.cli.console import out, print_aligned, print_json, print_line
    from sage.cli.watch import NEXT
    from sage.core.files import read_json
    from sage.report.build import summarize_run
    from sage.report.spending import list_paid
    from sage.run.begin import open_run
    from sage.run.campaign.rounds import find_campaign
    from sage.run.folder import describe_status
    from sage.settings import load

    if (campaign := find_campaign(name, load().runs_dir)) is not None:
        from sage.cli.campaign import show_campaign

        show_campaign(campaign, as_json=as_json)
        return
    folder = open_run(name).verify_resting()
    manifest = folder.manifest()
    result = summarize_run(folder)
    rows = list_paid(folder)
    if as_json:
        print_json(
            {
                "manifest": manifest.model_dump(mode="json"),
                "result": result,
                "spending": [row.model_dump(mode="json") for row in rows],
            }
        )
        return
    out.print(f"[bold]{folder.id}[/]  {describe_status(folder)}", soft_wrap=True)
    out.print(f"prompt: {manifest.spec.prompt}", soft_wrap=True)
    out.print(
        f"cohort: {manifest.cohort_title}{' (simulated)' if manifest.simulated else ''};"
        f" reasoner: {manifest.reasoner}"
    )
    if manifest.problem:
        out.print(f"[yellow]{manifest.problem}[/]")
    table = [["step", "times", "seconds", "prompt", "reply", "USD"]]
    for row in rows:
        remarks = (
            (row.failed, "failed"),
            (row.unanswered, "without a complete reply"),
            (row.estimated, "estimated"),
        )
        said = ", ".join(f"{count} {what}" for count, what in remarks if count)
        cells = [
            f"{row.hypothesis} {row.step.replace('_', ' ')}".strip(),
            str(row.times),
            f"{row.seconds:.2f}",
            f"{row.prompt_tokens:,}",
            f"{row.completion_tokens:,}",
            f"{row.usd:.4f}",
        ]
        table.append([*cells, said] if said else cells)
    if len(rows) > 1:
        table.append(
            [
                "all",
                "",
                f"{sum(row.seconds for row in rows):.2f}",
                f"{sum(row.prompt_tokens for row in rows):,}",
                f"{sum(row.completion_tokens for row in rows):,}",
                f"{sum(row.usd for row in rows):.4f}",
            ]
        )
    print_aligned(table, right=frozenset(range(1, 6)))
    out.print("prompt and reply: tokens", style="dim")
    for hypothesis in result["hypotheses"]:
        tell_answer(hypothesis)
    if result["stood_in"]:
        print_line(f"the model failed; rules were used instead: {'; '.join(result['stood_in'])}")
    if not result["hypotheses"]:  # none is tested yet
        for path in sorted(folder.root.glob("outputs/draft-*.json")):
            draft = Draft.model_validate(read_json(path)).hypothesis
            print_line(f"{draft.id}  {draft.statement}")
    out.print(f"folder: {folder.root}", soft_wrap=True)
    if result["report"]:
        out.print(f"report: {result['report']}", soft_wrap=True)
    elif follow := NEXT.get(describe_status(folder)):
        out.print(f"next: {follow.format(run=folder.id)}", soft_wrap=True)
