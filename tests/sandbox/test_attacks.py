"""Attacks on a sandbox. Each must be contained, reported by the name of the limit that ended it, and leave nothing.

An attack is a program for Python or the shell that prints BREACH where it got what it wanted. The fixture checks that
what lies outside is untouched and that neither process, control group nor directory is left.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from sandboxing import MIB, TIGHT, settings_of

from ludus.sandbox import Limits, RunResult, Sandbox, SandboxFailed, SandboxFileError, SandboxProvider

Backend = tuple[str, SandboxProvider]

HELP = """
import ctypes, errno, mmap, os, signal, socket, struct, subprocess, sys, threading, time, zlib
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *values):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(v) if isinstance(v, int) else v for v in values])
    if result >= 0: print("BREACH", number, result)
    else: print("refused", number, errno.errorcode[ctypes.get_errno()])
def attempt(function, *values):
    try: print("BREACH", function, values, repr(function(*values))[:200])
    except OSError as error: print("refused", errno.errorcode.get(error.errno, error))
"""


@dataclass(frozen=True)
class Attack:
    """One attack: its name, its program, and the limits of which one must end it; none means that it ends itself."""

    name: str
    program: str
    ends: Sequence[str] = ()
    shell: bool = False
    limits: Limits = field(default=TIGHT)

    @property
    def argv(self) -> list[str]:
        return ["sh", "-c", self.program] if self.shell else ["python3", "-c", HELP + self.program]


def sh(name: str, program: str, *ends: str, limits: Limits = TIGHT) -> Attack:
    return Attack(name, program, ends, True, limits)


def py(name: str, program: str, *ends: str, limits: Limits = TIGHT) -> Attack:
    return Attack(name, program, ends, False, limits)


SHORT = TIGHT.but(seconds=0.5)
BUSY = TIGHT.but(cpu_seconds=0.4)
LOUD = TIGHT.but(cpu_seconds=1)
"""Output above its limit is dropped, and the command goes on until this limit ends it."""

EXHAUSTION = [
    sh("fork bomb in the shell", "f() { f | f & }; f; sleep 5", "processes", "seconds", limits=SHORT),
    py("fork bomb", "while True:\n  try: os.fork()\n  except OSError: pass", "processes", "cpu_seconds"),
    py("fork bomb of sessions that ignore signals",
       "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n"
       "  except OSError: time.sleep(.001)", "processes", "cpu_seconds"),
    sh("fork bomb that gives up", "for n in $(seq 40); do sleep 1 & done; sleep 0.1", "processes"),
    py("vfork chain that only respawns", "while True:\n  try:\n    if os.fork(): os._exit(0)\n  except OSError: pass"
       , ),
    py("thread bomb", "e = threading.Event()\nwhile True:\n  try: threading.Thread(target=e.wait).start()\n"
       "  except RuntimeError: time.sleep(.05)", "processes"),
    py("memory, piece by piece", "a = []\nwhile True: a.append(bytearray(os.urandom(1) * 1_000_000))", "memory"),
    py("memory, all at once", "a = bytearray(b'x' * 10_000_000_000)", "memory", ""),
    py("memory in many processes",
       "ready, (never, _) = [], os.pipe()\nfor n in range(8):\n  r, w = os.pipe()\n"
       "  if os.fork() == 0:\n    a = bytearray(b'x' * 30_000_000); os.write(w, b'1'); os.read(never, 1)\n"
       "  os.close(w); ready.append(r)\n"
       "a = bytearray(b'x' * 30_000_000)\nfor r in ready: os.read(r, 1)", "memory"),  # returns when one is killed, too
    py("memory shared and anonymous",
       "m = mmap.mmap(-1, 400_000_000)\nfor n in range(0, 400_000_000, 4096): m[n] = 1\ntime.sleep(5)", "memory", ""),
    py("memory shared, filled and let go of",
       "held = []\nfor n in range(6):\n  m = mmap.mmap(-1, 40 << 20)\n"
       "  for at in range(0, 40 << 20, 4 << 20):\n    m[at:at + (4 << 20)] = b'x' * (4 << 20)\n"
       "    m.madvise(mmap.MADV_DONTNEED)\n  held.append(m)\nprint('BREACH')", "memory", ""),
    py("memory of /dev/zero, filled and let go of",
       "held = []\nfd = os.open('/dev/zero', os.O_RDWR)\nfor n in range(6):\n  m = mmap.mmap(fd, 40 << 20)\n"
       "  for at in range(0, 40 << 20, 4 << 20):\n    m[at:at + (4 << 20)] = b'x' * (4 << 20)\n"
       "    m.madvise(mmap.MADV_DONTNEED)\n  held.append(m)\nprint('BREACH')", "memory", ""),
    py("memory of a program whose first thread has ended",
       "def work():\n  a = []\n  for n in range(30): a.append(bytearray(b'x') * (10 << 20)); time.sleep(.03)\n"
       "  print('BREACH', flush=True); os._exit(0)\nthreading.Thread(target=work).start()\nlibc.syscall(60, 0)",
       "memory"),
    py("memory in the buffers of sockets",
       "held, total = [], 0\nfor n in range(400):\n  pair = socket.socketpair(); held.append(pair)\n"
       "  for end in pair:\n    end.setblocking(False)\n    try:\n      while True: total += end.send(b'x' * 65536)\n"
       "    except BlockingIOError: pass\nprint('BREACH')", "memory", ""),
    py("memory in files without names",
       "held = []\nwhile len(held) < 200:\n  fd = os.memfd_create('x'); held.append(fd)\n"
       "  os.write(fd, b'x' * 7_000_000)\nprint('BREACH')", "memory", ""),
    py("memory in System V segments",
       "held = 0\nlibc.shmat.restype = ctypes.c_void_p\nwhile held < 400:\n  i = libc.shmget(0, 8_000_000, 0o1600)\n"
       "  if i < 0: sys.exit(1)\n  p = libc.shmat(i, None, 0)\n  ctypes.memset(p, 1, 8_000_000)\n"
       "  libc.shmdt(ctypes.c_void_p(p)); held += 8\nprint('BREACH')", "memory", ""),
    py("memory in the buffers of sockets that were made larger",
       "held, total = [], 0\nwhile total < 200 << 20:\n  pair = socket.socketpair(); held.append(pair)\n"
       "  for end in pair:\n    end.setblocking(False)\n"
       "    try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)\n    except OSError: pass\n"
       "    try:\n      while True: total += end.send(b'x' * 65536)\n    except BlockingIOError: pass\n"
       "print('BREACH')", "memory", ""),
    py("memory in the buffers of connections",
       "held, total = [], 0\ntry: l = socket.create_server(('127.0.0.1', 0))\nexcept OSError: sys.exit(1)\n"
       "while total < 200 << 20:\n  c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
       "  held += [c, s]\n  for end in (c, s):\n    end.setblocking(False)\n    try:\n"
       "      while True: total += end.send(b'x' * 65536)\n    except BlockingIOError: pass\n"
       "print('BREACH')", "memory", ""),
    py("memory in datagrams",
       "held, total = [], 0\ntry: a = socket.socket(2, 2); a.bind(('127.0.0.1', 0))\nexcept OSError: sys.exit(1)\n"
       "while total < 200 << 20:\n  b = socket.socket(2, 2); b.bind(('127.0.0.1', 0)); held.append(b)\n"
       "  for n in range(16): total += a.sendto(b'x' * 60000, b.getsockname())\nprint('BREACH')", "memory", ""),
    py("memory in pipes",
       "import fcntl\nheld, total = [], 0\nwhile total < 200 << 20:\n  r, w = os.pipe(); held += [r, w]\n"
       "  try: fcntl.fcntl(w, 1031, 1 << 20)\n  except OSError: pass\n  os.set_blocking(w, False)\n"
       "  try:\n    while True: total += os.write(w, b'x' * 65536)\n  except BlockingIOError: pass\n"
       "print('BREACH')", "memory", ""),
    py("zip bomb into memory",
       "z = zlib.compressobj(1); s = b''.join(z.compress(bytes(1 << 20)) for _ in range(150)) + z.flush()\n"
       "kept = zlib.decompress(s)\nkept = bytearray(kept) + kept; time.sleep(5)", "memory", ""),
    py("zip bomb onto the disk",
       "z = zlib.compressobj(9); s = b''.join(z.compress(bytes(1 << 20)) for _ in range(64)) + z.flush()\n"
       "d = zlib.decompressobj(); f = open('out', 'wb', buffering=0)\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
       "while s: f.write(d.decompress(s, 1 << 20)); s = d.unconsumed_tail\nprint('BREACH')", "file_size"),
    sh("one large file", "exec dd if=/dev/full of=large bs=1048576 count=4000", "file_size"),
    sh("many files", "for n in 1 2 3 4 5 6 7 8 9; do head -c 7000000 /dev/full > f$n || exit 1; done; echo BREACH",
       "disk"),
    sh("many files in /tmp", "for n in 1 2 3 4 5 6 7 8 9; do head -c 7000000 /dev/full > /tmp/f$n || exit 1; done;"
       "echo BREACH", "disk"),
    sh("files deleted while open", "for n in 3 4 5 6 7 8 9; do eval \"exec $n>gone\"; rm gone; "
       "head -c 7000000 /dev/full >&$n || exit 1; done; echo BREACH", "disk", ""),
    py("sparse file", "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nattempt(os.truncate, os.open('s', 66), 1 << 40)"),
    py("inodes", "n = 0\nwhile n < 300_000:\n  open(str(n), 'w').close(); n += 1\nprint('BREACH')", "disk"),
    py("hard links without end", "open('a', 'w').close()\nn = 0\nwhile n < 300_000:\n  os.link('a', str(n)); n += 1\n"
       "print('BREACH')", "disk"),
    py("directories, one in the other", "n = 0\nwhile n < 300_000:\n  os.mkdir('d'); os.chdir('d'); n += 1\n"
       "print('BREACH')", "disk"),
    py("descriptors", "held = []\nwhile len(held) < 100_000: held.append(os.open('/dev/null', 0))\nprint('BREACH')"),
    sh("endless output", "yes", "output", limits=LOUD),
    sh("endless errors", "yes >&2", "output", limits=LOUD),
    sh("endless binary output", "cat /dev/urandom", "output", limits=LOUD),
    sh("endless output by a child left behind", "yes & exit 0", "output", ""),
    sh("endless output to both, from many", "for n in 1 2 3 4; do yes & yes >&2 & done; wait", "output", limits=LOUD),
    py("one line without end", "while True: os.write(1, b'x' * 65536)", "output", limits=LOUD),
    sh("endless loop", "while :; do :; done", "cpu_seconds", limits=BUSY),
    py("endless loop that ignores what can be ignored",
       "for n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
       "while True: pass", "cpu_seconds", limits=BUSY),
    py("endless loop in many processes", "for n in range(8):\n  try: os.fork()\n  except OSError: pass\n"
       "while True: pass", "cpu_seconds",
       "processes", "memory", limits=BUSY),
    py("processor time of children", "while True: subprocess.run([sys.executable, '-c', 'for n in range(400000): n'])",
       "cpu_seconds", limits=BUSY),
    py("processor time of children that nobody waits for",
       "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n  if os.fork() == 0:\n"
       "    end = time.process_time() + .1\n    while time.process_time() < end: pass\n    os._exit(0)\n"
       "  try: os.wait()\n  except ChildProcessError: pass", "cpu_seconds", limits=BUSY),
    py("slow pattern", "import re; re.match('(a+)+$', 'a' * 60 + 'b')", "cpu_seconds", limits=BUSY),
    sh("endless sleep", "sleep 1000", "seconds", limits=SHORT),
    sh("waits for input", "cat; cat /dev/full > /dev/null & wait", "seconds", "cpu_seconds", limits=SHORT),
    sh("stops itself", "kill -STOP $$", "seconds", limits=SHORT),
    sh("stops its parent", "kill -STOP $PPID; :", "seconds", "", limits=SHORT),
    py("raises its own limits",
       "import resource\nfor kind in range(16):\n  try: resource.setrlimit(kind, (-1, -1)); raised = True\n"
       "  except (OSError, ValueError): raised = False\n"
       "  if raised and kind in (0, 1, 4, 7): print('BREACH', kind)"),
]  # fmt: skip

ESCAPES = [
    py("reads passwords", "attempt(open, '/etc/shadow')"),
    py("reads a file of the machine", "attempt(open, os.environ['CANARY'])"),
    py("reads it through the root of process 1", "attempt(open, '/proc/1/root' + os.environ['CANARY'])"),
    py("reads through the old root", "for p in ('/oldroot', '/newroot', '/.ludus/stage', '/proc/self/root/..'):\n"
       "  for folder, _, files in os.walk(p):\n    if 'canary' in files: print('BREACH', folder)"),
    py("writes into the system", "for p in ('/usr/x', '/etc/x', '/x', '/bin/x', '/lib/x', '/dev/x', '/tmp/../x', "
       "'/.ludus/x', '/.ludus/inside/runner.py', sys.prefix + '/x', '/etc/passwd'): attempt(open, p, 'a')"),
    py("writes over the interpreter", "attempt(open, sys.executable, 'r+b')"),
    py("replaces what Python imports", "import encodings; attempt(open, encodings.__file__, 'a')"),
    py("writes kernel settings", "for p in ('kernel/core_pattern', 'kernel/hostname', 'vm/overcommit_memory', "
       "'kernel/ns_last_pid', 'net/ipv4/ip_forward'):\n"
       "  attempt(lambda: os.write(os.open('/proc/sys/' + p, os.O_WRONLY), b'1'))"),
    py("asks the kernel for trouble", "attempt(open, '/proc/sysrq-trigger', 'w')"),
    py("reads kernel memory", "for p in ('/proc/kcore', '/dev/mem', '/dev/kmem', '/proc/kmsg'):\n"
       "  attempt(open, p, 'rb')"),
    py("opens devices", "for p in ('/dev/sda', '/dev/vda', '/dev/tty', '/dev/kvm', '/dev/fuse', "
       "'/dev/net/tun', '/dev/vsock'): attempt(os.open, p, 2)"),
    py("makes devices", "attempt(os.mknod, 'disk', 0o60666, os.makedev(254, 0))\n"
       "attempt(os.mknod, '/tmp/mem', 0o20666, os.makedev(1, 1))"),
    py("looks into process 1", "for p in ('environ', 'mem', 'maps', 'fd', 'root', 'cwd', 'exe'):\n"
       "  attempt(os.listdir if p == 'fd' else os.readlink if p in ('root', 'cwd', 'exe') else open, '/proc/1/' + p)"),
    py("looks into process 1's sockets", "for n in range(32): attempt(os.open, f'/proc/1/fd/{n}', 2)"),
    py("kills process 1", "for n in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV):\n"
       "  try: os.kill(1, n)\n  except PermissionError: pass\nprint(os.getppid(), 'still there')"),
    py("kills everybody", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
       "try: os.kill(-1, signal.SIGTERM)\nexcept ProcessLookupError: print('nobody')"),
    py("kills its parent", "for n in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):\n"
       "  try: os.kill(os.getppid(), n)\n  except PermissionError: pass"),
    py("kills the server", "attempt(os.kill, int(os.environ['SERVER']), signal.SIGKILL)"),
    py("traces process 1", "call(101, 16, 1, 0, 0)\ncall(101, 0x4206, 1, 0, 0)"),
    py("reads the memory of process 1", "b = ctypes.create_string_buffer(64)\n"
       "v = (ctypes.c_void_p * 2)(ctypes.addressof(b), 64)\ncall(310, 1, v, 1, v, 1, 0)\ncall(311, 1, v, 1, v, 1, 0)"),
    py("steals a descriptor of process 1", "p = os.pidfd_open(1)\nfor n in range(8): call(438, p, n, 0)"),
    py("limits process 1", "b = struct.pack('QQ', 1, 1)\nfor n in (0, 7, 9): call(302, 1, n, b, None)"),
    py("mounts", "call(165, b'tmpfs', b'/tmp', b'tmpfs', 0, b'')\ncall(165, b'/', b'/tmp', None, 4096, None)\n"
       "call(165, None, b'/usr', None, 4096 | 32, None)\ncall(165, b'proc', b'/tmp', b'proc', 0, b'')"),
    py("unmounts", "for p in (b'/proc', b'/usr', b'/box', b'/etc/passwd'): call(166, p, 2)"),
    py("mounts by the new calls", "call(428, -100, b'/', 1)\ncall(430, b'tmpfs', 0)\ncall(442, -1, b'/', 0, 0, 0)"),
    py("changes root", "call(161, b'/tmp')\ncall(155, b'/', b'/tmp')"),
    py("makes namespaces", "for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, "
       "0x80): call(272, flag)"),
    py("clones into namespaces", "call(56, 0x10000000 | 17, 0, 0, 0, 0)\ncall(435, b'\\0' * 64, 64)"),
    py("joins namespaces", "for n in ('user', 'mnt', 'net', 'pid'):\n  try: f = os.open(f'/proc/1/ns/{n}', 0)\n"
       "  except OSError: f = os.open(f'/proc/self/ns/{n}', 0)\n  call(308, f, 0)"),
    py("becomes root", "for f in (os.setuid, os.setgid, os.seteuid): attempt(f, 0)\nattempt(os.setgroups, [0])\n"
       "print('BREACH' if 0 in (os.getuid(), os.geteuid(), os.getgid()) else 'no')"),
    sh("becomes root by a program with the right to", "su root -c id < /dev/null | grep uid=0 && echo BREACH; "
       "cp /bin/sh own; chmod 6755 own; ./own -p -c 'id -u' | grep -x 0 && echo BREACH; true"),
    py("regains capabilities", "for line in open('/proc/self/status'):\n"
       "  if line.startswith('Cap') and int(line.split()[1], 16): print('BREACH', line)\n"
       "  if line.startswith('NoNewPrivs') and line.split()[1] != '1': print('BREACH', line)\n"
       "call(126, struct.pack('Ii', 0x20080522, 0), struct.pack('IIIIII', 1 << 21, 1 << 21, 0, 0, 0, 0))"),
    py("uses keys", "call(248, b'user', b'x', b'y', 1, -3)\ncall(250, 0, -3, 0)\ncall(249, b'user', b'x', 0, -3)"),
    py("loads programs into the kernel", "call(321, 5, b'\\0' * 128, 128)\ncall(175, b'x', 1, b'')\n"
       "call(313, 0, b'', 0)\ncall(246, 0, 0, None, 0)\ncall(320, 0, 0, 0, b'', 0)"),
    py("uses the kernel's riskier parts", "call(323, 0)\ncall(298, b'\\0' * 128, 0, -1, -1, 0)\n"
       "call(425, 8, ctypes.create_string_buffer(256))\ncall(300, 0, 0)"),
    py("makes System V objects, which would outlive the command",
       "call(29, 0, 4096, 0o1600)\ncall(68, 0, 0o1600)\ncall(64, 0, 10, 0o1600)\n"
       "call(240, b'queue', 0o102, 0o600, None)"),
    py("starves process 1", "attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))\n"
       "attempt(os.sched_setscheduler, 1, os.SCHED_BATCH, os.sched_param(0))\n"
       "attempt(os.sched_setparam, 1, os.sched_param(0))\nattempt(os.sched_setaffinity, 1, {0})\n"
       "attempt(os.setpriority, os.PRIO_PROCESS, 1, 19)\nattempt(os.setpriority, os.PRIO_PGRP, 1, 19)\n"
       "for user in (0, os.getuid()): attempt(os.setpriority, os.PRIO_USER, user, 19)\n"
       "call(251, 1, 1, 3 << 13)\ncall(251, 2, 1, 3 << 13)\ncall(251, 3, os.getuid(), 3 << 13)\n"
       "call(314, 1, struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0)\n"
       "call(314, 1 + (1 << 32), struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0)"),
    py("has the kernel kill process 1", "import fcntl\nfor n in (9, 19): attempt(fcntl.fcntl, 0, 10, n)"),
    py("takes pages of the whole machine", "attempt(mmap.mmap, -1, 2 << 20, 0x40022)\n"
       "attempt(os.memfd_create, 'x', 5)"),
    py("makes sockets of every kind", "for f in range(46):\n  for k in range(1, 7): attempt(socket.socket, f, k)\n"
       "for f in range(2, 46): attempt(socket.socketpair, f, 1)"),
    py("takes what the whole machine has little of", "call(206, 4096, ctypes.byref(ctypes.c_ulong(0)))"),
    py("opens by handle", "call(304, -100, struct.pack('Ii8s', 8, 1, bytes(8)), 0)"),
    py("uses the old calling conventions", "pid = os.fork()\nif pid == 0:\n"
       "  libc.syscall(ctypes.c_long(0x40000000 + 39)); os._exit(0)\n"
       "print('BREACH' if os.waitpid(pid, 0)[1] == 0 else 'ended')"),
    py("changes the machine", "call(170, b'x', 1)\ncall(164, b'\\0' * 16, None)\ncall(227, 0, b'\\0' * 16)\n"
       "call(169, 0xfee1dead, 672274793, 0x1234567, None)\ncall(167, b'/tmp/x', 0)\ncall(163, b'/tmp/x')"),
    py("takes priority", "attempt(os.setpriority, 0, 0, -20)\n"
       "attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))"),
    py("locks memory", "m = mmap.mmap(-1, 1 << 24, mmap.MAP_PRIVATE)\na = (ctypes.c_char * len(m)).from_buffer(m)\n"
       "r = libc.mlock(ctypes.c_void_p(ctypes.addressof(a)), 1 << 24)\nprint('BREACH' if r == 0 else 'refused')"),
    py("connects to this machine", "attempt(socket.create_connection, ('127.0.0.1', int(os.environ['PORT'])), 1)"),
    py("connects elsewhere", "for a in ('10.0.0.1', '1.1.1.1', '169.254.169.254'):\n"
       "  attempt(socket.create_connection, (a, 80), 1)"),
    py("sends datagrams", "def send(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))\n"
       "attempt(send)"),
    py("resolves names", "attempt(socket.getaddrinfo, 'example.org', 80)"),
    py("finds network interfaces", "print('BREACH' if len(open('/proc/net/dev').readlines()) > 3 else 'alone')"),
    py("opens unusual sockets", "for f, k in ((16, 3), (17, 3), (38, 5), (40, 1), (2, 3), (15, 3), (31, 3), (44, 2)):\n"
       "  attempt(socket.socket, f, k)"),
    py("connects to an abstract socket",
       "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['ABSTRACT']))"),
    py("connects to a named socket", "attempt(lambda: socket.socket(socket.AF_UNIX).connect(os.environ['SOCKET']))"),
    py("connects to an engine or a bus", "for p in ('/run/docker.sock', '/var/run/docker.sock', "
       "'/run/systemd/private', '/run/dbus/system_bus_socket'):\n"
       "  attempt(lambda: socket.socket(socket.AF_UNIX).connect(p))"),
    py("types into a terminal", "import fcntl\nfor n in (0, 1, 2):\n  for c in (0x5412, 0x541C):\n"
       "    attempt(fcntl.ioctl, n, c, b'x')"),
    py("finds descriptors left open", "print('BREACH' if len(os.listdir('/proc/self/fd')) > 4 else 'three')\n"
       "for n in range(3, 64): attempt(os.write, n, b'{}')"),
    py("finds the server's environment", "print('BREACH' if 'server secret' in str(os.environ) else 'clean')\n"
       "for p in os.listdir('/proc'):\n  if p.isdigit():\n    try: b = open(f'/proc/{p}/environ').read()\n"
       "    except OSError: continue\n    print('BREACH' if 'LUDUS_TEST_SECRET' in b else '')"),
    sh("dumps core", "sh -c 'kill -SEGV $$'; ls | grep -i core && echo BREACH; true"),
    py("finds other processes", "print('BREACH', os.listdir('/proc')) if len([p for p in os.listdir('/proc') "
       "if p.isdigit()]) > 3 else print('alone')"),
    py("finds disks in /sys", "attempt(os.listdir, '/sys/block')\nattempt(os.listdir, '/sys/fs/cgroup')"),
]  # fmt: skip


async def attacked(backend: Backend, attack: Attack, env: dict[str, str]) -> tuple[Sandbox, RunResult]:
    kind, provider = backend
    box = await provider.create(settings_of(kind, attack.limits))
    return box, await box.run(attack.argv, env=env)


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("attack", EXHAUSTION, ids=lambda attack: attack.name)
async def test_exhaustion_is_ended_by_a_limit_that_has_a_name(
    isolating: Backend, outside: dict[str, str], attack: Attack
) -> None:
    box, result = await attacked(isolating, attack, outside)
    assert b"BREACH" not in result.stdout, result
    assert (result.limit or "") in (attack.ends or ("",)), result
    assert len(result.stdout) + len(result.stderr) <= attack.limits.output
    kind, provider = isolating
    other = await provider.create(settings_of(kind))
    assert (await other.run(["true"])).ok
    await box.aclose()


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("attack", ESCAPES, ids=lambda attack: attack.name)
async def test_nothing_outside_is_reached(isolating: Backend, outside: dict[str, str], attack: Attack) -> None:
    if isolating[0].startswith("docker") and attack.name == "finds disks in /sys":
        pytest.skip("a container sees /sys, read-only")
    box, result = await attacked(isolating, attack, outside)
    assert b"BREACH" not in result.stdout, result
    assert b"Traceback" not in result.stderr, result
    assert result.limit is None, result
    assert (await box.run(["true"])).ok


# ── against the server's own hands: files, links, snapshots ────────────────────────────────────────────────────────


LINKS = {
    "a link to a file outside": "ln -s /etc/passwd x",
    "a link to a directory outside": "ln -s /etc d; ln -s d/passwd x",
    "a link to the environment of whoever reads": "ln -s /proc/self/environ x",
    "a link to the memory of whoever reads": "ln -s /proc/self/mem x",
    "a link to endless zeros": "ln -s /dev/zero x",
    "a pipe that nobody writes": "mkfifo x",
    "a socket": "python3 -c \"import os; os.mknod('x', 0o140600)\"",
    "a link to itself": "ln -s x x",
    "a file of the largest size": "truncate -s 8388608 x",
}


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("trap", LINKS)
async def test_reading_falls_into_no_trap(isolating: Backend, trap: str) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    assert (await box.run(["sh", "-c", LINKS[trap]])).ok
    with pytest.raises(SandboxFileError):
        await box.read("x", limit=4 * MIB)
    assert (await box.run(["true"])).ok


@pytest.mark.parametrize("place", ["/", "/usr", "../usr", "..", "link", "link/bin", "nul\0"])
async def test_a_command_begins_nowhere_but_below_the_work_directory(isolating: Backend, place: str) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    assert (await box.run(["sh", "-c", "ln -s /usr link; mkdir below; ln -s below inner"])).ok
    with pytest.raises(SandboxFileError):
        await box.run(["true"], cwd=place)
    for below in ("below", "/box/below", "inner"):
        assert (await box.run(["sh", "-c", "pwd -P"], cwd=below)).text == "/box/below\n"


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("trap", ["/etc", "/proc/self", "/usr", "/", "d"])
async def test_writing_and_listing_follow_no_link(isolating: Backend, trap: str) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    await box.run(["ln", "-s", trap, "d"])
    with pytest.raises(SandboxFileError):
        await box.write("d/x", b"data")
    with pytest.raises(SandboxFileError):
        await box.list("d")
    await box.write("d", b"a file instead")
    assert await box.read("d") == b"a file instead"


async def test_writing_through_a_hard_link_leaves_the_other_name_alone(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    await box.run(["sh", "-c", "echo old > a; ln a b"])
    await box.write("b", b"new")
    assert await box.read("a") == b"old\n"
    assert not (await box.run(["sh", "-c", "ln /etc/group stolen || ln $CANARY stolen"])).ok


async def test_a_deleted_or_locked_work_directory_does_not_stop_the_box(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    assert (await box.run(["sh", "-c", "mkdir gone; cd gone; rmdir ../gone; pwd; chmod 000 $HOME; rm -rf $HOME; :"])).ok
    await box.write("again", b"here")
    assert await box.read("again") == b"here"
    with pytest.raises(SandboxFileError):
        await box.run(["true"], cwd="gone")


async def test_names_that_are_not_text_are_listed_and_do_not_break_the_wire(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    result = await box.run(["python3", "-c", "open(b'\\xff\\n', 'w').close(); open('\\u202e', 'w').close()"])
    assert result.ok, result
    assert sorted(one.name for one in await box.list()) == ["\u202e", "\udcff\n"]
    assert (await box.fork()) is not None


async def test_a_snapshot_of_sparse_files_is_refused_by_its_size(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    await box.run(["sh", "-c", "for n in 1 2 3 4 5 6; do truncate -s 8000000 s$n; done"])
    with pytest.raises(SandboxFileError, match="disk"):
        await box.snapshot()
    assert (await box.run(["true"])).ok


async def test_a_snapshot_with_links_outside_restores_inside(isolating: Backend, outside: dict[str, str]) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    await box.run(["sh", "-c", "ln -s / root; ln -s $CANARY c; mkdir d; ln -s ../../.. d/up; echo x > f; ln f g"],
                  env=outside)  # fmt: skip
    other = await box.fork()
    kinds = {one.name: one.kind for one in await other.list()}
    assert kinds == {"root": "link", "c": "link", "d": "directory", "f": "file", "g": "file"}


# ── what outlives what ─────────────────────────────────────────────────────────────────────────────────────────────


DAEMONS = {
    "left in the background": "sleep 1000 & :",
    "in a session of its own": "setsid sleep 1000 & :",
    "ignoring every signal": "(trap '' HUP INT TERM; exec setsid nohup sleep 1000) & :",
    "forked twice": 'python3 -c "import os, time\nif os.fork() == 0:\n os.setsid()\n os.fork()\n time.sleep(1000)"',
    "holding the output": "(sleep 1000; echo late) & :",
}


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_a_daemon_ends_with_its_command(isolating: Backend, daemon: str) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    result = await box.run(["sh", "-c", DAEMONS[daemon]])
    assert (result.exit_code, result.limit) == (0, None)
    seen = await box.run(["sh", "-c", "cat /proc/[0-9]*/comm"])
    assert "sleep" not in seen.text


async def test_a_program_that_kills_itself_is_reported_by_its_signal(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGPIPE):
        result = await box.run(["sh", "-c", f"kill -{number.value} $$"])
        assert (result.signal, result.exit_code, result.limit) == (number, None, None)


async def test_a_failure_on_a_disk_that_was_full_before_is_not_the_disks(isolating: Backend) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    filling = "for n in 1 2 3 4; do head -c 7000000 /dev/full > f$n; done 2>/dev/null; "
    assert (await box.run(["sh", "-c", filling + "exit 0"])).limit is None
    assert (await box.run(["sh", "-c", "exit 1"])).limit is None
    assert (await box.run(["rm", "f1"])).ok
    assert (await box.run(["sh", "-c", filling + "exit 1"])).limit == "disk"


@pytest.mark.parametrize("code", [128 + signal.SIGXCPU, 128 + signal.SIGXFSZ])
async def test_an_exit_code_like_that_of_a_limit_names_none(isolating: Backend, code: int) -> None:
    box = await isolating[1].create(settings_of(isolating[0]))
    result = await box.run(["sh", "-c", f"exit {code}"])
    assert (result.exit_code, result.signal, result.limit) == (code, None, None)


FAMILY = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
waits = sys.argv[1] == "waited for"
done, alive = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        if os.fork() == 0: burn(.15); os._exit(0)
        if waits: os.wait()
        burn(.05); os._exit(0)
    if waits: os.wait()
os.close(alive)
os.read(done, 1)
"""


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("children", ["waited for", "left"])
async def test_processor_time_of_children_is_counted_once(isolating: Backend, children: str) -> None:
    """The family takes 0.8 s, which does not fit in 0.5 s; counted twice, it would not fit in 1.4 s either."""
    box = await isolating[1].create(settings_of(isolating[0]))
    for seconds, limit in ((0.5, "cpu_seconds"), (1.4, None)):
        result = await box.run(["python3", "-c", FAMILY, children], limits=TIGHT.but(cpu_seconds=seconds))
        assert result.limit == limit, result


async def test_many_attacks_at_once_leave_the_server_answering(isolating: Backend) -> None:
    kind, provider = isolating
    bombs = ["while :; do :; done", "f() { f | f & }; f; wait", "yes | head -c 9000000", "sleep 100"]
    other, *boxes = [await provider.create(settings_of(kind, TIGHT.but(cpu_seconds=30))) for _ in range(5)]
    running = [asyncio.create_task(box.run(["sh", "-c", bomb])) for box, bomb in zip(boxes, bombs, strict=True)]
    for _ in range(5):
        assert (await other.run(["true"])).ok
    assert not running[0].done() or not running[3].done(), "others had their turn while it went on"
    assert (await running[2]).limit == "output"
    await asyncio.gather(*(box.aclose() for box in boxes))
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_box_whose_first_process_is_killed_fails_and_is_not_handed_out(isolating: Backend) -> None:
    kind, provider = isolating
    settings = settings_of(kind, warm=1)
    await provider.prepare(settings)
    box = await provider.create(settings)
    await (box._process.end() if kind.startswith("bubblewrap") else box.aclose())  # type: ignore[attr-defined]
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    assert (await (await provider.create(settings)).run(["true"])).ok
