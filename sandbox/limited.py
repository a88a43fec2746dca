"""A limited subprocess on the host, only for code that SAGE itself compiled from a contract.

It limits time, memory, files and the contents of the environment. It does not protect
against malicious code, so model-written code is rejected here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from sandbox import output, runtime, verdict
from sandbox.logs import Log
from sandbox.stage import Stage, check_job
from sandbox.types import Availability, Job, Limits, Reason, SandboxResult, Usage
from sandbox.watch import Watch


class LimitedSubprocess:
    """Sandbox that runs compiled jobs as a child process under resource limits."""

    name = "subprocess"

    def __init__(self, packages: Sequence[str] = runtime.OFFERED) -> None:
        self.packages = tuple(packages)

    def available(self) -> Availability:
        """Return True on every machine; the sandbox accepts only code that SAGE compiled."""
        return Availability(name=self.name, ok=True, detail="only for code that SAGE compiled")

    def prepare(self) -> None:
        """Do nothing, since each program starts in a new process."""

    def run(self, job: Job) -> SandboxResult:
        """Run `job` if SAGE compiled it; see `sandbox.types.Sandbox`.

        `/inputs` and `/output` do not exist here; the job's command and environment name the real
        folders instead (`SAGE_INPUTS`, `SAGE_OUTPUT`, and `{inputs}`, `{output}` in the command).
        """
        check_job(job)
        if not job.compiled_by_sage:
            return SandboxResult(
                sandbox=self.name, exit_code=None, reason=Reason.UNAVAILABLE,
                message="a limited subprocess runs only code that SAGE compiled from a contract; "
                "install Docker or bubblewrap for anything else",
            )  # fmt: skip
        with Stage() as stage:
            return self._carry_out(job, stage)

    def _carry_out(self, job: Job, stage: Stage) -> SandboxResult:
        work, inputs = stage.write_code(job.files), stage.empty("inputs")
        out, scratch = stage.empty("output"), stage.empty("tmp")
        for name, path in job.inputs.items():
            (inputs / name).symlink_to(path.resolve())
        sites = [str(path) for path in runtime.site_folders()]
        packages = stage.empty("lib")
        offered = self.packages if job.offers_sage else ()
        for name, folder in runtime.package_folders(offered).items():
            (packages / name).parent.mkdir(exist_ok=True)
            (packages / name).symlink_to(folder)
        runtime.write_environment(stage.empty("env"), [str(packages), *sites])
        environment = {
            **runtime.ENVIRONMENT,
            "PATH": f"{stage.folder / 'env' / 'bin'}:/usr/bin:/bin",
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "MPLCONFIGDIR": str(scratch / "mpl"),
            "SAGE_INPUTS": str(inputs),
            "SAGE_OUTPUT": str(out),
        }
        command = [_here(part, inputs, out) for part in job.command]
        if command[0] == "python":
            command[0] = str(stage.folder / "env" / "bin" / "python")
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, bufsize=0,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdout and process.stderr
        limit_process(process.pid, job.limits)
        log = Log(job.limits.log_kb, lambda: _kill(process))
        pumps = [
            log.pump(os.dup(process.stdout.fileno()), "stdout"),
            log.pump(os.dup(process.stderr.fileno()), "stderr"),
        ]
        watch = Watch(process.pid, job.limits, lambda: _kill(process))
        watch.start()
        timed_out = False
        try:
            process.wait(timeout=job.limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _kill(process)
            process.wait()
            watch.stop()
            process.stdout.close()
            process.stderr.close()
            for pump in pumps:
                pump.join(timeout=5)
        descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
        try:
            took = output.from_folder(descriptor, job.output, job.limits.output_mb)
        finally:
            os.close(descriptor)
        end = verdict.Ending(
            exit_code=process.returncode, timed_out=timed_out, log_over=log.over,
            output_over=took.over, memory_kills=watch.killed,
        )  # fmt: skip
        reason, message = verdict.judge(end, job.limits)
        return SandboxResult(
            sandbox=self.name, exit_code=None if timed_out else process.returncode, reason=reason,
            message=message, stdout_tail=log.tail("stdout"), stderr_tail=log.tail("stderr"),
            artifacts=tuple(took.artifacts), dropped=tuple(took.dropped),
            usage=Usage(
                wall_seconds=round(time.monotonic() - started, 3), peak_memory_mb=watch.peak_mb
            ),
        )  # fmt: skip


def _here(part: str, inputs: Path, out: Path) -> str:
    """Replace the sandbox's folders with the real paths in a command argument."""
    for inside, outside in (("/inputs", inputs), ("/output", out)):
        if part == inside or part.startswith(f"{inside}/"):
            return str(outside) + part[len(inside) :]
    return part


def limit_process(pid: int, limits: Limits) -> None:
    """Limit a process's file sizes, core dumps and CPU seconds."""
    megabyte = 1024 * 1024
    for which, value in (
        (resource.RLIMIT_FSIZE, limits.output_mb * megabyte),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(limits.seconds * max(limits.cpus, 1)) + 5),
    ):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, (value, value))


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
