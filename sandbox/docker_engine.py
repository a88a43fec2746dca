"""Run analysis code in a Docker container, one per run, which is always removed.

The container's first process only sleeps, for the maximum duration of the run; the code
is started as a second process. The output (a size-limited in-memory file system) can
therefore still be read after the code has ended, and a container whose owner was killed
ends and is removed by the engine itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sage.core.errors import FaultError
from sandbox import cgroup, output, runtime, seccomp, verdict
from sandbox.logs import Log
from sandbox.mounts import stage_input
from sandbox.stage import Stage, alive, check_job, owner
from sandbox.types import Availability, Job, Reason, SandboxResult, Usage
from sandbox.watch import MAX_INODES, Space

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import Mount

IMAGE = "sage-sandbox:latest"
LABEL = "sage.sandbox"
OWNER_LABEL = "sage.sandbox.owner"
PACKAGES_LABEL = "sage.sandbox.packages"
TMP_MB = 64
TMPFS = f"size={{}}m,nr_inodes={MAX_INODES},mode=1777,nosuid,nodev,noexec"
GRACE_SECONDS = 120
ROOT_RUNS_AS = "10001:10001"
START = "start the Docker engine (`systemctl start docker`) or install it"


class DockerSandbox:
    """Sandbox that runs jobs in containers from `image` under the OCI runtime `runtime`."""

    name = "docker"

    def __init__(
        self,
        image: str | None = None,
        runtime: str | None = None,
        packages: Sequence[str] = runtime.OFFERED,
    ) -> None:
        self.image = image or IMAGE
        self.runtime = runtime
        self.packages = tuple(packages)

    def available(self) -> Availability:
        """Check whether the engine responds and has the image and the runtime."""
        from docker.errors import DockerException, ImageNotFound

        try:
            with engine() as client:
                version = client.version().get("Version", "?")
                if self.runtime and self.runtime not in client.info().get("Runtimes", {}):
                    return self._no(
                        f'the engine has no runtime "{self.runtime}"',
                        f'install "{self.runtime}" and register it in /etc/docker/daemon.json, '
                        "or omit the runtime",
                    )
                client.images.get(self.image)
        except ImageNotFound:
            return self._no(
                f"the engine has no image {self.image}", "run `sage admin sandbox build`"
            )
        except (DockerException, OSError) as wrong:
            return self._no(f"no Docker engine responds ({str(wrong)[:160]})", START)
        return Availability(name=self.name, ok=True, detail=f"engine {version}, {self.image}")

    def _no(self, detail: str, remedy: str) -> Availability:
        return Availability(name=self.name, ok=False, detail=detail, remedy=remedy)

    def prepare(self) -> None:
        """Do nothing, since each program starts in a new process."""

    def run(self, job: Job) -> SandboxResult:
        """Run `job`; see `sandbox.types.Sandbox`."""
        from docker.errors import APIError, DockerException, ImageNotFound

        check_job(job)
        try:
            with engine() as client, Stage() as stage:
                return self._carry_out(client, stage, job)
        except ImageNotFound:
            return self._unavailable(f"no image {self.image}; run `sage admin sandbox build`")
        except APIError as wrong:
            raise FaultError(f"the Docker engine refused the run: {wrong.explanation}") from wrong
        except DockerException as wrong:
            return self._unavailable(f"no Docker engine responds: {str(wrong)[:160]}; {START}")

    def _unavailable(self, message: str) -> SandboxResult:
        return SandboxResult(
            sandbox=self.name, exit_code=None, reason=Reason.UNAVAILABLE, message=message
        )

    def _carry_out(self, client: DockerClient, stage: Stage, job: Job) -> SandboxResult:
        started = time.monotonic()
        user = ROOT_RUNS_AS if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
        container = self._create(client, stage, job, user)
        try:
            container.start()
            return _Run(self.name, client, container, job, user, started).carry_out()
        finally:
            remove(container)

    def _create(self, client: DockerClient, stage: Stage, job: Job, user: str) -> Container:
        from docker.types import LogConfig, Ulimit

        limits = job.limits
        memory = f"{limits.memory_mb + limits.output_mb + 2 * TMP_MB}m"
        fsize = limits.output_mb * 1024 * 1024
        cpu = int(limits.seconds * max(limits.cpus, 1)) + 5
        return client.containers.create(
            self.image,
            ["sleep", str(int(limits.seconds) + GRACE_SECONDS)],
            entrypoint=[],
            auto_remove=True,
            cap_drop=["ALL"],
            environment=runtime.ENVIRONMENT,
            hostname="sandbox",
            ipc_mode="none",
            labels={LABEL: job.label[:64] or "run", OWNER_LABEL: json.dumps(owner())},
            log_config=LogConfig(type="none"),
            mem_limit=memory,
            memswap_limit=memory,
            mounts=self._mounts(client, stage, job, user),
            nano_cpus=int(min(limits.cpus, os.cpu_count() or 1) * 1e9),
            network_mode="none",
            pids_limit=limits.pids + 1,
            privileged=False,
            read_only=True,
            runtime=self.runtime,
            security_opt=["no-new-privileges", *_seccomp(client)],
            tmpfs={place: TMPFS.format(TMP_MB) for place in ("/tmp", "/dev/shm")},  # noqa: S108
            ulimits=[
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="fsize", soft=fsize, hard=fsize),
                Ulimit(name="cpu", soft=cpu, hard=cpu),
                Ulimit(name="nofile", soft=1024, hard=1024),
            ],
            user=user,
            working_dir="/work",
        )

    def _mounts(self, client: DockerClient, stage: Stage, job: Job, user: str) -> list[Mount]:
        from docker.types import DriverConfig, Mount

        uid, gid = user.split(":")
        size = job.limits.output_mb * 1024 * 1024
        options = (
            f"size={size},nr_inodes={MAX_INODES},mode=0700,uid={uid},gid={gid},nosuid,nodev,noexec"
        )
        volume = DriverConfig("local", {"type": "tmpfs", "device": "tmpfs", "o": options})
        found = [
            Mount(
                "/output", None, type="volume", driver_config=volume, no_copy=True,
                labels={LABEL: "output", OWNER_LABEL: json.dumps(owner())},
            ),
            Mount("/work", str(stage.write_code(job.files)), type="bind", read_only=True),
        ]  # fmt: skip
        for name, path in job.inputs.items():
            owner_id = int(uid) if os.getuid() == 0 else None
            source = stage_input(path.resolve(), stage.folder / "inputs" / name, owner_id)
            found.append(Mount(f"/inputs/{name}", str(source), type="bind", read_only=True))
        built = json.loads(client.images.get(self.image).labels.get(PACKAGES_LABEL) or "{}")
        if not job.offers_sage:
            empty = str(stage.empty("nothing"))
            return [
                *found,
                *(Mount(f"/opt/sage/lib/{name}", empty, type="bind", read_only=True)
                  for name in sorted({name.partition("/")[0] for name in built})),
            ]  # fmt: skip
        for name, folder in runtime.package_folders(self.packages).items():
            if built.get(name) != runtime.fingerprint(folder):
                # The image contains another version of this package; use the installed one.
                target = f"/opt/sage/lib/{name}"
                found.append(Mount(target, str(folder), type="bind", read_only=True))
        return found


def _seccomp(client: DockerClient) -> list[str]:
    """Return SAGE's system call filter for the engine's machine, or else the engine's default."""
    profile = seccomp.profile(str(client.info().get("Architecture", "")))
    return [] if profile is None else [f"seccomp={profile}"]


