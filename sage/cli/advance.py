"""Advancing a run until it ends or needs a person's decision, showing its steps."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import typer

from sage.core.extras import require_extra

if TYPE_CHECKING:
    from sage.run.drive import Pause
    from sage.run.services import Services


def advance_run(
    services: Services, *, quiet: bool, answer: dict[str, Any] | None = None
) -> Pause | None:
    """Advance the run, continuing through the review if it is auto-approved."""
    require_extra("literature", "continuing a run")
    from sage.cli.console import err, nodes
    from sage.core.errors import InputError, Paused, SageError
    from sage.core.hooks import current_owner
    from sage.core.plugins import load_first
    from sage.run.drive import advance_to_person

    hooks = load_first("sage.hooks")
    with nodes(quiet=quiet) as listen:
        services.listener = listen
        before = services.folder.manifest()
        try:
            with hooks.hold_run(services, current_owner()) if hooks else nullcontext():
                pause = advance_to_person(services, answer)
        except SageError as error:
            if services.folder.manifest().status == "running":  # no step was reached
                as_before = {"status": before.status, "problem": before.problem}
                failed = {"status": "failed", "problem": str(error)[:1000]}
                services.folder.update(**(as_before if isinstance(error, InputError) else failed))
            raise
        except (KeyboardInterrupt, Paused) as ended:
            how = "paused" if isinstance(ended, Paused) else "stopped"
            err.print(
                f"\n{how}; finished steps are kept. Continue with: sage resume"
                f" {services.manifest.campaign or services.folder.id}"
            )
            raise typer.Exit(130) from None
    return pause
