"""Creation of a base image if none can be pulled: debootstrap, then `docker import`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from sage.core.errors import FaultError, InputError
from sandbox.docker_engine import START, engine

NAME = "sage-base:latest"
RELEASE = "bookworm"
INCLUDE = "python3,python3-venv,python3-pip"


def make_base(name: str = NAME, *, say: Callable[[str], None] = lambda _: None) -> str:
    """Build a minimal Debian image with Python as `name` in about a minute, and return its ID.

    Raises
    ------
    InputError
        If the user is not root, debootstrap is not installed, or no engine responds.
    FaultError
        If a step fails.
    """
    from docker.errors import DockerException

    if os.getuid() != 0:
        raise InputError(
            "creating a base image requires root; run `sudo sage admin sandbox build --own-base`"
        )
    if not shutil.which("debootstrap"):
        raise InputError("debootstrap is not installed; run apt-get install debootstrap")
    with tempfile.TemporaryDirectory(prefix="sage-base-") as temporary:
        root = Path(temporary) / "root"
        say("debootstrap")
        command = ["debootstrap", "--variant=minbase", f"--include={INCLUDE}", RELEASE, str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FaultError(f"debootstrap failed: {(done.stdout + done.stderr)[-400:]}")
        archive = Path(temporary) / "root.tar"
        say("importing")
        command = ["tar", "-C", str(root), "-cf", str(archive), "."]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FaultError(f"tar failed: {done.stderr[-400:]}")
        repository, _, tag = name.partition(":")
        try:
            with engine(timeout=600) as client:
                client.api.import_image_from_file(str(archive), repository, tag or "latest")
                return str(client.images.get(name).id)
        except DockerException as wrong:
            raise InputError(f"no Docker engine responds ({str(wrong)[:160]}); {START}") from wrong
