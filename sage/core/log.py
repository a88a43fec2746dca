"""Structured logging: each event, with named values, is a line on stderr and JSON in a file.

    log = logger(__name__)
    log.info("retried", service="pubmed", wait_s=1.5)

Anything a user must act on is an error or a result, not a log line. Log lines record
internal events: retries, unusable cache entries, fallbacks. Values may come from any
source, so each record is a single line, control and bidirectional characters are escaped,
and secrets are removed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import traceback
import unicodedata
from pathlib import Path
from typing import Any, Literal

from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import append_line

Level = Literal["debug", "info", "warning"]
STRUCK = "***"
LONGEST = 10_000
"""Maximum number of characters in a value, so that external input cannot fill the disk."""

_ROOT = logging.getLogger("sage")
_ROOT.addHandler(logging.NullHandler())
_ROOT.propagate = False
_hidden: set[str] = set()
# What looks like a secret whoever gave it: keys of services, what a header, a parameter or a field
# names as one, user and password of an address.
_SECRET = re.compile(
    r"\b(?:sk|hf|ghp|gho|github_pat)[-_][\w-]{8,}|(?<=://)[^/@\s\"']+:[^/@\s\"']*(?=@)"
)
_NAME = (
    r"(?:[\w-]{0,40}(?:api|access|private)[-_]?key"
    r"|[\w-]{0,40}(?:token|secret|password|passwd)|authorization)"
)
_NAMED = re.compile(
    rf"\b({_NAME}[\"']?\s*[:=]\s*[\"']?(?:bearer\s+|basic\s+)?|bearer\s+)[^\s\"'&,}}]+",
    re.IGNORECASE,
)
_IS_NAME = re.compile(_NAME, re.IGNORECASE)


class Log:
    """A logger for the events of one module."""

    def __init__(self, name: str) -> None:
        self._logger = _ROOT.getChild(name.removeprefix("sage."))

    def debug(self, event: str, **values: Any) -> None:
        """Log a detail that helps in tracking down a bug."""
        self._say(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log an event that was handled, such as a retry, a fallback or an unusable cache."""
        self._say(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that leaves the result short of what was requested."""
        self._say(logging.WARNING, event, values)

    def failed(self, event: str, error: BaseException, **values: Any) -> None:
        """Log the origin of an error that is reported or recovered from elsewhere.

        The error's message is omitted, since a library's message may quote the rows it was
        processing.
        """
        frames = "".join(traceback.format_tb(error.__traceback__))
        kind = {"error": type(error).__name__, "traceback": frames}
        self._say(logging.INFO, event, {**values, **kind})

    def _say(self, level: int, event: str, values: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={"values": values})


def logger(name: str) -> Log:
    """Return the logger for a module, where `name` is the module's `__name__`."""
    return Log(name)


def configure(level: Level = "warning", file: Path | None = None) -> None:
    """Show records of at least `level` on stderr; with `file`, append them there as JSON lines.

    Raises
    ------
    InputError
        If the file is not writable.
    """
    for handler in _ROOT.handlers[:]:
        _ROOT.removeHandler(handler)
    _ROOT.setLevel(logging.DEBUG)
    _add(_Shown(), level)
    if file is not None:
        try:
            with file.open("ab"):
                pass
        except OSError as error:
            raise InputError(f"--log-file {file}: {error.strerror}; choose another file") from None
        _add(_JsonLines(file), level)


def keep_in(path: Path | None) -> None:
    """Also append records of level "info" and above to a run's log at `path`; None stops this."""
    for handler in _ROOT.handlers[:]:
        if isinstance(handler, _RunLog):
            _ROOT.removeHandler(handler)
    if path is not None:
        _ROOT.setLevel(logging.DEBUG)
        _add(_RunLog(path), "info")


def hide(secret: str) -> None:
    """Remove this text from all future records."""
    if len(secret) >= 4:
        _hidden.add(secret)


def struck(text: str) -> str:
    """Return the text with all registered secrets removed."""
    for secret in sorted(_hidden, key=len, reverse=True):
        text = text.replace(secret, STRUCK)
    return _NAMED.sub(rf"\1{STRUCK}", _SECRET.sub(STRUCK, text))


def escape(text: str) -> str:
    """Return the text on a single line, with terminal control characters as Unicode escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char == " " or unicodedata.category(char)[0] not in "CZ"
        else char.encode("unicode_escape", errors="backslashreplace").decode()
        for char in text
    )


def _add(handler: logging.Handler, level: Level) -> None:
    handler.setLevel(level.upper())
    _ROOT.addHandler(handler)


def _values(record: logging.LogRecord) -> dict[str, Any]:
    given: dict[str, Any] = getattr(record, "values", {})
    return {
        name: STRUCK if _IS_NAME.fullmatch(name) else _plain(value) for name, value in given.items()
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return struck(text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)")


class _Shown(logging.Handler):
    """A handler that writes each record as a line to the current stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        values = "".join(f" {name}={value}" for name, value in _values(record).items())
        line = f"{record.levelname.lower()}: {struck(record.getMessage())}{values}"
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escape(line)} [{record.name}]\n")


class _JsonLines(logging.Handler):
    """A handler that appends each record as an ASCII JSON object in a single write."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        line = {
            "time": clock.stamp(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": struck(record.getMessage()),
            **{
                f"_{name}" if name in _OWN else name: value
                for name, value in _values(record).items()
            },
        }
        with contextlib.suppress(OSError):  # a log that cannot be written must not end the work
            append_line(self.path, json.dumps(line, ensure_ascii=True))


_OWN = frozenset({"time", "level", "logger", "event"})


class _RunLog(_JsonLines):
    """A handler for the log in a run's folder."""
