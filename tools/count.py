#!/usr/bin/env python3
"""Runs a command and waits for all that comes of it, also for what a test has left behind as a process of its own, so
that the caller's count of its children's CPU seconds holds it. What still runs a while after the command is named and
ended.

    count.py COMMAND [ARGUMENT...]      exit code: the command's
"""

import ctypes
import os
import pathlib
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
WAIT_SECONDS = 10  # for what ends by itself when its parent is gone


def children():
    """(pid, command line) of all children of this process that still run."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = status.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                words = (status.parent / "cmdline").read_bytes().split(b"\0")
                found.append((int(status.parent.name), b" ".join(words).decode(errors="replace")[:200]))
        except OSError:
            pass  # it has ended
    return found


def reap(seconds):
    """Waits for children so long. True if none is left."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
    except ChildProcessError:
        return True
    return False


def main(command):
    if not command:
        sys.exit(__doc__)
    # What loses its parent becomes a child of this process, and not of the machine's first.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:  # no Popen, which waits for its child when nobody holds it any more
        child = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    if not reap(WAIT_SECONDS):
        for pid, words in children():
            print(f"left behind and ended: process {pid}: {words}", file=sys.stderr)
        while not reap(0.2):  # what they leave behind in turn as well
            for pid, _ in children():
                os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
