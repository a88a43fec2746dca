"""`sage audit`: who asked, edited, approved and exported, on servers and from the command line."""

from __future__ import annotations

import typer

from sage.cli.options import AsJson
from sage.core.errors import FaultError


def audit(
    who: str | None = typer.Option(None, help="Only what this person did."),
    limit: int = typer.Option(50, min=1, help="How many rows, the latest ones."),
    as_json: AsJson = False,
) -> None:
    """Show who did what on servers and by commands, and whether the log is whole.

    Rows are hashed together with the ones before them: exit code 1 where one was edited or removed.

    Example: sage audit --who ann
    """
    from sage.cli.console import out, print_json
    from sage.control.audit import open_audit
    from sage.core.printable import one_line
    from sage.settings import load

    with open_audit(load()) as log:
        kept = log is not None
        rows, problem = (log.rows(), log.problem()) if log is not None else ([], "")
    shown = [row for row in rows if who in (None, row.who)][-limit:]
    if as_json:
        print_json({"problem": problem, "rows": [row.model_dump(mode="json") for row in shown]})
    else:
        for row in shown:
            said = ", ".join(f"{name} {value}" for name, value in row.detail.items())
            line = f"{row.at}  {row.who}  {row.what}  {row.about}  {said}"
            out.print(one_line(line), markup=False, soft_wrap=True)
        if not shown and kept:
            out.print("nothing is logged yet" if who is None else f"nothing of {who} is logged",
                      markup=False)  # fmt: skip
        elif not shown:
            out.print(
                "nothing is logged: the log is kept where `sage serve --trust-header` names people,"
                " or checkpoint_url names a database"
            )
    if problem:
        raise FaultError(f"{problem}; restore it from a backup")
