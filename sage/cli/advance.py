"""Takes a run to its end, or to where it waits for a person, and shows its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from sage.core.extras import need

if TYPE_CHECKING:
    from sage.machine.drive import Pause
    from sage.machine.services import Services


def go_on(services: Services, *, quiet: bool, answer: dict[str, Any] | None = None) -> Pause | None:
    """Advance the run; with auto-approval, through the review as well."""
    need("literature", "going on with a run")
    from sage.console import nodes
    from sage.machine.drive import advance, review_answer
    from sage.machine.state import Decision

    with nodes(quiet=quiet) as listen:
        services.listener = listen
        try:
            pause = advance(services, answer)
            while pause and pause.kind == "review" and services.manifest.auto_approve:
                decisions = tuple(
                    Decision(hypothesis_id=item, action="approve", automatic=True)
                    for item in pause.waiting
                )
                pause = advance(services, review_answer(pause, decisions))
        except KeyboardInterrupt:
            from sage.console import err

            err.print(
                "\nstopped; nothing finished is lost. Go on with: sage resume"
                f" {services.manifest.campaign or services.folder.id}"
            )
            raise typer.Exit(130) from None
    return pause
