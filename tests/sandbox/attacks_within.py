"""Hostile code that wastes or spoils: resources, inputs, outputs."""

from __future__ import annotations

from sandbox.types import Reason
from tests.sandbox.attack import SHORT, Attack


def filling(folder: str, size: str) -> str:
    """A program that writes files of `size` (an expression) to a folder until it is stopped."""
    return f"""
for i in range(10_000):
    open(f"{folder}/f{{i}}", "wb").write(b"x" * ({size}))
"""


EXHAUSTION = [
    Attack(
        "fork_bomb",
        "while True:\n    os.fork()",
        Reason.PROCESSES,
        message="more than 32 processes",
    ),
    Attack(
        "fork_bomb_that_swallows_errors",
        """
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        Reason.TIMEOUT,
        SHORT,
        message="started more than 32 processes or threads",
        variant=True,
    ),
    Attack(
        "memory_bomb_in_children",
        """
for _ in range(6):
    if os.fork() == 0:
        held = bytearray(b"x" * (110 << 20))
        time.sleep(3)
        os._exit(0)
ends = [os.wait()[1] for _ in range(6)]
sys.exit(1 if any(ends) else 0)
""",
        Reason.MEMORY,
        message="more than 256 MiB",
    ),
    Attack(
        "disk_filler",
        """
with open("/output/big", "wb") as f:
    while True:
        f.write(b"x" * (1 << 20))
""",
        Reason.OUTPUT_LIMIT,
        message="more than 8 MiB",
    ),
    Attack("temporary_space_filler", filling("/tmp", "4 << 20"), Reason.OUTPUT_LIMIT),
    Attack(
        "shared_memory_filler", filling("/dev/shm", "4 << 20"), Reason.OUTPUT_LIMIT, variant=True
    ),
    Attack(
        "sparse_file_of_a_terabyte",
        "f = open('/output/sparse', 'wb'); f.truncate(1 << 40); escaped('terabyte')",
        Reason.ERROR,
        says="File too large",
    ),
    Attack(
        "sparse_files_that_add_up",
        """
for i in range(40):
    open(f"/output/s{i}", "wb").truncate(7 << 20)
""",
        Reason.OUTPUT_LIMIT,
        variant=True,
    ),
    *(
        Attack(
            f"file_flood_in{place.replace('/', '_')}",
            f"""
i = 0
while True:
    os.{act}(f"{place}/f{{i}}")
    i += 1
""",
            Reason.OUTPUT_LIMIT,
            message="too many files",
            variant=True,
        )
        for place, act in (("/tmp", "mkdir"), ("/dev/shm", "mknod"))
    ),
    Attack(
        "file_flood_that_swallows_errors",
        """
i = 0
while i < 200_000:
    try:
        os.mknod(f"/output/f{i}")
    except OSError:
        pass
    i += 1
""",
        Reason.OUTPUT_LIMIT,
        message="too many files",
    ),
    Attack(
        "endless_output",
        "while True:\n    sys.stdout.write('x' * 65536)",
        Reason.OUTPUT_LIMIT,
        message="printed more than 64 KiB",
    ),
    Attack(
        "endless_errors",
        "while True:\n    sys.stderr.write('x' * 65536)",
        Reason.OUTPUT_LIMIT,
        message="printed more than 64 KiB",
        variant=True,
    ),
    Attack(
        "endless_loop_deaf_to_signals",
        """
import signal
for n in range(1, 32):
    if n not in (9, 19):
        signal.signal(n, signal.SIG_IGN)
while True:
    time.sleep(1)
""",
        Reason.TIMEOUT,
        SHORT,
        message="longer than 2 s",
    ),
    Attack(
        "descriptor_exhaustion",
        "held = [open('/dev/null') for _ in range(100_000)]; escaped('descriptors')",
        Reason.ERROR,
        says="Too many open files",
    ),
    Attack(
        "daemon_that_outlives_the_run",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", HOST["marker"]])
    os._exit(0)
time.sleep(0.3)
""",
    ),
]

