"""The web server, which listens and serves the pages until interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mcp_servers.servers.serve import listen, serve_app
from sage.web.app import create_app

if TYPE_CHECKING:
    from mcp_servers.servers.options import HttpOptions
    from sage.web.site import Site


def run_server(site: Site, options: HttpOptions, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `started` is called with the address that contains the token.

    Raises
    ------
    InputError
        If the address cannot be bound, or the certificate cannot be used.
    """
    bound = listen(options)
    options = replace(options, port=bound.getsockname()[1])
    app = create_app(site, options, bound)
    serve_app(app, bound, options, lambda address: started(f"{address}/?token={options.token}"))
