"""Choice of the sandbox: Docker, then bubblewrap; a subprocess only for compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sage.core.errors import InputError
from sandbox.runtime import OFFERED
from sandbox.types import Availability, Sandbox

Name = Literal["auto", "docker", "bubblewrap", "subprocess"]
INSTALL = (
    "install Docker (https://docs.docker.com/engine/install) and run `sage admin sandbox"
    " build`, or "
    "install bubblewrap (Debian/Ubuntu: apt-get install bubblewrap)"
)


def choose(
    name: Name = "auto",
    *,
    compiled_by_sage: bool = False,
    image: str | None = None,
    runtime: str | None = None,
    packages: Sequence[str] = OFFERED,
) -> Sandbox:
    """Return the sandbox to use on this machine.

    Parameters
    ----------
    name : "auto" chooses Docker, else bubblewrap, else (compiled code only) a limited
        subprocess
    compiled_by_sage : True if SAGE compiled the code from a contract
    image : Docker image; if None, the image built by `sage admin sandbox build`
    runtime : Docker runtime such as "runsc"; if None, the engine's default
    packages : SAGE's own top-level packages that the code may import

    Raises
    ------
    InputError
        If the requested sandbox does not work here, or if no sandbox allowed for this code
        works.
    """
    if name == "subprocess" and not compiled_by_sage:
        raise InputError("a subprocess is not a sandbox for model-written code; " + INSTALL)
    order = ["docker", "bubblewrap"] + (["subprocess"] if compiled_by_sage else [])
    tried: list[Availability] = []
    for wanted in order if name == "auto" else [name]:
        candidate = _make(wanted, image, runtime, packages)
        state = candidate.available()
        if state.ok:
            return candidate
        tried.append(state)
    found = "; ".join(f"{availability.name}: {availability.detail}" for availability in tried)
    remedy = INSTALL if name == "auto" else tried[0].remedy or INSTALL
    raise InputError(f"no sandbox is available for model-written code ({found}). Remedy: {remedy}")


def availability(*, image: str | None = None, runtime: str | None = None) -> list[Availability]:
    """List the sandboxes that work here, in order of preference."""
    names = ("docker", "bubblewrap", "subprocess")
    return [_make(name, image, runtime, ("validation",)).available() for name in names]


def sweep() -> list[str]:
    """Remove and list the leftovers of dead runs: containers, folders and control groups."""
    from sandbox.cgroup import sweep_groups
    from sandbox.docker_engine import sweep_containers
    from sandbox.stage import sweep_stages

    return [*sweep_containers(), *sweep_stages(), *sweep_groups()]


def _make(name: str, image: str | None, runtime: str | None, packages: Sequence[str]) -> Sandbox:
    if name == "docker":
        from sandbox.docker_engine import DockerSandbox

        return DockerSandbox(image=image, runtime=runtime, packages=packages)
    if name == "bubblewrap":
        from sandbox.bubblewrap import Bubblewrap

        return Bubblewrap(packages)
    if name == "subprocess":
        from sandbox.limited import LimitedSubprocess

        return LimitedSubprocess(packages)
    raise InputError(f'unknown sandbox "{name}"; use docker, bubblewrap, subprocess or auto')