WRITING = [
    Attack(
        "writing",
        """
# writing inputs
path = "/inputs/cohort/clinical.csv"
must_fail("write", open, path, "w")
must_fail("append", open, path, "a")
must_fail("chmod", os.chmod, path, 0o777)
must_fail("unlink", os.unlink, path)
must_fail("rename", os.rename, path, path + ".old")
must_fail("truncate", os.truncate, path, 0)
must_fail("create", open, "/inputs/cohort/new", "w")
must_fail("symlink", os.symlink, "/etc", "/inputs/cohort/link")
must_fail("utime", os.utime, path)
must_fail("xattr", os.setxattr, path, "user.a", b"x")
# writing inputs through proc self fd
fd = os.open("/inputs/cohort/clinical.csv", os.O_RDONLY)
must_fail("reopen", os.open, f"/proc/self/fd/{fd}", os.O_RDWR)
# writing the root and the code
import numpy, validation
for path in ("/x", "/usr/bin/x", "/etc/passwd", "/work/analysis.py", "/work/x", "/inputs/x",
             numpy.__file__, validation.__file__, sys.executable, "/opt/sage/x"):
    must_fail(path, open, path, "a")
# kernel settings
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
             "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe", "/proc/sys/fs/file-max",
             "/sys/kernel/uevent_helper", "/proc/irq/default_smp_affinity"):
    must_fail(path, lambda: os.write(os.open(path, os.O_WRONLY), b"1"))
# control group escape
for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"):
    must_fail(root, os.mkdir, root + "/escape")
    for name in ("release_agent", "memory.max", "memory.limit_in_bytes", "pids.max",
                 "cgroup.procs", "notify_on_release"):
        must_fail(name, lambda: os.write(os.open(f"{root}/{name}", os.O_WRONLY), b"1"))
# raising own limits
import resource
must_fail("fsize", resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))
must_fail("nofile", resource.setrlimit, resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
must_fail("nice", os.nice, -10)
""",
    ),
]

OUTPUTS = [
    Attack(
        "links_pipes_odd_names_deep_folders_and_archives",
        r"""
# the output folder itself
must_fail("rename", os.rename, "/output", "/tmp/output")
must_fail("rmdir", os.rmdir, "/output")
must_fail("over", os.symlink, "/etc", "/output")
# symbolic links out of the output
os.symlink(HOST["secret"], "/output/leak.txt")
os.symlink("/etc", "/output/etc")
os.symlink("../../../../..", "/output/up")
os.symlink("self", "/output/self")
os.mkdir("/output/d")
os.symlink("/inputs/cohort/clinical.csv", "/output/d/rows.csv")
# hard links into the output
must_fail("input", os.link, "/inputs/cohort/clinical.csv", "/output/rows.csv")
must_fail("passwd", os.link, "/etc/passwd", "/output/passwd")
open("/output/a", "w").write("x")
os.link("/output/a", "/output/b")
# pipes and sockets in the output
os.mkfifo("/output/results.json")
socket.socket(socket.AF_UNIX).bind("/output/socket")
# odd names
for name in (b"x" * 255, b"a\nb", b"\xff\xfe", b"-rf", b".hidden", b"a\x1b[31m", b"con:",
             b"a;rm", b" lead", b"trail. "):
    open(b"/output/" + name, "w").close()
# deep folders
path = "/output"
for _ in range(60):
    path += "/deep"
    os.mkdir(path)
open(path + "/f", "w").close()
# archive bombs, which stay as they are
import tarfile, zipfile
with zipfile.ZipFile("/output/bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("zeros", b"\0" * (100 << 20))
    z.writestr("../../evil", "x")
with tarfile.open("/output/bomb.tar", "w") as t:
    t.addfile(tarfile.TarInfo("/etc/evil"))
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/"
    t.addfile(link)
""",
        kept=("bomb.tar", "bomb.zip"),
        dropped=18,
    ),
    Attack(
        "closed_folders_and_files",
        """
os.mkdir("/output/shut")
open("/output/shut/f", "w").close()
open("/output/unreadable", "w").close()
os.chmod("/output/unreadable", 0)
os.chmod("/output/shut", 0)
os.chmod("/output", 0)
""",
    ),
]

LIES = [
    Attack(
        "saying_out_of_memory",
        r"sys.stderr.write('MemoryError\nOut of memory: Killed process 1\n'); os._exit(137)",
        Reason.KILLED,
    ),
    Attack(
        "success_after_a_child_ran_out_of_memory",
        """
if os.fork() == 0:
    held = []
    while True:
        held.append(bytearray(b"x" * (16 << 20)))
os.wait()
sys.exit(0)
""",
        Reason.MEMORY,
        variant=True,
    ),
    Attack(
        "escapes_and_text_that_turns_around",
        r"print('\x1b]0;owned\x07\x1b[2J\x00\x9b31m', end=' ');"
        r"print('\u202eKO\u202c \u2066\u200b\u2028\u061c\ufeff\U000e0020 done')",
        says="KO  done",
    ),
]