@contextlib.contextmanager
def engine(timeout: float = 60) -> Iterator[DockerClient]:
    """Open a client for the engine selected by Docker's own settings."""
    import docker

    client = docker.from_env(timeout=int(timeout))
    try:
        yield client
    finally:
        client.close()


class _Run:
    """The code running in a single container, next to its sleeping process."""

    def __init__(
        self,
        name: str,
        client: DockerClient,
        container: Container,
        job: Job,
        user: str,
        started: float,
    ) -> None:
        self._name = name
        self._api: Any = client.api
        self._container = container
        self._job = job
        self._user = user
        self._started = started
        self._full = threading.Event()
        self._ended = threading.Event()
        self._log = Log(job.limits.log_kb, self._stop)

    def _stop(self) -> None:
        self._full.set()
        self._ended.set()

    def carry_out(self) -> SandboxResult:
        from docker.errors import APIError

        limits = self._job.limits
        execution = self._api.exec_create(
            self._container.id, list(self._job.command), user=self._user, workdir="/work"
        )["Id"]
        reader = threading.Thread(target=self._read, args=(execution,), daemon=True)
        reader.start()
        in_time = self._ended.wait(limits.seconds)
        state = self._state(execution)
        running = bool(state.get("Running"))
        counted = self._counters()
        if running:
            with contextlib.suppress(APIError):  # it may have ended meanwhile
                self._container.pause()
        space = Space(self._places(), lambda: None)
        space.stop()
        took = self._output()
        wall = time.monotonic() - self._started
        remove(self._container)
        reader.join(timeout=10)
        code = None if running else state.get("ExitCode")
        end = verdict.Ending(
            exit_code=code, timed_out=not in_time, log_over=self._log.over,
            output_over=took.over or space.over, memory_kills=counted.memory_kills,
            refused_processes=counted.refused_processes,
        )  # fmt: skip
        reason, message = verdict.judge(end, limits)
        return SandboxResult(
            sandbox=self._name, exit_code=code, reason=reason, message=message,
            stdout_tail=self._log.tail("stdout"), stderr_tail=self._log.tail("stderr"),
            artifacts=tuple(took.artifacts), dropped=tuple(took.dropped),
            usage=Usage(
                wall_seconds=round(wall, 3), cpu_seconds=counted.cpu_seconds,
                peak_memory_mb=counted.peak_memory_mb,
            ),
        )  # fmt: skip

    def _read(self, execution: str) -> None:
        try:
            for out, err in self._api.exec_start(execution, stream=True, demux=True):
                if out:
                    self._log.add("stdout", out)
                if err:
                    self._log.add("stderr", err)
        except OSError:
            # The connection ends when the container is removed, which is how we stop the code.
            return
        finally:
            self._ended.set()

    def _state(self, execution: str) -> dict[str, Any]:
        """Return the state of the code's execution; empty if the container is gone."""
        from docker.errors import NotFound

        try:
            state: dict[str, Any] = self._api.exec_inspect(execution)
        except NotFound:
            return {}
        return state

    def _counters(self) -> cgroup.Counters:
        """Read the host's control group counters if the engine is local and they are readable."""
        from docker.errors import NotFound

        try:
            self._container.reload()
        except NotFound:
            return cgroup.Counters()
        pid = int(self._container.attrs["State"].get("Pid") or 0)
        counted = cgroup.read_counters(cgroup.folders_of(pid)) if pid else cgroup.Counters()
        if self._container.attrs["State"].get("OOMKilled"):
            counted.memory_kills = max(counted.memory_kills, 1)
        return counted

    def _places(self) -> list[str]:
        """Return the writable folders' host paths if the engine is local and they are readable."""
        pid = int(self._container.attrs["State"].get("Pid") or 0)
        places = ("/output", "/tmp", "/dev/shm")  # noqa: S108
        return [f"/proc/{pid}/root{place}" for place in places] if pid else []

    def _output(self) -> output.Collected:
        from docker.errors import APIError, NotFound

        limit = self._job.limits.output_mb
        try:
            chunks, _ = self._container.get_archive("/output", chunk_size=1 << 20)
        except (NotFound, APIError) as gone:
            took = output.from_tar([], self._job.output, limit, "output")
            took.dropped = [f"(all): the container was gone ({gone.explanation})"]
            return took
        return output.from_tar(chunks, self._job.output, limit, "output")


def remove(container: Container) -> None:
    """Remove a container and its volumes, which the engine may already be doing."""
    from docker.errors import APIError, NotFound

    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as wrong:
        if wrong.status_code != 409:
            raise


def sweep_containers() -> list[str]:
    """Remove and list the containers and volumes of dead runs; a missing engine is no error."""
    from docker.errors import APIError, DockerException

    removed = []
    try:
        with engine() as client:
            # Another process may remove one of its own containers during the listing.
            found = client.containers.list(
                all=True, filters={"label": OWNER_LABEL}, ignore_removed=True
            )
            for container in found:
                if not alive(json.loads(container.labels[OWNER_LABEL])):
                    remove(container)
                    removed.append(f"container {container.name}")
            for volume in client.volumes.list(filters={"label": OWNER_LABEL}):
                labels = (volume.attrs or {}).get("Labels") or {}
                if not alive(json.loads(labels[OWNER_LABEL])):
                    with contextlib.suppress(APIError):
                        volume.remove(force=True)
                        removed.append(f"volume {volume.name}")
    except (DockerException, OSError):
        return removed
    return removed
