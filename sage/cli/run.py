"""`sage run`, `review`, `resume`, `replay`: take a research question from prompt to report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sage.cli.advance import advance_run
from sage.cli.ask import ask_to_agree
from sage.cli.options import (
    Agreed,
    AsJson,
    AutoApprove,
    BudgetUsd,
    CohortName,
    GraphPath,
    Hypotheses,
    ReasonerName,
    Seed,
    SpecFile,
)
from sage.core.errors import InputError
from sage.core.extras import require_extra

if TYPE_CHECKING:
    from sage.run.drive import Pause
    from sage.run.services import Services
    from sage.settings import Settings

RunName = typer.Argument(..., metavar="RUN", help='Run ID, a prefix of it, a path, or "last".')


def run(
    prompt: str = typer.Argument("", metavar="QUESTION", help="The research question."),
    spec: SpecFile = None,
    cohort: CohortName = None,
    kg: GraphPath = None,
    replicate: str | None = typer.Option(None, help="A second cohort, for external validation."),
    confirm: str | None = typer.Option(
        None,
        metavar="SHARE|COHORT",
        help="Confirm claims in this share of patients (0.2 to 0.8), or in a second cohort.",
    ),
    hypotheses: Hypotheses = None,
    seed: Seed = None,
    budget_usd: BudgetUsd = None,
    reasoner: ReasonerName = None,
    auto_approve: AutoApprove = None,
    yes: Agreed = False,
    out: Path | None = typer.Option(None, help="Folder for the run; default: runs/ID."),
    queue: bool = typer.Option(
        False,
        "--queue",
        help="Check the question now, then queue the run for a worker.",
    ),
    estimate: bool = typer.Option(
        False, "--estimate", help="Print calls, tokens and cost per agent without running."
    ),
    as_json: AsJson = False,
) -> None:
    """Turn a research question into tested hypotheses and a report.

    More run options are available as settings, in the `run` table of sage.toml or as
    `SAGE_RUN__…`.

    Example: sage run "Link tertiary lymphoid structures and genes in bladder cancer"
    --cohort demo --auto-approve
    """
    from sage.cli.console import counting, err
    from sage.core.hooks import ASKED, BEGAN, log_command
    from sage.run.begin import begin
    from sage.run.spec import make_spec
    from sage.settings import load

    settings = load(reasoner=reasoner)
    asked = make_spec(
        settings, spec, prompt=prompt or None, cohort=cohort, kg=kg, replicate=replicate,
        confirm=confirm, hypotheses=hypotheses, seed=seed, budget_usd=budget_usd,
        auto_approve=auto_approve, yes=yes,
    )  # fmt: skip
    if estimate:
        _print_estimate(settings, asked.hypotheses, asked.budget_usd, as_json=as_json)
        return
    log_command(settings, ASKED)
    if settings.effective_reasoner == "chat":
        settings.require_model()
        err.print(settings.destination, style="dim", soft_wrap=True)
    with counting("graph", quiet=as_json) as progress:
        agree = ask_to_agree(yes=asked.corrections.yes, quiet=as_json)
        services = begin(asked, settings, out=out, progress=progress, agree=agree)
    log_command(settings, BEGAN, services.folder.id)
    if not as_json:
        err.print(f"run [bold]{services.folder.id}[/]  ({services.manifest.reasoner} reasoner)")
    if queue:
        _queue(services, as_json=as_json)
        return
    _go(services, as_json=as_json)


def _queue(services: Services, *, as_json: bool, answer: dict[str, Any] | None = None) -> None:
    """Queue a run for a worker, with a person's decision if the run was waiting for it."""
    from sage.cli.console import out
    from sage.core.hooks import require_hooks

    require_hooks("--queue").queue_run(services, answer)
    if as_json:
        _print_status(services, "queued")
        return
    out.print(f"queued for a worker; follow it with: sage show {services.folder.id} --watch")


def _print_status(services: Services, status: str, **more: Any) -> None:
    from sage.cli.console import print_json

    folder = services.folder
    print_json({"run": folder.id, "folder": str(folder.root), "status": status, **more})


