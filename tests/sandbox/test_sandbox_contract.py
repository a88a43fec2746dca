"""What every sandbox promises beside containment: limits, cleaning up, choosing, plain errors."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sandbox
from sage.core.errors import InputError
from sandbox import bubblewrap, chooser
from sandbox.bubblewrap import Bubblewrap
from sandbox.limited import LimitedSubprocess
from sandbox.types import Availability, Job, Limits, Reason, Sandbox
from tests.sandbox.boxes import BOXES, working
from tests.sandbox.test_attacks import own_containers

ROOT = Path(__file__).parents[2]
TRIVIAL = "import numpy\nopen('/output/n.txt', 'w').write(str(numpy.arange(4).sum()))\n"


@pytest.fixture(params=BOXES)
def box(request: pytest.FixtureRequest) -> Sandbox:
    return working(request.param)


def job(folder: Path, code: str, **limits: float) -> Job:
    return Job(
        files={"analysis.py": code},
        output=folder / "out",
        limits=Limits(**{"seconds": 60, "memory_mb": 512, "pids": 64, "output_mb": 16} | limits),
    )


def test_a_run_brings_back_its_files_with_hash_and_usage(box: Sandbox, tmp_path: Path) -> None:
    result = box.run(job(tmp_path, TRIVIAL))
    assert result.ok and result.exit_code == 0
    assert [artifact.path for artifact in result.artifacts] == ["n.txt"]
    assert (tmp_path / "out" / "n.txt").read_text() == "6"
    assert result.usage.wall_seconds > 0
    assert result.usage.cpu_seconds is None or result.usage.cpu_seconds > 0


ENDING = """
import dataclasses, sys, zipfile
@dataclasses.dataclass
class Row:
    x: int
class Keeper:
    def __init__(self):
        self.me, self.text = self, open('/output/text', 'w')
        self.text.write(f"{dataclasses.fields(Row)[0].type} {hash('abc')}")
