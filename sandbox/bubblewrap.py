"""Run analysis code under bubblewrap: namespaces, read-only root, system call filter, limits.

The output is a size-limited in-memory file system, kept open from outside through a file
descriptor, so that it can be read after the last process in the sandbox has ended. When
SAGE runs as root, the sandbox gets its own user ID and never runs as root.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sage.core.errors import FaultError
from sandbox import cgroup, output, runtime, seccomp, verdict
from sandbox.logs import Log
from sandbox.mounts import COPY_MB, Mount, megabytes, plan, stage_input
from sandbox.stage import Stage, check_job
from sandbox.types import Availability, Job, Limits, Reason, SandboxResult, Usage
from sandbox.warm import PROGRAM, Forked, Warm
from sandbox.watch import Space, Watch

TMP_MB = 64
WRITABLE = ("/output", "/tmp", "/dev/shm")  # noqa: S108 - paths inside the sandbox
START_SECONDS = 20.0
REMEDY = "install bubblewrap (Debian/Ubuntu: apt-get install bubblewrap) and allow user namespaces"
_BOUND = 'for f in $SAGE_GROUPS; do echo $$ > "$f" || exit 125; done; unset SAGE_GROUPS; exec "$@"'
_STAGED = (
    # An overlay with the lower folder "." hides its location in the mount table; a bind does not.
    'hidden() ( cd "$1" && mount -t overlay -o "ro,lowerdir=.:$SAGE_EMPTY" sage "$2"; ) '
    '2>/dev/null; while [ "$1" != -- ]; do hidden "$1" "$2" || mount --bind "$1" "$2" || exit 125; '
    'shift 2; done; unset SAGE_EMPTY; shift; exec "$@"'
)
_INSIDE = 'echo ready; read -r _ || exit 125; exec "$@" < /dev/null'


class Bubblewrap:
    """Sandbox that runs jobs under `bwrap`; `packages` are SAGE's own packages to expose."""

    name = "bubblewrap"

    def __init__(self, packages: Sequence[str] = runtime.OFFERED) -> None:
        self.packages = tuple(packages)
        self.warm: Warm | None = None

    def available(self) -> Availability:
        """Check whether a namespace with these options can be started here."""
        ok, detail = _probe()
        return Availability(name=self.name, ok=ok, detail=detail, remedy="" if ok else REMEDY)

    def prepare(self) -> None:
        """Start preloading the modules that analyses import; see `sandbox.warm`."""
        if self.available().ok:
            self.warm = _warm(self.packages)

    def run(self, job: Job) -> SandboxResult:
        """Run `job`; see `sandbox.types.Sandbox`."""
        check_job(job)
        state = self.available()
        if not state.ok:
            return SandboxResult(
                sandbox=self.name, exit_code=None, reason=Reason.UNAVAILABLE,
                message=f"{state.detail}; {state.remedy}",
            )  # fmt: skip
        group = cgroup.make(job.limits, job.limits.output_mb + 2 * TMP_MB)
        warm = self.warm
        in_place = any(megabytes(path) > COPY_MB for path in job.inputs.values())
        if in_place or not (warm and _argv(job.command) and warm.ready()):
            warm = None
        try:
            with Stage(warm.stage.folder if warm else None) as stage:
                return _Run(self.name, job, stage, group, self.packages, warm).carry_out()
        finally:
            if group:
                group.kill()
                group.remove()


_STARTING = threading.Lock()


def _warm(packages: tuple[str, ...]) -> Warm:
    with _STARTING:
        return _start_once(packages)


@functools.lru_cache(maxsize=1)
def _start_once(packages: tuple[str, ...]) -> Warm:
    return Warm(lambda stage, control: _start_warm(packages, stage, control))


def _argv(command: Sequence[str]) -> list[str]:
    """Return the script of a Python command and its arguments; empty for any other command."""
    if command[0] != "python":
        return []
    words = list(command[1:])
    while words and words[0] in ("-I", "-P", "-s"):
        words.pop(0)
    return words if words and not words[0].startswith("-") else []