def _print_estimate(
    settings: Settings, hypotheses: int, budget_usd: float | None, *, as_json: bool
) -> None:
    """Print a run's expected model usage, without calling models or creating a folder."""
    from sage.cli.console import out, print_json
    from sage.run.estimate import describe_misfits, estimate

    found = estimate(settings, hypotheses)
    if as_json:
        print_json(found)
        return
    if found.reasoner == "rules":
        out.print("The rules reasoner calls no model: no tokens, no cost.")
        return
    rows, usd, usd_most = found.agents, found.usd, found.usd_most
    from rich.table import Table

    def span(usual: float | None, most: float | None, form: str) -> str:
        if usual is None or most is None:
            return "no price set"
        return format(usual, form) if usual == most else f"{usual:{form}} to {most:{form}}"

    table = Table("agent", "model", "calls", "prompt tokens", "reply tokens", "USD")
    for row in rows:
        table.add_row(
            row.agent,
            row.model,
            span(row.calls, row.calls_most, ","),
            span(row.prompt_tokens, row.prompt_tokens_most, ","),
            span(row.completion_tokens, row.completion_tokens_most, ","),
            span(row.usd, row.usd_most, ".4f"),
        )
    table.add_section()
    totals = {
        name: (
            sum(getattr(row, name) for row in rows),
            sum(getattr(row, f"{name}_most") for row in rows),
        )
        for name in ("calls", "prompt_tokens", "completion_tokens")
    }
    table.add_row(
        "all", "", *(span(*pair, ",") for pair in totals.values()), span(usd, usd_most, ".4f")
    )
    out.print(table)
    out.print(
        "The low estimate is from the bundled recorded run; the high estimate includes every "
        "round and revision that the settings allow. A rejected reply may be retried up to "
        f"{settings.repairs} times; reasoning tokens are extra."
    )
    short = [row.agent for row in rows if row.fits == "shortened"]
    if short:
        out.print(f"Prompts shortened to the model's context, item by item: {', '.join(short)}.")
    for misfit in describe_misfits(settings):
        out.print(f"[yellow]{misfit}.[/]")
    if budget_usd is not None and usd is not None and usd > budget_usd:
        out.print(f"[yellow]A budget of {budget_usd:.2f} USD is probably too small.[/]")


def resume(
    name: str = RunName,
    retry: bool = typer.Option(
        False, "--retry", help="Escalated analysis: run the code in the run folder."
    ),
    abandon: bool = typer.Option(
        False, "--abandon", help="Escalated analysis: abandon it and note this in the report."
    ),
    budget_usd: float | None = typer.Option(
        None, min=0, help="New maximum cost of the model, in USD."
    ),
    as_json: AsJson = False,
) -> None:
    """Continue a run or campaign after an interruption, a kill, a fault or an escalation.

    Finished steps do not run again, and no model reply is paid for twice.

    Example: sage resume last
    """
    from sage.cli.console import err
    from sage.run.begin import reopen
    from sage.run.campaign.rounds import find_campaign
    from sage.run.drive import escalation_answer, escalation_detail, find_pause
    from sage.settings import load

    if retry and abandon:
        raise InputError("--retry and --abandon cannot be combined")
    campaign = find_campaign(name, load().runs_dir)
    if campaign is not None:
        if retry or abandon:
            raise InputError(f"give the round's run, not the campaign: {campaign.root}/round-N")
        from sage.cli.campaign import resume_campaign

        resume_campaign(campaign, budget_usd=budget_usd, as_json=as_json)
        return
    services = reopen(name, budget_usd=budget_usd)
    pause = find_pause(services)
    if services.manifest.reasoner == "chat":
        err.print(services.settings.destination, style="dim", soft_wrap=True)
    if pause and pause.kind == "escalation":
        if not (retry or abandon):
            detail = escalation_detail(services.folder, pause.waiting)
            raise InputError(
                f"an analysis was escalated to you. {detail} Then run `sage resume --retry "
                f"{services.folder.id}`, or give up on the analysis with --abandon"
            )
        services.folder.record.accept_mended()
        answer = escalation_answer(pause, "retry" if retry else "abandon")
        _go(services, as_json=as_json, answer=answer)
        return
    if retry or abandon:
        raise InputError("no analysis in this run has been escalated; omit --retry and --abandon")
    if pause and not services.spec.auto_approve:
        _tell_review(services, pause, as_json=as_json)
        return
    _go(services, as_json=as_json)


