"""`sage tools serve`: serve the tools to any agent that speaks the Model Context Protocol."""

from __future__ import annotations

import stat
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sage.cli.options import (
    AllowedHost,
    Cache,
    Memory,
    RolesFile,
    TlsCert,
    TlsKey,
    TokenFile,
    ToolFolders,
    TrustHeader,
    TrustProxy,
    Workers,
)


def serve(
    suite: Annotated[str, typer.Argument(help="Suite, as in `sage tools list`.")] = "all",
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="Transport: stdio or http")
    ] = "stdio",
    root: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that tools may read; repeatable. Default: the roots given by a client "
            "on stdio, or else the current folder"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The only folder to which tools may write")] = Path(
        "sage-output"
    ),
    workers: Workers = None,
    memory: Memory = None,
    tools: ToolFolders = None,
    host: Annotated[str, typer.Option(help="HTTP: address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP: port; 0 for any free port", min=0)] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SAGE_MCP_TOKEN",
            help="HTTP: bearer token, 16 characters or more. Prefer the environment variable or "
            "--token-file, because others can see command lines. Default: a new "
            "token, printed at startup",
        ),
    ] = None,
    token_file: TokenFile = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="HTTP: no token; only on loopback")
    ] = False,
    allowed_host: AllowedHost = None,
    trust_header: TrustHeader = "",
    trust_proxy: TrustProxy = None,
    roles: RolesFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    cache: Cache = None,
    wait: Annotated[
        float, typer.Option(help="Seconds after which a call returns a job handle", min=0.0)
    ] = 45.0,
    keep_days: Annotated[
        float | None,
        typer.Option(min=0.0, help="Remove call outputs after this many days; default: keep all"),
    ] = None,
    keep_mb: Annotated[
        float | None,
        typer.Option(min=0.0, help="Remove the oldest call outputs beyond this many megabytes"),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="List every tool with its schemas, instead of three tools that find, describe and "
            "call the others",
        ),
    ] = False,
) -> None:
    """Serve a suite of tools until the client disconnects (stdio) or Ctrl-C (HTTP).

    Example:

        sage tools serve pathology --root slides --out results

        sage tools serve all --root slides --full

        sage tools serve all --transport http --root . --token-file token.txt
    """
    import os

    from rich.console import Console

    from mcp_servers.roots import Roots
    from mcp_servers.servers.options import HttpOptions, Limits
    from mcp_servers.servers.prune import Bounds
    from mcp_servers.servers.serve import serve_http, serve_stdio
    from mcp_servers.servers.start import open_server
    from sage.cli.tools_support import sage_command, tool_folders
    from sage.core.errors import InputError
    from sage.core.hooks import require_hooks
    from sage.settings import load

    console = Console(stderr=True)
    people = trust_header or trust_proxy or roles
    if trust_header and transport != "http":
        raise InputError("--trust-header requires --transport http; stdio has no proxy")
    callers: AbstractContextManager[Any] = nullcontext()
    if people:
        hooks = require_hooks("--trust-header")
        callers = hooks.open_callers(load(), trust_header, trust_proxy or [], roles)
    roots = Roots.resolve(root or [Path.cwd()], out)
    http = None
    if transport == "http":
        secret, made = read_token(token, token_file, none=no_token)
        http = HttpOptions(
            host,
            port,
            secret,
            tuple(allowed_host or ()),
            certificate=str(tls_cert) if tls_cert else None,
            key=str(tls_key) if tls_key else None,
        )
        http.check()
        if made:
            console.print(f"bearer token: {secret}", highlight=False, soft_wrap=True)
    os.environ.pop("SAGE_MCP_TOKEN", None)  # workers do not need it
    with (
        callers as known,
        open_server(
            suite,
            roots,
            workers=workers,
            memory_mb=memory,
            tool_folders=tool_folders(tools),
            cache_folder=str(cache or roots.output / ".cache"),
            limits=Limits(
                wait=wait,
                task_after=min(wait, Limits.task_after),
                outputs=Bounds(keep_days, keep_mb),
            ),
            drive=known.drive(sage_command) if known is not None else sage_command,
            callers=known,
            full=full,
            ask_roots=not root and transport == "stdio",
            lasting=transport == "http",
        ) as server,
    ):
        if http is None:
            serve_stdio(server)
        else:
            serve_http(
                server,
                http,
                started=lambda url: console.print(
                    f"serving {suite} on {url}", highlight=False, soft_wrap=True
                ),
            )


MOUNTED = Path("/run")
"""Folders where container engines mount secrets.

Only the container can see the files there, whatever their mode.
"""


def read_token(token: str | None, file: Path | None, *, none: bool) -> tuple[str | None, bool]:
    """Return the token that clients must send, and whether it was generated here."""
    import secrets

    from sage.cli.console import print_line
    from sage.core.errors import InputError

    if none:
        if token or file:
            raise InputError("--token and --no-token cannot be combined")
        return None, False
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            mode = file.stat().st_mode
        except OSError as error:
            raise InputError(f'token file "{file}": {error.strerror}') from error
        if mode & (stat.S_IROTH | stat.S_IWOTH) and MOUNTED not in file.absolute().parents:
            warning = f'other users can read the token file "{file}": chmod 640 {file}'
            print_line(warning, style="yellow", err=True)
        if not lines or not lines[0].strip():
            raise InputError(f'token file "{file}" is empty; its first line must be the token')
        return lines[0].strip(), False
    if token:
        return token, False
    return secrets.token_urlsafe(32), True
