"""Hostile code that wants out: the network, secrets, privileges, other processes."""

from __future__ import annotations

from sandbox.types import Reason
from tests.sandbox.attack import Attack

NETWORK = [
    Attack(
        "network",
        r"""
# connections: the internet, cloud metadata, the host
for family, address in (
    (socket.AF_INET, ('1.1.1.1', 53)),
    (socket.AF_INET6, ('2606:4700:4700::1111', 53)),
    (socket.AF_INET, ('169.254.169.254', 80)),
    (socket.AF_INET, ('127.0.0.1', HOST['port'])),
    (socket.AF_INET, ('172.17.0.1', HOST['port'])),
    (socket.AF_UNIX, '\0' + HOST['abstract']),
):
    must_fail(address, lambda: socket.socket(family).connect(address))
# dns
must_fail('dns', socket.getaddrinfo, 'example.org', 443)
# udp datagram
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
must_fail("udp", s.sendto, b"patients", ("8.8.8.8", 53))
# raw and packet sockets
must_fail("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
must_fail("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 768)
# sockets of other families
for family in (3, 4, 9, 16, 17, 21, 26, 29, 31, 38, 40, 44):  # netlink, vsock, AF_ALG, XDP …
    for kind in (1, 2, 3, 5):
        must_fail((family, kind), syscall, 41, family, kind, 0)
    must_fail((family, "pair"), syscall, 53, family, 1, 0, (ctypes.c_int * 2)())
must_fail("high bits", syscall, 41, ctypes.c_uint64((1 << 32) | 40), 1, 0)
must_fail("raw with flags", syscall, 41, 2, 3 | 0o2000000, 255)
# engine socket
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
    must_fail(path, os.stat, path)
    must_fail(path, socket.socket(socket.AF_UNIX).connect, path)
""",
    ),
]

SECRETS = [
    Attack(
        "secrets",
        r"""
# leaked descriptors
for fd in os.listdir("/proc/self/fd"):
    try:
        link = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    if not link.startswith(("pipe:", "/dev/null", "/proc/")):
        escaped(link)
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for fd in os.listdir(f"/proc/{pid}/fd") if os.access(f"/proc/{pid}/fd", os.R_OK) else ():
        link = os.readlink(f"/proc/{pid}/fd/{fd}")
        if not link.startswith(("pipe:", "/dev/null", "anon_inode:[eventfd]")):
            escaped((pid, link))
# host files
for path in (HOST["secret"], "/etc/shadow", "/root/.ssh", "/root/.bashrc", "/var/lib/docker",
             "/home/user", HOST["folder"]):
    p = pathlib.Path(path)
    must_fail(path, lambda: list(p.iterdir()) if p.is_dir() else p.read_text())
# host files through proc
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    for door in ("root", "cwd"):
        target = f"/proc/{pid}/{door}" + HOST["secret"]
        must_fail(target, open, target)
# kernel memory and logs
for path in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/proc/kmsg"):
    must_fail(path, lambda: os.read(os.open(path, os.O_RDONLY), 16))
try:
    core = open("/proc/kcore", "rb").read(16)
except OSError:
    core = b""
if core:
    escaped("kcore")
# host paths in the mount table
for name in ("mountinfo", "mounts", "mountstats"):
    for pid in ("self", "1", str(os.getppid()), "thread-self"):
        try:
            table = open(f"/proc/{pid}/{name}").read()
        except OSError:
            continue
        if HOST["folder"] in table:
            escaped([line for line in table.splitlines() if HOST["folder"] in line])
# block devices
for name in ("sda", "vda", "nvme0n1", "mapper/control", "loop-control", "fuse", "kvm"):
    must_fail(name, os.open, "/dev/" + name, os.O_RDONLY)
# host process memory
class Iov(ctypes.Structure):
    _fields_ = [("b", ctypes.c_void_p), ("n", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
here, there = Iov(ctypes.addressof(buffer), 8), Iov(0x400000, 8)
must_fail("mem", open, f"/proc/{HOST['pid']}/mem", "rb")
must_fail("vm_readv", syscall, 310, HOST["pid"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
# file handles of the host
handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0")
must_fail("open_by_handle_at", syscall, 304, os.open("/", os.O_RDONLY), handle, 0)
# environment of every process, the last that is printed
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    for name in ("environ", "cmdline"):
        try:
            print(pid, name, open(f"/proc/{pid}/{name}", "rb").read())
        except OSError as refused:
            print(pid, name, refused)
""",
    ),
]

