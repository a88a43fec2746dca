"""`sage serve`: serve web pages for asking questions, following runs and reviewing."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from sage.cli.options import (
    AllowedHost,
    GraphPath,
    RolesFile,
    TlsCert,
    TlsKey,
    TokenFile,
    TrustHeader,
    TrustProxy,
)
from sage.core.errors import InputError


def serve(
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8766, min=0, max=65535, help="Port; 0 for any free port."),
    root: list[Path] | None = typer.Option(
        None, help="Folder from which cohorts and slides may be shown; repeatable."
    ),
    kg: GraphPath = None,
    reviewers: int | None = typer.Option(
        None,
        min=1,
        max=5,
        help="Number of different people who must agree on a hypothesis; default: the `reviewers` "
        "setting, which also applies to commands and tools.",
    ),
    trust_header: TrustHeader = "",
    trust_proxy: TrustProxy = None,
    roles: RolesFile = None,
    token_file: TokenFile = None,
    allowed_host: AllowedHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    browser: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Serve the pages until Ctrl-C: ask a question, watch a run, review, read reports.

    Open the printed address: it contains the token, without which every request is refused.
    Runs are separate processes and continue when the server ends.

    Example: sage serve --port 8766 --root cohorts
    """
    from mcp_servers.servers.options import HttpOptions
    from sage.cli.console import print_line
    from sage.cli.mcp import read_token
    from sage.settings import load
    from sage.web.app import run_server
    from sage.web.people import open_people
    from sage.web.site import Site

    settings = load(reviewers=reviewers)
    os.environ["SAGE_REVIEWERS"] = str(settings.reviewers)  # for the commands that it starts
    people = open_people(settings, trust_header, trust_proxy or [], roles)
    folders = tuple(folder.resolve() for folder in root or ())
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--root {folder}: folder not found")
    token, made = read_token(None, token_file, none=False)
    options = HttpOptions(
        host,
        port,
        token,
        tuple(allowed_host or ()),
        certificate=str(tls_cert) if tls_cert else None,
        key=str(tls_key) if tls_key else None,
    )
    site = Site(settings, folders, kg.resolve() if kg else None, settings.reviewers, people)

    def announce(address: str) -> None:
        shown = address if made else f"{address.partition('=')[0]}= and the token of {token_file}"
        print_line(f"open {shown}", err=True)
        if browser:
            typer.launch(address)

    run_server(site, options, announce)
