"""Build the image from a wheelhouse on the host, so that the build needs no network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sage.core.errors import FaultError, InputError
from sandbox import runtime
from sandbox.docker_engine import IMAGE, LABEL, PACKAGES_LABEL, START, engine

BASE_IMAGE = (
    "python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7"
)
"""Base image, pinned by digest so that every build uses exactly the same base."""
HERE = Path(__file__).parent


def prepare_wheelhouse(folder: Path, *, say: Callable[[str], None] = lambda _: None) -> int:
    """Download the wheels of `requirements.txt` into `folder` and return their number.

    The versions are those installed here, so that the image gives the same results as the
    host.

    Raises
    ------
    FaultError
        If pip fails to find or download a wheel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say("collecting wheels")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
        "--disable-pip-version-check", "--dest", str(folder),
        "--requirement", str(HERE / "requirements.txt"),
    ]  # fmt: skip
    if sys.version_info[:2] != (3, 11):
        command += ["--python-version", "3.11", "--implementation", "cp"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.writelines(f"{name}\n" for name in installed())
        pins.flush()
        command += ["--constraint", pins.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FaultError(f"pip could not prepare the wheelhouse: {done.stderr.strip()[-600:]}")
    return len(list(folder.glob("*.whl")))


def installed() -> list[str]:
    """List installed packages as version pins, except those with local versions ("+cpu")."""
    from importlib.metadata import distributions

    found = {
        distribution.metadata["Name"]: distribution.version
        for distribution in distributions()
        if distribution.metadata["Name"]
    }
    return sorted(f"{name}=={version}" for name, version in found.items() if "+" not in version)


def build(
    wheelhouse: Path,
    *,
    image: str = IMAGE,
    base: str = BASE_IMAGE,
    packages: Sequence[str] = runtime.OFFERED,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Build `image` on `base` from the wheels in `wheelhouse`, and return the image's ID.

    Parameters
    ----------
    wheelhouse : folder of wheels; nothing is downloaded
    image : name of the image to build
    base : an image with Python
    packages : SAGE's own packages to include, with their fingerprints as labels
    say : called with each progress line

    Raises
    ------
    InputError
        If the wheelhouse has no wheels, no engine responds, or the base image is not
        available.
    FaultError
        If a build step fails.
    """
    from docker.errors import APIError, BuildError, DockerException

    if not any(wheelhouse.glob("*.whl")):
        raise InputError(
            f"{wheelhouse} contains no wheels; run without --wheelhouse to collect them"
        )
    folders = runtime.package_folders(packages)
    with tempfile.TemporaryDirectory(prefix="sage-image-") as temporary:
        context = Path(temporary)
        shutil.copyfile(HERE / "Dockerfile", context / "Dockerfile")
        shutil.copyfile(HERE / "requirements.txt", context / "requirements.txt")
        shutil.copytree(wheelhouse, context / "wheelhouse", copy_function=_link)
        for name, folder in folders.items():
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(folder, context / "lib" / name, ignore=ignore)
        prints = {name: runtime.fingerprint(folder) for name, folder in folders.items()}
        labels = {LABEL: "image", PACKAGES_LABEL: json.dumps(prints)}
        try:
            with engine(timeout=1800) as client:
                stream = client.api.build(
                    path=str(context), tag=image, buildargs={"BASE_IMAGE": base}, labels=labels,
                    rm=True, forcerm=True, decode=True, network_mode="none",
                )  # fmt: skip
                for event in stream:
                    if "error" in event:
                        raise FaultError(f"the image build failed: {event['error'][-600:]}")
                    if text := str(event.get("stream", "")).strip():
                        say(text)
                return str(client.images.get(image).id)
        except (BuildError, APIError) as wrong:
            raise FaultError(f"the image build failed: {str(wrong)[-600:]}") from wrong
        except DockerException as wrong:
            raise InputError(f"no Docker engine responds ({str(wrong)[:160]}); {START}") from wrong


def _link(source: str, target: str) -> str:
    """Link a wheel into the build context instead of copying it, if the file system allows it."""
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
    return target
