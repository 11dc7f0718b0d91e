"""Runs scripts in forks of one interpreter that has imported torch: importing it is most of what a small
script's process costs. For stock legs only; what runs under Pleat gets an interpreter of its own.

Imported by the tests: ForkServer. Run by it, in the interpreter of the scripts: the server itself.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

LONGEST_REQUEST = 1 << 16


class ForkServer:
    """Requests may come from several threads; their scripts run at the same time."""

    def __init__(self, python, environment, folder):
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [python, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment,
                cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def run(self, script, args, variables, timeout):
        """Runs `script` as __main__ with `variables` added to the environment: its output, its errors and its
        exit code as subprocess gives them, None if it was ended after `timeout` seconds."""
        request = json.dumps({"argv": [str(script), *map(str, args)], "variables": variables}).encode()
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as status, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                socket.send_fds(self.requests, [request], [out.fileno(), err.fileno(), writing])
            finally:
                os.close(writing)
            group = int(self._line(status, None))  # comes when torch is imported
            code = self._line(status, time.monotonic() + timeout)
            if code is None:
                os.killpg(group, signal.SIGKILL)
            out.seek(0), err.seek(0)
            return out.read(), err.read(), None if code is None else int(code)

    def _line(self, status, deadline):
        line = b""
        while not line.endswith(b"\n"):
            left = None if deadline is None else max(0, deadline - time.monotonic())
            if not select.select([status], [], [], left)[0]:
                return None
            more = status.read(64)
            if not more:
                raise RuntimeError(f"the server of forked scripts ended: exit code {self.process.poll()}")
            line += more
        return line

    def close(self):
        self.requests.close()
        self.process.wait()


# The server: a fork for each request becomes the script's parent, tells how it ended and is gone.


def serve(requests):
    """The next request whose script this process is to run; None in the server, when no more will come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the parents
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
        if not message:
            return None
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return become_script(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def become_script(request, stdout, stderr, status):
    os.setsid()
    os.write(status, b"%d\n" % os.getpid())
    child = os.fork()
    if child:
        _, how = os.waitpid(child, 0)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(how))
        os._exit(0)
    for descriptor, place in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.close(status)
    os.environ.update(request["variables"])
    return request["argv"]


if __name__ == "__main__":
    import pleat_test_support  # noqa: F401, and torch with it

    argv = serve(socket.socket(fileno=int(sys.argv[1])))
    if argv:
        sys.argv = argv
        sys.path[0] = os.path.dirname(argv[0])
        __file__ = argv[0]
        with open(__file__) as source:
            program = compile(source.read(), __file__, "exec", dont_inherit=True)
        exec(program)
