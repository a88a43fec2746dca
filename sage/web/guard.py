"""The server's guard, which checks Host and Origin, then the token, then the page's permissions.

Without the token nothing is served, not even static files. A browser receives the token
once, in the address that `sage serve` prints, and keeps a cookie that scripts cannot
read; a program sends it as a bearer token. Requests that make changes are never GET
requests, and they need a second value that only the server's own pages can read.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response

from mcp_servers.servers.gate import UNNAMED, Gate, pass_on
from mcp_servers.servers.health import METRICS, Watch
from sage.core.log import logger
from sage.web.people import (
    RULES,
    SAFE,
    People,
    Rule,
    describe_request,
    find_rule,
    required_role,
)

if TYPE_CHECKING:
    from mcp_servers.servers.listener import BoundedListener
    from mcp_servers.servers.options import HttpOptions

log = logger(__name__)

VIEWER_STYLE = "'sha256-9xTiqzfwFaL2SGb1rmr8gysEwVVjIvqWAgmZgqFqpEE='"
"""CSS rule that OpenSeadragon adds to remove its canvas's outline on touch screens."""
POLICY = (
    "default-src 'none'; script-src 'self' {imports}; style-src 'self' {viewer};"
    " img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'self'; object-src 'none'"
)
REFUSED = {
    401: "this page needs the token: open the address that `sage serve` printed",
    403: "the request did not come from a page of this server",
    413: "the request is larger than this server takes",
}


@dataclass(frozen=True)
class Secrets:
    """Values derived from the token: the session cookie and the value required for changes."""

    token: str

    def derive(self, purpose: str) -> str:
        """Derive a value that reveals nothing about the token."""
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    @property
    def session(self) -> str:
        """Value of the session cookie."""
        return self.derive("session")

    @property
    def csrf(self) -> str:
        """Value of the X-CSRF-Token header in requests that make changes."""
        return self.derive("csrf")


class Guard:
    """ASGI middleware that stops forbidden requests and adds the security policy to every response.

    Parameters
    ----------
    imports : CSP source for the page's import map, the only inline script that is allowed
    """

    def __init__(
        self,
        app: Any,
        options: HttpOptions,
        imports: str,
        people: People | None = None,
        listener: BoundedListener | None = None,
        watch: Watch | None = None,
        rules: tuple[Rule, ...] = (),
    ) -> None:
        assert options.token is not None
        self.app = app
        self.people = people or People()
        self.listener = listener
        self.watch = watch or Watch()
        self.rules = (*RULES, *rules)
        self.secrets = Secrets(options.token)
        # A proxy that identifies people uses TLS with them, even if not with this server.
        self.secure = options.certificate is not None or self.people.identified
        self.gate = Gate(None, replace(options, token=None))
        self.cookie = f"sage-{options.port}"
        self.policy = POLICY.format(imports=imports, viewer=VIEWER_STYLE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse a request, admit it by its token, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        if await self.watch.answer_health(scope, send):
            return
        send = self._with_policy(self.watch.count_answers(send), scope["path"])
        refused = self.gate.refusal(scope["headers"])
        if refused is not None:
            await _refuse(*refused)(scope, receive, send)
            return
        if (let_in := self._let_in(scope)) is not None:
            await let_in(scope, receive, send)
            return
        status = self._status(scope)
        if status is not None:
            await _refuse(status, REFUSED[status])(scope, receive, send)
            return
        scope["state"] = scope.get("state") or {}
        # Monitoring systems authenticate with the token, not through the proxy.
        watches = (
            scope["path"] == METRICS and self.people.identified and not self.people.named(scope)
        )
        if self.people.identified and not watches:
            reason = self._not_allowed(scope)
            if reason:
                await _refuse(403, reason)(scope, receive, send)
                return
        if await self.watch.answer_metrics(scope, send):
            return
        if not await self._keep(scope):
            await _refuse(503, "the audit log cannot be written; nothing was done")(
                scope, receive, send
            )
            return
        receive = self._bound_body(receive, scope["path"])
        if self.listener is None:
            await self.app(scope, receive, send)
        else:
            await pass_on(self.app, self.listener, scope, receive, send)

    def _let_in(self, scope: Any) -> Response | None:
        """Return a response that sets the cookie if the address has the correct token."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["method"] != "GET" or scope["path"] != "/" or len(given) != 1:
            return None
        if not hmac.compare_digest(given[0].encode(), self.secrets.token.encode()):
            return None
        admitted = RedirectResponse("/", 303)
        admitted.set_cookie(
            self.cookie, self.secrets.session, secure=self.secure, httponly=True, samesite="strict"
        )
        return admitted

    def _status(self, scope: Any) -> int | None:
        """Return the HTTP status with which a request is rejected; None if it is allowed."""
        headers = scope["headers"]
        bearer = self.gate.authorized(headers, self.secrets.token.encode())
        session = self._session(headers).encode()
        if not bearer and not hmac.compare_digest(session, self.secrets.session.encode()):
            return 401
        # A proxy that adds the token also adds it to requests forged by a foreign page.
        if scope["method"] not in SAFE and (self.people.identified or not bearer):
            csrf = _header(headers, b"x-csrf-token")
            site = _header(headers, b"sec-fetch-site")
            if not hmac.compare_digest(csrf.encode(), self.secrets.csrf.encode()):
                return 403
            if site not in ("", "same-origin"):
                return 403
        return self._size(scope)

    async def _keep(self, scope: Any) -> bool:
        """Log a request and its sender before it is handled; return False if logging fails."""
        request = describe_request(scope["method"], scope["path"], self.rules)
        if request is None:
            return True
        import anyio

        who = scope["state"].get("person", "") or "who holds the token"
        try:
            entry = await anyio.to_thread.run_sync(self.people.log, who, *request)
        except Exception as error:  # noqa: BLE001 (no request passes unlogged, whatever the error)
            log.failed("audit log not written", error)
            return False
        scope["state"]["logged"] = entry
        return True

    def _not_allowed(self, scope: Any) -> str:
        """Return why the sender may not make this request; attach the sender to the request."""
        who = self.people.named(scope)
        if who is None:
            return UNNAMED
        scope["state"] |= {"person": who, "roles": self.people.roles_of(who)}
        return self.people.refusal(who, required_role(scope["method"], scope["path"], self.rules))

    def _size(self, scope: Any) -> int | None:
        length = _header(scope["headers"], b"content-length")
        too_long = length.isdigit() and int(length) > self._most_bytes(scope["path"])
        return 413 if too_long else None

    def _session(self, headers: Any) -> str:
        try:
            cookies = SimpleCookie(_header(headers, b"cookie"))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    def _most_bytes(self, path: str) -> int:
        return find_rule(path, self.rules)[0].most_bytes

    def _bound_body(self, receive: Any, path: str) -> Any:
        """Limit a body of undeclared length by counting its bytes as they arrive."""
        seen, most = 0, self._most_bytes(path)

        async def receive_bounded() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                return {"type": "http.disconnect"}
            return message

        return receive_bounded

    def _with_policy(self, send: Any, path: str) -> Any:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (
                    ("content-security-policy", self.policy),
                    ("x-content-type-options", "nosniff"),
                    ("referrer-policy", "no-referrer"),
                    ("cross-origin-opener-policy", "same-origin"),
                    ("cross-origin-resource-policy", "same-origin"),
                    ("cache-control", "no-store"),
                ):
                    headers.setdefault(name, value)
            await send(message)

        return sending


def _header(headers: Any, wanted: bytes) -> str:
    """Return a header that occurs exactly once, or else an empty string."""
    found = [value for name, value in headers if name.lower() == wanted]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _refuse(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)