def review(
    name: str = RunName,
    hypothesis: str | None = typer.Option(
        None, help="Hypothesis to decide on; default: each in turn."
    ),
    approve: bool = typer.Option(False, "--approve", help="Approve it unchanged."),
    reject: str | None = typer.Option(None, metavar="REASON", help="Reject it, with a reason."),
    edit: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="JSON file with the changed fields of the hypothesis. The statement is generated "
        "from them; an edited statement is rejected.",
    ),
    yes: bool = typer.Option(False, "--yes", help="Apply an edit without confirmation."),
    another: str | None = typer.Option(
        None,
        metavar="WISH",
        help="Reject it and request another hypothesis, as described in your wish.",
    ),
    decisions_file: Path | None = typer.Option(
        None,
        "--decisions",
        metavar="FILE",
        help="JSON file with a decision for each hypothesis, in the format of LangGraph's "
        'inboxes: {"h1": {"type": "accept"}}; type is accept, edit, response (another, with a '
        "wish) or ignore (reject, with the reason).",
    ),
    queue: bool = typer.Option(
        False, "--queue", help="Leave the steps after the review to a worker."
    ),
    as_json: AsJson = False,
) -> None:
    """Review a run's hypotheses: approve, edit, reject, or ask for another.

    Without a decision on the command line, you are asked about each hypothesis. An edit opens the
    fields in your editor and shows the new statement, the groups and the detectable effect, without
    any outcome. If standard input is not a terminal, answers are read from it line by line.

    Example: sage review last --approve
    """
    from sage.cli.review_form import decide
    from sage.core.hooks import DECIDED, log_command
    from sage.run.begin import reopen
    from sage.run.drive import find_pause, review_answer
    from sage.run.review import decisions_from, drafts_of, given_decision

    services = reopen(name)
    pause = find_pause(services)
    if pause is None or pause.kind != "review":
        status = services.folder.manifest().status
        raise InputError(f"run {services.folder.id} is not waiting for a review (it is {status})")
    drafts = drafts_of(services, pause.waiting)
    if hypothesis is not None and hypothesis not in pause.waiting:
        raise InputError(
            f"hypothesis {hypothesis} is not waiting for review; waiting: "
            f"{', '.join(pause.waiting)}"
        )
    chosen = [draft for draft in drafts if hypothesis in (None, draft.hypothesis.id)]
    options: dict[Any, Any] = {"approve": approve, "reject": reject, "edit": edit,
                               "another": another, "decisions": decisions_file}  # fmt: skip
    given = [key for key, value in options.items() if value not in (None, False)]
    if len(given) > 1:
        raise InputError(
            f"only one decision is allowed, not {' and '.join('--' + item for item in given)}"
        )
    if given or not as_json:
        require_extra("literature", "continue a run")
    if decisions_file is not None:
        decisions = decisions_from(services, chosen, decisions_file)
    elif given:
        ask = sys.stdin.isatty() and not (yes or as_json)
        decisions = tuple(
            given_decision(services, draft, given[0], options[given[0]], ask=ask)
            for draft in chosen
        )
    elif as_json:
        _tell_review(services, pause, as_json=True)
        return
    else:
        decisions = tuple(decide(services, draft) for draft in chosen)
    for decision in decisions:
        log_command(
            services.settings, DECIDED[decision.action], services.folder.id,
            hypothesis=decision.hypothesis_id,
        )  # fmt: skip
    if queue:
        _queue(services, as_json=as_json, answer=review_answer(services, pause, decisions))
        return
    _go(services, as_json=as_json, answer=review_answer(services, pause, decisions))