@functools.lru_cache(maxsize=1)
def _probe() -> tuple[bool, str]:
    if not (binary := shutil.which("bwrap")):
        return False, "bwrap is not on the PATH"
    if runtime.base_prefix() == Path("/"):
        return False, "the interpreter is in the root folder"
    uid = _fresh_uid() if os.getuid() == 0 else None
    command = [
        binary, "--unshare-user", "--unshare-all", "--disable-userns", "--uid", "1000",
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
        "--ro-bind-try", "/lib64", "/lib64", "--proc", "/proc", "--size", "65536", "--tmpfs", "/t",
        "/bin/sh", "-c", "exit 7",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, user=uid, group=uid, extra_groups=None if uid is None else [],
            capture_output=True, timeout=20, env={}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as wrong:
        return False, f"bwrap does not start: {wrong}"
    if done.returncode != 7:
        said = done.stderr.decode("utf-8", "replace").strip()[-200:]
        return False, f"bwrap cannot start a sandbox here: {said}"
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    return True, version.stdout.strip()


def _fresh_uid() -> int:
    """Return an unused user ID, so that concurrent runs cannot signal or read each other."""
    return 1_879_048_192 + secrets.randbelow(1 << 24)


def _libraries(packages: Sequence[str]) -> list[Mount]:
    """List the folders of packages, libraries and the interpreter by their path in a sandbox."""
    folders = runtime.package_folders(packages)
    found = [Mount(folder, f"/opt/sage/lib/{name}") for name, folder in folders.items()]
    found += [Mount(site, f"/opt/sage/site{i}") for i, site in enumerate(runtime.site_folders())]
    if not runtime.base_prefix().is_relative_to("/usr"):
        found.append(Mount(runtime.base_prefix(), str(runtime.base_prefix())))
    return found


def _environment(stage: Stage) -> Mount:
    folder = stage.empty("env")
    search = [f"/opt/sage/site{i}" for i in range(len(runtime.site_folders()))]
    runtime.write_environment(folder, ["/opt/sage/lib", *search])
    return Mount(folder, "/opt/sage/env")


def _host(mounts: Sequence[Mount]) -> list[str]:
    """Build the bwrap options for environment variables and the visible, read-only host files."""
    out = ["--clearenv"]
    env = {**runtime.ENVIRONMENT, "PATH": "/opt/sage/env/bin:/usr/bin:/bin"}
    for key, value in env.items():
        out += ["--setenv", key, value]
    out += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            out += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            out += ["--ro-bind", str(path), str(path)]
    for mount in mounts:
        out += ["--ro-bind", str(mount.staged or mount.source), mount.target]
    return out


def _launch(
    command: list[str],
    mounts: Sequence[Mount],
    stage: Stage,
    descriptors: Sequence[int],
    *,
    enter: Sequence[str] = (),
    group: cgroup.Group | None = None,
    streams: int | None = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start `command` with the staged mounts in place, in the control group."""
    if os.getuid() == 0:
        staged: list[str] = []
        for mount in mounts:
            if mount.staged:
                staged += [str(mount.source), str(mount.staged)]
        command = [
            "unshare", "--mount", "--propagation", "private", "--",
            "/bin/sh", "-c", _STAGED, "sage", *staged, "--", *command,
        ]  # fmt: skip
    return subprocess.Popen(
        ["/bin/sh", "-c", _BOUND, "sage", *enter, *command], stdin=streams, stdout=streams,
        stderr=streams, pass_fds=descriptors, start_new_session=True, cwd="/", bufsize=0,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SAGE_GROUPS": " ".join(group.joins) if group else "",
            "SAGE_EMPTY": str(stage.empty("empty")),
        },
    )  # fmt: skip


def _start_warm(packages: Sequence[str], stage: Stage, control: int) -> subprocess.Popen[bytes]:
    """Start the preloaded process, which keeps the privileges to enter jobs' sandboxes."""
    as_root = os.getuid() == 0
    code = stage.write_code({PROGRAM.name: PROGRAM.read_text(encoding="utf-8")})
    wanted = [Mount(code, "/work"), _environment(stage), *_libraries(packages)]
    mounts = plan(wanted, stage.folder / "mnt" if as_root else None)
    user = ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    above = {parent for mount in mounts for parent in Path(mount.target).parents}
    folders = [word for parent in sorted(above) for word in ("--dir", str(parent))]  # open to all
    command = [
        "bwrap", *([] if as_root else user), "--cap-add", "ALL", *folders, *_host(mounts),
        "--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev", "--tmpfs", "/tmp",  # noqa: S108
        "--bind", str(stage.folder), str(stage.folder), "--chdir", "/work",
        "--", "python", "-P", "-s", PROGRAM.name, str(control),
    ]  # fmt: skip
    return _launch(command, mounts, stage, [control], streams=subprocess.DEVNULL)


@dataclass
class _Run:
    name: str
    job: Job
    stage: Stage
    group: cgroup.Group | None
    packages: tuple[str, ...]
    warm: Warm | None

    def carry_out(self) -> SandboxResult:
        limits = self.job.limits
        started = time.monotonic()
        process, info, held = self._start()
        log = Log(limits.log_kb, lambda: _kill(process))
        pumps: list[threading.Thread] = []
        places: list[int] = []
        forked: Forked | None = None
        try:
            pid = self._handshake(process, info, pumps, log, places)
            if self.warm:
                with contextlib.suppress(FaultError):  # then the sandbox starts it by itself
                    forked = self._fork(self.warm, pid, pumps, log)
            if not forked:
                assert process.stdin
                process.stdin.write(b"go\n")
                process.stdin.close()
            space = Space(places, lambda: _kill(process))
            timed_out, watched = self._wait(process, forked, limits, space)
        finally:
            _kill(process)
            process.wait()
            if forked:
                forked.wait(START_SECONDS)
                forked.channel.close()
            for descriptor in held:
                os.close(descriptor)
            if self.group:
                self.group.kill()
            for pump in pumps:
                pump.join(timeout=5)
        wall = time.monotonic() - started
        try:
            space.stop()
            end = verdict.Ending(
                exit_code=forked.exit_code if forked else process.returncode, timed_out=timed_out,
                log_over=log.over, output_over=space.over,
            )  # fmt: skip
            return self._result(end, places[0], watched, log, wall, forked)
        finally:
            for place in places:
                os.close(place)

    def _start(self) -> tuple[subprocess.Popen[bytes], int, list[int]]:
        as_root = os.getuid() == 0
        uid = _fresh_uid() if as_root else os.getuid()
        mounts = self._mounts(uid if as_root else None)
        info_read, info_write = os.pipe()
        filter_fd = self._filter()
        held = [info_write] + ([filter_fd] if filter_fd is not None else [])
        command = self._bwrap(mounts, info_write, filter_fd)
        if as_root:
            command = [
                "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                "--inh-caps=-all", "--bounding-set=-all", "--", *command,
            ]  # fmt: skip
        enter = self.warm.enter() if self.warm else []
        process = _launch(command, mounts, self.stage, held, enter=enter, group=self.group)
        return process, info_read, held

    def _mounts(self, uid: int | None) -> list[Mount]:
        """List all host files visible in the sandbox, all of them read-only."""
        etc = self.stage.empty("etc")
        (etc / "passwd").write_text("sage:x:1000:1000:sage:/tmp:/bin/sh\n", encoding="ascii")
        (etc / "group").write_text("sage:x:1000:\n", encoding="ascii")
        (etc / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
        wanted = [Mount(self.stage.write_code(self.job.files), "/work"), Mount(etc, "/etc")]
        for name, path in self.job.inputs.items():
            source = stage_input(path.resolve(), self.stage.folder / "inputs" / name, uid)
            wanted.append(Mount(source, f"/inputs/{name}"))
        points = self.stage.folder / "mnt" if uid is not None else None
        libraries = _libraries(self.packages if self.job.offers_sage else ())
        if self.warm is None:
            return plan([*wanted, _environment(self.stage), *libraries], points)
        # From the loaded process' view, where they already stand.
        targets = ["/opt/sage/env", *(mount.target for mount in libraries)]
        return [*plan(wanted, points), *(Mount(Path(name), name) for name in sorted(targets))]

    def _filter(self) -> int | None:
        program = seccomp.program()
        if program is None:
            return None
        reader, writer = os.pipe()
        os.write(writer, program)
        os.close(writer)
        return reader

    def _bwrap(self, mounts: list[Mount], info: int, filter_fd: int | None) -> list[str]:
        limits = self.job.limits
        out = [
            "bwrap", "--unshare-user", "--unshare-all", "--disable-userns", "--uid", "1000",
            "--gid", "1000", "--hostname", "sandbox", "--die-with-parent", "--new-session",
            "--cap-drop", "ALL", "--info-fd", str(info),
        ]  # fmt: skip
        if filter_fd is not None:
            out += ["--seccomp", str(filter_fd)]
        out += ["--proc", "/proc", "--dev", "/dev", "--dir", "/inputs", *_host(mounts)]
        if not self.job.offers_sage:
            for i, site in enumerate(runtime.site_folders()):
                for name in runtime.installed_here(site):
                    out += ["--tmpfs", f"/opt/sage/site{i}/{name}"]
        for target, size in zip(WRITABLE, (limits.output_mb, TMP_MB, TMP_MB), strict=True):
            out += ["--size", str(size * 1024 * 1024), "--tmpfs", target]
        out += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]
        bounds = [f"--{name}={value}" for name, value in self._limits().items()]
        inside = ["prlimit", *bounds, "--", *self.job.command]
        return [*out, "--", "/bin/sh", "-c", _INSIDE, "sage", *inside]

    def _limits(self) -> dict[str, int]:
        """List the per-process limits, including memory and processes without a control group."""
        limits = self.job.limits
        bounds = {"core": 0, "fsize": limits.output_mb * 1024 * 1024, "nofile": 1024}
        bounds["cpu"] = int(limits.seconds * max(limits.cpus, 1)) + 5
        if self.group is None:  # a backstop for what outruns the memory watch
            bounds |= {"as": 8 * limits.memory_mb * 1024 * 1024, "nproc": limits.pids}
        return bounds

    def _fork(self, warm: Warm, pid: int, pumps: list[threading.Thread], log: Log) -> Forked:
        """Have the preloaded process fork the job into the sandbox whose process is `pid`."""
        ends = []
        for stream in ("stdout", "stderr"):
            reading, writing = os.pipe()
            pumps.append(log.pump(reading, stream))
            ends.append(writing)
        try:
            argv = _argv(self.job.command)
            return warm.fork(pid, argv, self._limits(), self.group, (ends[0], ends[1]))
        finally:
            for end in ends:
                os.close(end)

    def _handshake(
        self,
        process: subprocess.Popen[bytes],
        info: int,
        pumps: list[threading.Thread],
        log: Log,
        places: list[int],
    ) -> int:
        """Wait until the sandbox is set up, open its writable folders, and return a process."""
        assert process.stdout and process.stderr
        pumps.append(log.pump(os.dup(process.stderr.fileno()), "stderr"))
        guard = threading.Timer(START_SECONDS, _kill, (process,))
        guard.start()
        try:
            first = b""
            while not first.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
                first += byte
            if first != b"ready\n":
                process.wait()
                pumps[0].join(timeout=5)
                raise FaultError(
                    f"bubblewrap could not create the sandbox: {log.tail('stderr').strip()[-400:]}"
                )
            with os.fdopen(info, "rb") as source:
                pid = int(json.loads(os.read(source.fileno(), 4096))["child-pid"])
            pid, opened = _open_places(pid)
            places += opened
        finally:
            guard.cancel()
        pumps.append(log.pump(os.dup(process.stdout.fileno()), "stdout"))
        return pid

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        forked: Forked | None,
        limits: Limits,
        space: Space,
    ) -> tuple[bool, Watch | None]:
        space.start()
        # What a fork leaves behind becomes a child of the sandbox's first process.
        waiter = forked.pid if forked else None
        watch = None if self.group else Watch(process.pid, limits, lambda: _kill(process), waiter)
        if watch:
            watch.start()
        try:
            if forked:
                return not forked.wait(limits.seconds), watch
            process.wait(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return True, watch
        finally:
            if watch:
                watch.stop()
        return False, watch

    def _result(
        self,
        end: verdict.Ending,
        root: int,
        watch: Watch | None,
        log: Log,
        wall: float,
        forked: Forked | None,
    ) -> SandboxResult:
        limits = self.job.limits
        counted = self.group.counters() if self.group else cgroup.Counters()
        if watch:
            counted.memory_kills += watch.killed
            counted.peak_memory_mb = watch.peak_mb
        if forked and counted.cpu_seconds is None:
            counted.cpu_seconds = forked.cpu_seconds
        took = output.from_folder(root, self.job.output, limits.output_mb)
        end = replace(
            end, output_over=end.output_over or took.over, memory_kills=counted.memory_kills,
            refused_processes=counted.refused_processes,
        )  # fmt: skip
        reason, message = verdict.judge(end, limits)
        return SandboxResult(
            sandbox=self.name, exit_code=None if end.timed_out else end.exit_code, reason=reason,
            message=message, stdout_tail=log.tail("stdout"), stderr_tail=log.tail("stderr"),
            artifacts=tuple(took.artifacts), dropped=tuple(took.dropped),
            usage=Usage(
                wall_seconds=round(wall, 3), cpu_seconds=counted.cpu_seconds,
                peak_memory_mb=counted.peak_memory_mb,
            ),
        )  # fmt: skip


def _open_places(pid: int) -> tuple[int, list[int]]:
    """Open the writable folders of the sandbox whose first process is `pid` (or its child).

    Returns the process that sees them, and the descriptors in the order of `WRITABLE`.
    """
    tried = [pid]
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        tried += [int(child) for child in children]
    for number in tried:
        opened: list[int] = []
        try:
            for place in WRITABLE:
                path = f"/proc/{number}/root{place}"
                opened.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
        else:
            return number, opened
    raise FaultError("the sandbox's output folder cannot be opened from outside")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