PRIVILEGE = [
    Attack(
        "privilege",
        r"""
# becoming root
for name in ("setuid", "setgid", "seteuid", "setegid"):
    must_fail(name, getattr(os, name), 0)
must_fail("groups", os.setgroups, [0])
must_fail("resuid", os.setresuid, 0, 0, 0)
if os.geteuid() == 0:
    escaped("root")
# capabilities
lines = open("/proc/self/status").read().splitlines()
if held := [l for l in lines if l.startswith("Cap") and int(l.split()[1], 16)]:
    escaped(held)
if "NoNewPrivs:\t1" not in lines:
    escaped("new privileges")
if "Seccomp:\t2" not in lines:
    escaped("no system call filter")
# mounting
os.mkdir("/tmp/m")
must_fail("tmpfs", syscall, 165, b"tmpfs", b"/tmp/m", b"tmpfs", 0, 0)
must_fail("proc", syscall, 165, b"proc", b"/tmp/m", b"proc", 0, 0)
must_fail("bind", syscall, 165, b"/", b"/tmp/m", 0, 4096, 0)
must_fail("remount", syscall, 165, 0, b"/inputs/cohort", 0, 32 | 4096, 0)
must_fail("umount", syscall, 166, b"/inputs/cohort", 2)
must_fail("pivot_root", syscall, 155, b"/tmp", b"/tmp/m")
must_fail("fsopen", syscall, 430, b"tmpfs", 0)
must_fail("chroot", os.chroot, "/tmp")
# new namespaces
flags = dict(user=0x10000000, mount=0x20000, pid=0x20000000, net=0x40000000, uts=0x4000000,
             ipc=0x8000000, cgroup=0x2000000)
for name, flag in flags.items():
    must_fail(name, syscall, 272, flag)
must_fail("clone", syscall, 56, 0x10000000 | 17, 0, 0, 0, 0)
args = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17, 0, 0, 0)
must_fail("clone3", syscall, 435, ctypes.byref(args), 64)
must_fail("setns", lambda: syscall(308, os.open("/proc/1/ns/net", os.O_RDONLY), 0))
# kernel modules
must_fail("init", syscall, 175, b"x", 1, b"")
must_fail("finit", syscall, 313, os.open("/work/analysis.py", os.O_RDONLY), b"", 0)
must_fail("delete", syscall, 176, b"ext4", 0)
must_fail("kexec", syscall, 246, 0, 0, 0, 0)
# kernel interfaces
must_fail("bpf", syscall, 321, 0, ctypes.create_string_buffer(64), 64)
must_fail("perf", syscall, 298, ctypes.create_string_buffer(128), 0, -1, -1, 0)
must_fail("userfaultfd", syscall, 323, 0)
must_fail("keyctl", syscall, 250, 0, -3, 0, 0, 0)
must_fail("add_key", syscall, 248, b"user", b"k", b"v", 1, -3)
must_fail("iopl", syscall, 172, 3)
must_fail("reboot", syscall, 169, 0xFEE1DEAD, 672274793, 0)
must_fail("swapon", syscall, 167, b"/tmp/x", 0)
must_fail("acct", syscall, 163, b"/tmp/x")
buffer = ctypes.create_string_buffer(256)
for number in (425, 426, 427, 206, 298, 300, 308, 312, 317, 323, 424 - 4, 428, 429, 430, 431, 432,
               433, 438, 440, 442, 443, 444, 445, 446, 447, 448, 29, 68, 64, 134, 135, 139, 153,
               154, 156, 174, 212, 237, 238, 239, 256, 279, 330, 1000):
    must_fail(number, syscall, number, 1, buffer, 0, 0, 0, 0)
# name and clock
must_fail("hostname", socket.sethostname, "evil")
must_fail("clock", time.clock_settime, time.CLOCK_REALTIME, 0)
# device nodes
for folder in ("/tmp", "/output", "/dev/shm"):
    must_fail(folder, os.mknod, folder + "/disk", 0o60666, os.makedev(254, 0))
    must_fail(folder, os.mknod, folder + "/mem", 0o20666, os.makedev(1, 1))
# ptrace of a host process
must_fail("attach", syscall, 101, 16, HOST["pid"], 0, 0)
must_fail("seize", syscall, 101, 0x4206, HOST["pid"], 0, 0)
# typing into the terminal
import fcntl
for fd in (0, 1, 2):
    must_fail(fd, fcntl.ioctl, fd, 0x5412, b"x")
    for request in (0x5412, (1 << 32) | 0x5412, 0x541C, 0x5402):
        must_fail((fd, request), syscall, 16, fd, ctypes.c_uint64(request), b"x")
must_fail("tty", os.open, "/dev/tty", os.O_RDWR)
# setuid programs
import shutil
for target in ("/tmp/id", "/output/id"):
    try:
        shutil.copyfile("/usr/bin/id", target)
        os.chmod(target, 0o6755)
        said = subprocess.run([target, "-u"], capture_output=True, text=True).stdout.strip()
        if said == "0":
            escaped("setuid")
    except OSError as refused:
        print(refused)
for tool in ("su", "sudo", "mount", "newuidmap", "passwd", "chsh"):
    if path := shutil.which(tool):
        said = subprocess.run([path, "-c", "id -u"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        if said.stdout.strip() == "0":
            escaped(tool)
""",
        kept=("id",),
    ),
]

SIGNALS = [
    Attack(
        "signals_to_the_host_and_the_first_process",
        """
must_fail("term", os.kill, HOST["pid"], 15)
must_fail("kill", os.kill, HOST["pid"], 9)
must_fail("group", os.killpg, HOST["pid"], 9)
# the first process inside
os.kill(1, 9)
os.kill(1, 15)
time.sleep(0.2)
""",
    ),
    Attack(
        "signal_to_everybody",
        "if os.fork() == 0:\n    os.kill(-1, 9)\ntime.sleep(10)",
        Reason.KILLED,
    ),
]
