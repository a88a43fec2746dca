"""Runs a line of an example: SAGE's own commands in this process, others in a shell."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from tests.docs.examples import ROOT
from tests.end_to_end.harness import sage
from tests.warm import HERE

TIMEOUT = 900
DEFAULTS = {"SAGE_EMBEDDING_MODEL": "default", HERE: "1"}
"""The demonstration graph has the default embedding; slides are read in the command's process."""
WARM = {"ask", "run", "review", "resume", "slides", "tools", "worker"}
"""Commands that run in a process of their own, as they hold a run or use the default embedding."""


def run(line: str, folder: Path) -> str:
    """Type `line` in `folder`; what it prints.

    Raises
    ------
    AssertionError
        If it does not end with exit code 0.
    """
    if re.search(r"\bsage (tools )?serve\b", line):
        return served(line, folder)
    given = dict(pair.split("=", 1) for pair in re.findall(r"^[A-Z_]+=\S+", line))
    words = shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line), comments=True)
    if words[0] == "sage" and WARM & {*words[1:3]}:
        ended = sage(*words[1:], cwd=folder, timeout=TIMEOUT, **DEFAULTS)
        assert ended.code == 0, ended.err
        return ended.out
    if words[0] != "sage":
        shell = subprocess.run(
            ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
        )
        assert shell.returncode == 0, shell.stdout + shell.stderr
        return shell.stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, words[1:], env=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{line}: {done.exception}") from done.exception
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.output


def served(line: str, folder: Path) -> str:
    """Start a server: over stdio it ends with its input; over HTTP it is interrupted."""
    over_http = "--transport http" in line or "sage serve" in line
    line = re.sub(r" --port \d+", "", line)
    server = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(line, comments=True), *(["--port", "0"] * over_http)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    assert server.stderr is not None
    if over_http:
        for said in server.stderr:
            if "serving" in said or "open http" in said:
                server.send_signal(signal.SIGINT)
                break
    rest = server.communicate(timeout=TIMEOUT)[1]
    assert server.returncode in ((0, 130) if over_http else (0,)), said + rest
    assert not over_http or "serving" in said or "open http" in said, said + rest
    return said
