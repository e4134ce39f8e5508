"""Attacks by background processes and on terminals. Each must be contained, reported by name, and leave nothing.

An attack is a program that prints BREACH where it got what it wanted. It runs next to a process that must not notice:
after the attack, that process answers, commands run, and the attacker ends when it is killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from attacking import ATTEMPT
from sandboxing import MIB, TIGHT, settings_of

from ludus.sandbox import (
    Limits,
    ProcessEnd,
    Sandbox,
    SandboxFileError,
    SandboxLimitReached,
    SandboxProvider,
)

Backend = tuple[str, SandboxProvider]

LIMITS = TIGHT.but(spawned_seconds=60, spawned_cpu_seconds=2, spawned_output=4 * MIB)
SHORT = LIMITS.but(spawned_seconds=0.5)


@dataclass(frozen=True)
class Attack:
    """One attack: its name, its program, and the limits of which one must end it; none: it ends itself or is killed."""

    name: str
    program: str
    ends: Sequence[str] = ()
    limits: Limits = field(default=LIMITS)
    terminal: bool = False
    spares: bool = True
    """Whether the process next to it lives on; an attacker may end what belongs to its own user in its own sandbox."""


def att(name: str, program: str, *ends: str, limits: Limits = LIMITS, spares: bool = True) -> Attack:
    return Attack(name, program, ends, limits, False, spares)


def tty(name: str, program: str, *ends: str, limits: Limits = LIMITS) -> Attack:
    return Attack(name, program, ends, limits, True)


ATTACKS = [
    att("it ignores every signal that it can",
        "for n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
        "while True: pass", "seconds", limits=SHORT),
    att("it stops itself, so that it uses no time", "os.kill(os.getpid(), signal.SIGSTOP)", "seconds", limits=SHORT),
    att("fork bomb", "while True:\n  try: os.fork()\n  except OSError: pass", "processes", "cpu_seconds"),
    att("fork bomb whose first process ends at once",
        "if os.fork(): os._exit(0)\nwhile True:\n  try: os.fork()\n  except OSError: pass"),
    att("fork bomb of sessions that only respawn",
        "while True:\n  try:\n    if os.fork(): os._exit(0)\n    os.setsid()\n  except OSError: pass", spares=False),
    att("thread bomb", "e = threading.Event()\nwhile True:\n  try: threading.Thread(target=e.wait).start()\n"
        "  except RuntimeError: time.sleep(.05)", "processes"),
    att("memory, piece by piece", "a = []\nwhile True: a.append(bytearray(os.urandom(1) * 1_000_000))", "memory"),
    att("processor time in children", "for n in range(4): os.fork()\nwhile True: pass", "cpu_seconds", "processes"),
    att("processor time in children that are not waited for",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n  if os.fork() == 0:\n    end = time.time() + .2\n"
        "    while time.time() < end: pass\n    os._exit(0)\n  time.sleep(.2)", "cpu_seconds", "seconds",
        limits=LIMITS.but(spawned_cpu_seconds=0.5, spawned_seconds=10)),
    att("output without end", "while True: os.write(1, b'x' * 65536)", "output"),
    att("output without end on both streams",
        "while True: os.write(1, b'x' * 6000); os.write(2, b'y' * 6000)", "output"),
    att("it kills its keeper and goes on in a new session",
        "if os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\n  os.kill(keeper, 9)\n"
        "  while not os.path.exists('/box/over'): time.sleep(.01)\n  open('/box/breach', 'w')\nforever()"),
    att("it stops its keeper and ends", "os.kill(keeper, signal.SIGSTOP)\nos._exit(3)"),
    att("it sends every signal to its keeper",
        "for n in range(1, 32):\n  if n not in (9, 19): os.kill(keeper, n)\nprint('sent', flush=True)\nforever()"),
    att("it sends every signal to the first process",
        "for n in range(1, 65):\n  try: os.kill(1, n)\n  except OSError: pass\nprint('sent', flush=True)"),
    att("it kills everything", "os.kill(-1, signal.SIGKILL)", spares=False),
    att("it stops everything", "os.kill(-1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)", "seconds",
        limits=SHORT, spares=False),
    att("it looks into its keeper and the first process",
        "for pid in (1, keeper):\n"
        "  for name in ('mem', 'environ', 'maps', 'fd/3', 'cwd', 'root/etc', 'ns/net', 'io'):\n"
        "    attempt(open, f'/proc/{pid}/{name}', 'rb')\n    attempt(os.listdir, f'/proc/{pid}/fd')\n"
        "    attempt(os.readlink, f'/proc/{pid}/exe')"),
    att("it traces its keeper", "for pid in (1, keeper):\n"
        "  if libc.ptrace(16, pid, 0, 0) == 0: print('BREACH', pid)\n"
        "  b = ctypes.create_string_buffer(8)\n"
        "  io = (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)\n"
        "  if libc.process_vm_readv(pid, io, 1, io, 1, 0) >= 0: print('BREACH', pid)"),
    att("it takes descriptors of its keeper",
        "for pid in (1, keeper):\n  p = os.pidfd_open(pid)\n  for n in range(20):\n"
        "    if libc.syscall(438, p, n, 0) >= 0: print('BREACH', pid, n)"),
    att("it has inherited descriptors", "found = sorted(map(int, os.listdir('/proc/self/fd')))\n"
        "if found[:-1] != [0, 1, 2]: print('BREACH', found)"),
    att("it raises its limits", "for kind in range(16):\n  soft, hard = resource.getrlimit(kind)\n"
        "  if hard != -1:\n    try: resource.setrlimit(kind, (hard + 1, hard + 1)); print('BREACH', kind)\n"
        "    except (ValueError, OSError): pass\n  if libc.prlimit(keeper, kind, 0, 0) == -1: continue"),
    att("it changes the priority of its keeper's parent",
        "attempt(os.setpriority, 0, 1, 19)\nattempt(os.sched_setaffinity, 1, {0})"),
    att("it closes everything and goes on", "os.closerange(0, 256)\n"
        "while True: time.sleep(1)", "seconds", limits=SHORT),
    att("it gives its output away, so that it does not end",
        "a, b = socket.socketpair()\nif os.fork() == 0:\n  os.setsid()\n  fds = socket.recv_fds(b, 1, 2)[1]\n"
        "  forever()\n"
        "socket.send_fds(a, [b'x'], [1, 2])\nos._exit(0)"),
    att("it fills the disk and keeps the file open",
        "f = open('/box/full', 'wb', 0)\ntry:\n  while True: f.write(b'x' * 100_000)\n"
        "except OSError: os.unlink('/box/full')\n"
        "print('full', flush=True)\nforever()", limits=LIMITS.but(file_size=64 * MIB)),
    att("it fills the disk with names",
        "try:\n  for n in range(10**6): open(f'/tmp/{n}', 'x').close()\nexcept OSError: print('full', flush=True)"),
    att("it opens every descriptor", "held = []\ntry:\n  while True: held.append(os.dup(0))\n"
        "except OSError: print('full', flush=True)\nforever()"),
    att("it holds local sockets full of data",
        "held = []\ntry:\n  while True:\n"
        "    pair = socket.socketpair(); held.append(pair); pair[0].setblocking(False)\n"
        "    try:\n      while True: pair[0].send(b'x' * 65536)\n    except BlockingIOError: pass\n"
        "except OSError: print('full', flush=True)\n"
        "forever()", "memory", "seconds", limits=LIMITS.but(spawned_seconds=3)),
    att("it takes the name of the program inside", "libc.prctl(15, b'ludus.sandbox')\n"
        "sleep = ['-c', 'import time; time.sleep(60)']\n"
        "os.execv(sys.executable, ['/python', *sleep, 'ludus.sandbox.inside', 'ludus-1-1-1'])"),
    tty("it types into its terminal", "for c in b'echo BREACH\\n':\n  attempt(fcntl.ioctl, 0, 0x5412, bytes([c]))"),
    tty("it selects a line discipline",
        "for number in (1, 2, 3, 4, 13, 15, 16, 17, 21, 25, 27):\n"
        "  attempt(fcntl.ioctl, 0, 0x5423, struct.pack('i', number))"),
    tty("it takes the machine's console",
        "attempt(fcntl.ioctl, 0, 0x541D)\nattempt(fcntl.ioctl, 0, 0x541C, bytes([2]) + bytes(7))\n"
        "attempt(fcntl.ioctl, 0, 0x5437)\n"
        "for name in ('console', 'tty0', 'tty1', 'vcs', 'vcsa', 'ttyS0', 'kmsg'): attempt(open, '/dev/' + name, 'rb')"),
    tty("it has inherited descriptors", "found = sorted(map(int, os.listdir('/proc/self/fd')))\n"
        "if found[:-1] != [0, 1, 2]: print('BREACH', found)"),
    tty("it reserves its terminal and makes it deaf",
        "fcntl.ioctl(0, 0x540C)\n"
        "a = termios.tcgetattr(0); a[3] = 0; a[2] &= ~termios.CREAD; termios.tcsetattr(0, 0, a)\n"
        "termios.tcflow(0, termios.TCOOFF)\nforever()"),
    tty("it never reads what is typed", "signal.pause()"),
    tty("it gives its terminal up and takes another session",
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfcntl.ioctl(0, termios.TIOCNOTTY)\n"
        "if os.fork() == 0:\n  os.setsid()\n  forever()\nos._exit(0)"),
]  # fmt: skip


async def made(backend: Backend) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, LIMITS))


async def settled(box: Sandbox, attack: Attack) -> tuple[bytes, ProcessEnd]:
    """What an attack writes, and how it ends: by itself, by its limit, or killed when it has had its time."""
    argv = ["python3", "-c", ATTEMPT + attack.program]
    if attack.terminal:
        terminal = await box.open_terminal(argv, limits=attack.limits)
        process = terminal.process
        with suppress(Exception):
            await asyncio.wait_for(terminal.write("typed " * 2000), 2)
    else:
        process = await box.spawn(argv, limits=attack.limits)
    reading = [asyncio.create_task(stream.read_all(64 * MIB)) for stream in (process.stdout, process.stderr)]
    try:
        await asyncio.wait_for(process.wait(), 60 if attack.ends else 3)
    except TimeoutError:
        pass
    end = await process.kill()
    written = b"".join([await asyncio.wait_for(task, 30) for task in reading])
    return written, end


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_a_background_process_that_attacks_is_contained(isolating_spawn: Backend, attack: Attack) -> None:
    async with await made(isolating_spawn) as box:
        witness = await box.spawn(["cat"])
        await witness.write(b"begun\n")  # once it answers, it is smaller than any attacker that takes memory
        assert await asyncio.wait_for(witness.stdout.read_line(), 30) == b"begun\n"
        written, end = await settled(box, attack)
        with suppress(SandboxFileError):  # an attacker has filled the disk
            await box.write("over", b"")  # an attacker that goes on waits for this file
        assert b"BREACH" not in written
        if attack.ends:
            assert end.limit in attack.ends, (end, written[-300:])
        assert len(written) <= attack.limits.spawned_output + 64 * 1024
        if attack.spares:
            await witness.write(b"here\n")
            assert await asyncio.wait_for(witness.stdout.read_line(), 30) == b"here\n"
        await witness.aclose()
        after = await box.run(["sh", "-c", "ls /proc | grep -c '^[0-9]'; echo ok"])
        assert after.text.split()[-1] == "ok"
        assert int(after.text.split()[0]) <= 5, "processes of the attack are left"
        with pytest.raises(SandboxFileError):
            await box.read("breach")


async def test_an_attacker_that_uses_all_processes_gets_no_failure_of_the_machine(isolating_spawn: Backend) -> None:
    """Otherwise a policy could choose that its episode is unscored."""
    program = (
        "held = 0\nwhile held < 23:\n  try:\n    if os.fork() == 0: forever()\n    held += 1\n  except OSError: break\n"
    )
    async with await made(isolating_spawn) as box:
        process = await box.spawn(["python3", "-c", ATTEMPT + program + "print('up', flush=True)\nforever()"])
        line = asyncio.create_task(process.stdout.read_line())
        await asyncio.wait((line, asyncio.create_task(process.wait())), return_when=asyncio.FIRST_COMPLETED)
        for _ in range(3):
            result = await box.run(["sh", "-c", "sleep 0.01 & sleep 0.01 & wait"])
            assert result.ok or result.limit == "processes" or result.exit_code, result
            with suppress(SandboxLimitReached):
                await (await box.spawn(["true"])).wait()
        await process.aclose()
        line.cancel()
        assert (await box.run(["true"])).ok


async def test_paths_that_change_while_files_are_used_do_not_lead_out(isolating_spawn: Backend) -> None:
    swap = (
        "n = 0\nos.makedirs('/box/d', exist_ok=True); open('/box/d/f', 'w').write('mine')\n"
        "while True:\n"
        "  for target in ('/etc/passwd', '/proc/1/environ', '/proc/self/mem', '/proc/1/fd/3'):\n"
        "    try:\n"
        "      os.rename('/box/d', '/box/e'); os.symlink(os.path.dirname(target), '/box/d'); os.unlink('/box/d')\n"
        "      os.rename('/box/e', '/box/d'); os.symlink(target, '/box/l'); os.rename('/box/l', '/box/d/f')\n"
        "      open('/box/l', 'w').write('mine'); os.rename('/box/l', '/box/d/f')\n"
        "    except OSError:\n"
        "      try: os.rename('/box/e', '/box/d')\n"
        "      except OSError: pass\n"
    )
    limits = LIMITS.but(spawned_cpu_seconds=30)
    async with await made(isolating_spawn) as box:
        await box.spawn(["python3", "-c", ATTEMPT + swap], limits=limits)
        for number in range(60):
            with suppress(SandboxFileError):
                assert await box.read("d/f") in (b"mine", b"", b"written")
            with suppress(SandboxFileError):
                await box.write("d/f", b"written")
            with suppress(SandboxFileError):
                await box.list("d")
            if number % 20 == 0:
                with suppress(SandboxFileError):
                    await box.restore(await box.snapshot())
        assert (await box.run(["cat", "/etc/hostname"])).exit_code is not None


async def test_a_hundred_processes_one_after_another_leave_no_descriptor_in_the_program_inside(
    isolating_spawn: Backend,
) -> None:
    async with await made(isolating_spawn) as box:
        held = []
        for number in range(100):
            process = await box.spawn(["sh", "-c", "echo out; echo err >&2"])
            await process.wait()
            if number % 2:
                await process.stdout.read_all()
                await process.stderr.read_all()
            await process.aclose()
            if number in (10, 99):
                await box.list()  # after it, the program inside has heard that the process is not used any more
                pid = getattr(getattr(box, "_process", None), "_pid", None)
                held.append(len(os.listdir(f"/proc/{pid}/fd")) if pid and os.geteuid() == 0 else 0)
        assert held[0] == held[1]