def _go(services: Services, *, as_json: bool, answer: dict[str, Any] | None = None) -> None:
    pause = advance_run(services, quiet=as_json, answer=answer)
    if pause is None:
        _tell_end(services, as_json=as_json)
    elif pause.kind == "review":
        _tell_review(services, pause, as_json=as_json)
    else:
        _tell_escalation(services, pause, as_json=as_json)


def _tell_review(services: Services, pause: Pause, *, as_json: bool) -> None:
    from sage.cli.console import out, print_line
    from sage.run.questions import describe_carried
    from sage.run.review import drafts_of, show_draft

    drafts = drafts_of(services, pause.waiting)
    if as_json:
        waiting = [json.loads(draft.model_dump_json()) for draft in drafts]
        _print_status(services, "waiting for review", waiting=waiting)
        return
    for item in drafts:
        print_line(describe_carried(services.folder, item.hypothesis))
        show_draft(item, services.dictionary)
    tell_candidates(services)
    out.print(
        "\nWaiting for your review (--approve, --edit FILE, --reject REASON, --another WISH):\n"
        f"  [bold]sage review {services.folder.id}[/]",
        soft_wrap=True,
    )


def _tell_escalation(services: Services, pause: Pause, *, as_json: bool) -> None:
    from sage.cli.console import out
    from sage.run.drive import escalation_detail

    detail = escalation_detail(services.folder, pause.waiting)
    if as_json:
        _print_status(services, "escalated", hypotheses=list(pause.waiting), detail=detail)
        return
    out.print(
        f"[yellow]Escalated to you.[/] {detail}\nThen: sage resume {services.folder.id} --retry\n"
        f"or abandon the analysis: sage resume {services.folder.id} --abandon"
    )


SHOWN_CANDIDATES = 5


def tell_candidates(services: Services) -> None:
    """Print the ranking of the candidates, with the scores of the top few and the selected."""
    from sage.cli.console import out
    from sage.report.candidates import rankings

    for ranking in rankings(services.folder):
        out.print(
            f"\n{ranking.drafted} of {ranking.wanted} candidates drafted,"
            f" {len(ranking.set_aside)} set aside; those that answer the question first, then by"
            f" {ranking.order}:"
        )
        for item in ranking.ranked:
            if item.place > SHOWN_CANDIDATES and not item.hypothesis_id:
                continue
            parts = item.parts
            taken = f" [bold]{item.hypothesis_id}[/]" if item.hypothesis_id else ""
            rating = f"; Elo {item.rating:.0f}" if item.rating is not None else ""
            out.print(f"  {item.place}.{taken} {item.statement}")
            out.print(
                f"     [dim]information {parts.expected_information:.2f} = power {parts.power:.2f}"
                f" × plausible {parts.plausibility:.2f} × under-studied {parts.understudied:.2f}"
                f" × relevant {parts.relevance:.2f}{rating}[/]"
            )


def tell_answer(found: dict[str, Any]) -> None:
    """Print the answer to a hypothesis: verdict, sentence, and strongest counterevidence."""
    from sage.cli.console import print_line

    answer = found["answer"]
    print_line(f"\n{found['id']}  {answer['verdict_words']}", style="bold")
    print_line(f"  {answer['sentence']}")
    for text in found["against"][:2]:
        print_line(f"  Against: {text}")
    if len(found["against"]) > 2:
        print_line(f"  Against: {len(found['against']) - 2} more points in the report", style="dim")
    print_line(f"  {found['carries']} {found['novelty_words']} {found['review']}.", style="dim")


def _tell_end(services: Services, *, as_json: bool) -> None:
    from sage.cli.console import out, print_json
    from sage.report.build import summarize_run

    result = summarize_run(services.folder)
    if as_json:
        print_json(result)
        return
    for hypothesis in result["hypotheses"]:
        tell_answer(hypothesis)
    if result["simulated"]:
        out.print("\n[yellow]Simulated cohort: a demonstration, not evidence about patients.[/]")
    out.print(f"\nreport: {result['report']}", soft_wrap=True)