kept, packed = Keeper(), zipfile.ZipFile('/output/packed.zip', 'w')
packed.writestr('a', 'b')
print('printed')
sys.stdout.close()
sys.exit(True)
"""


def test_a_program_runs_and_ends_as_python_does_it(box: Sandbox, tmp_path: Path) -> None:
    command = ("python", "-P", "-s", "analysis.py")
    result = box.run(job(tmp_path, ENDING).model_copy(update={"command": command}))
    assert result.exit_code == 1, result.stderr_tail
    assert result.stdout_tail == "printed\n" and not result.stderr_tail
    # The hash under PYTHONHASHSEED=0, with annotations that are not postponed.
    assert (tmp_path / "out" / "text").read_text() == "<class 'int'> -4594863902769663758"
    assert zipfile.ZipFile(tmp_path / "out" / "packed.zip").read("a") == b"b"


def test_an_error_shows_the_lines_of_the_program_alone(box: Sandbox, tmp_path: Path) -> None:
    result = box.run(job(tmp_path, "def fail():\n    1 / 0\nfail()\n"))
    assert result.reason is Reason.ERROR and result.exit_code == 1
    assert result.stderr_tail.count('File "') == 2


@pytest.mark.bubblewrap
def test_a_job_starts_after_the_loaded_process_has_ended(tmp_path: Path) -> None:
    box = working("bubblewrap")
    assert isinstance(box, Bubblewrap)
    box.warm = bubblewrap._start_once.__wrapped__(box.packages)
    assert box.warm.ready()
    box.warm._control.shutdown(socket.SHUT_RDWR)
    assert box.run(job(tmp_path / "first", TRIVIAL)).ok
    assert not box.warm.ready()
    assert box.run(job(tmp_path / "second", TRIVIAL)).ok


def test_inputs_closed_to_other_users_are_still_readable(box: Sandbox, tmp_path: Path) -> None:
    inner = tmp_path / "cohort" / "inner"
    inner.mkdir(parents=True)
    (inner / "a.csv").write_text("x\n")
    (inner / "a.csv").chmod(0o600)
    inner.chmod(0o700)
    (inner / "out").symlink_to("/etc/shadow")
    code = "print(open('/inputs/cohort/inner/a.csv').read(), open('/inputs/one').read())"
    (tmp_path / "one").write_text("single")
    (tmp_path / "one").chmod(0o600)
    given = job(tmp_path, code).model_copy(
        update={"inputs": {"cohort": tmp_path / "cohort", "one": tmp_path / "one"}}
    )
    result = box.run(given)
    assert result.ok, result.stderr_tail
    assert result.stdout_tail.split() == ["x", "single"]


@pytest.mark.bubblewrap
@pytest.mark.skipif(os.getuid() != 0, reason="only root copies inputs")
def test_a_copied_input_is_open_to_nobody_else(tmp_path: Path) -> None:
    from sandbox.mounts import stage_input

    (tmp_path / "rows").mkdir(mode=0o700)
    (tmp_path / "rows" / "a.csv").write_text("x")
    copy = stage_input(tmp_path / "rows", tmp_path / "copy", 54321)
    for path in (copy, copy / "a.csv"):
        assert path.stat().st_uid == 54321 and path.stat().st_mode & 0o277 == 0


BOMBS = {
    # nothing counts refused processes here, so the ending is the program's own
    "processes": ("import os\nwhile True: os.fork()", Reason.ERROR),
    "memory_in_children": (
        "import os, sys, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        h = bytearray(b'x' * (90 << 20)); time.sleep(5); os._exit(0)\n"
        "sys.exit(any([os.wait()[1] for _ in range(8)]))",
        Reason.MEMORY,
    ),
    "memory_in_a_daemon": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        h = bytearray(b'x' * (400 << 20)); time.sleep(5)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(2)",
        Reason.MEMORY,
    ),
    "none": ("import time; time.sleep(0.3)", Reason.OK),
}


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", ["bubblewrap", "warm"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_the_bounds_hold_without_control_groups(
    bomb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox import cgroup

    monkeypatch.setattr(cgroup, "make", lambda *_: None)
    code, reason = BOMBS[bomb]
    memory = 8192 if bomb == "processes" else 256  # what forks share counts in each of them
    result = working(name).run(job(tmp_path, code, memory_mb=memory, pids=32))
    assert result.reason is reason, result.message


def test_analyses_in_parallel_all_succeed(box: Sandbox, tmp_path: Path) -> None:
    jobs = [job(tmp_path / str(number), TRIVIAL, seconds=120) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(box.run, jobs))
    assert [result.reason for result in results] == [Reason.OK] * 4
    assert all((tmp_path / str(number) / "out" / "n.txt").is_file() for number in range(4))
    assert not own_containers()


def test_no_descriptor_stays_open_after_a_run(box: Sandbox, tmp_path: Path) -> None:
    box.run(job(tmp_path / "warm", TRIVIAL))
    before = open_descriptors()
    box.run(job(tmp_path / "again", TRIVIAL))
    assert open_descriptors() <= before


def open_descriptors() -> int:
    gc.collect()  # the engine's client closes its last connection with its last reference
    return len(list(Path("/proc/self/fd").iterdir()))


def start_and(act: Callable[[subprocess.Popen[bytes]], None], name: str, folder: Path) -> str:
    """A SAGE process in the middle of a run; `act` on it; returns the marker of its code."""
    marker = str(70_000 + os.getpid() % 9000)
    code = f"import os\nos.execvp('sleep', ['sleep', '{marker}'])\n"
    script = (
        "import pathlib\nfrom sandbox.types import Job\n"
        "from tests.sandbox.boxes import working\n"
        f"out = pathlib.Path({str(folder)!r}) / 'out'\n"
        f"job = Job(files={{'analysis.py': {code!r}}}, output=out)\n"
        f"working({name!r}).run(job)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not running(marker):
        assert process.poll() is None and time.monotonic() < deadline, "the run did not start"
        time.sleep(0.05)
    act(process)
    process.wait(30)
    return marker


def running(marker: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", marker.encode()]:
                return True
    return False


@pytest.mark.parametrize("name", BOXES)
def test_what_a_killed_sage_left_behind_is_swept_up(name: str, tmp_path: Path) -> None:
    working(name)
    marker = start_and(lambda process: process.kill(), name, tmp_path)

    removed = sandbox.sweep()

    time.sleep(0.2)
    assert not running(marker)
    assert any(text.startswith("folder ") for text in removed)
    if name == "docker":
        assert any(text.startswith("container ") for text in removed)
    assert sandbox.sweep() == []


@pytest.mark.parametrize("name", BOXES)
def test_an_interrupted_run_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    working(name)
    sandbox.sweep()  # what others left that were killed
    marker = start_and(lambda process: process.send_signal(signal.SIGINT), name, tmp_path)
    assert not running(marker)
    assert sandbox.sweep() == []


@pytest.mark.docker
def test_the_container_runs_with_every_restriction(tmp_path: Path) -> None:
    import json
    import threading

    from sandbox.docker_engine import OWNER_LABEL, engine

    box = working("docker")
    thread = threading.Thread(target=box.run, args=(job(tmp_path, "import time; time.sleep(1)"),))
    thread.start()
    with engine() as client:
        for _ in range(100):
            mine = [
                item
                for item in client.containers.list(
                    filters={"label": OWNER_LABEL}, ignore_removed=True
                )
                if json.loads(item.labels[OWNER_LABEL])["pid"] == str(os.getpid())
            ]
            if mine:
                break
            time.sleep(0.05)
        config = mine[0].attrs["HostConfig"]
        user = mine[0].attrs["Config"]["User"]
    thread.join()
    assert config["NetworkMode"] == "none" and config["ReadonlyRootfs"]
    assert config["CapDrop"] == ["ALL"] and not config["CapAdd"] and not config["Privileged"]
    assert "no-new-privileges" in config["SecurityOpt"]
    assert config["PidsLimit"] == 65 and config["Memory"] == config["MemorySwap"] > 0
    assert config["AutoRemove"] and config["LogConfig"]["Type"] == "none"
    assert user and not user.startswith("0")
    binds = [mount["Source"] for mount in config["Mounts"] if mount["Type"] == "bind"]
    assert all(mount["ReadOnly"] for mount in config["Mounts"] if mount["Type"] == "bind")
    assert not any("docker" in bind for bind in binds)


def test_with_neither_engine_model_code_is_refused_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Absent:
        name = "absent"

        def available(self) -> Availability:
            return Availability(name=self.name, ok=False, detail="not here", remedy="install it")

    real = chooser._make
    monkeypatch.setattr(
        chooser,
        "_make",
        lambda name, *rest: real(name, *rest) if name == "subprocess" else Absent(),
    )
    with pytest.raises(InputError, match=r"Docker .*bubblewrap"):
        sandbox.choose()
    assert sandbox.choose(compiled_by_sage=True).name == "subprocess"
    with pytest.raises(InputError, match="install it"):
        sandbox.choose("docker")


def test_a_subprocess_refuses_what_sage_did_not_compile(tmp_path: Path) -> None:
    result = LimitedSubprocess().run(job(tmp_path, TRIVIAL))
    assert result.reason is Reason.UNAVAILABLE
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError):
        sandbox.choose("subprocess")


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("import time\ntime.sleep(30)", {"seconds": 1}, Reason.TIMEOUT),
        ("x = [bytearray(b'x' * (8 << 20)) for _ in range(10**6)]", {}, Reason.MEMORY),
        ("while True: print('x' * 4096)", {}, Reason.OUTPUT_LIMIT),
    ],
)
def test_a_subprocess_bounds_what_sage_compiled(
    code: str, limits: dict[str, float], reason: Reason, tmp_path: Path
) -> None:
    given = job(tmp_path, code, **{"memory_mb": 256} | limits)
    result = LimitedSubprocess().run(given.model_copy(update={"compiled_by_sage": True}))
    assert result.reason is reason, result.message


def test_a_subprocess_sees_the_same_folders_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_API_KEY", "sk-canary")
    (tmp_path / "rows").write_text("1")
    code = (
        "import os, sys\n"
        "print(os.environ)\n"
        "open(sys.argv[2] + '/copy', 'w').write(open(sys.argv[1] + '/rows').read())\n"
    )
    given = job(tmp_path, code).model_copy(
        update={
            "compiled_by_sage": True,
            "inputs": {"rows": tmp_path / "rows"},
            "command": ("python", "-I", "analysis.py", "/inputs", "/output"),
        }
    )
    result = LimitedSubprocess().run(given)
    assert result.ok and (tmp_path / "out/copy").read_text() == "1"
    assert "sk-canary" not in result.stdout_tail


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"files": {"../evil.py": ""}}, "invalid .* name"),
        ({"files": {"/etc/passwd": ""}}, "invalid .* name"),
        ({"inputs": {"a/b": Path("/tmp")}}, "invalid .* name"),
        ({"inputs": {"gone": Path("/no/such/folder")}}, "does not exist"),
        ({"command": ()}, "no command"),
        ({"output": ROOT / "tests"}, "is not empty"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(
    change: dict[str, object], says: str, tmp_path: Path
) -> None:
    given = job(tmp_path, TRIVIAL).model_copy(update=change)
    with pytest.raises(InputError, match=says):
        LimitedSubprocess().run(given.model_copy(update={"compiled_by_sage": True}))


@pytest.mark.docker
def test_a_runtime_that_the_engine_lacks_is_named(tmp_path: Path) -> None:
    working("docker")
    with pytest.raises(InputError, match="no-such-runtime"):
        sandbox.choose("docker", runtime="no-such-runtime")


def test_an_engine_that_does_not_answer_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    found = sandbox.availability()[0]
    assert found.name == "docker" and not found.ok
    assert "install" in found.remedy
