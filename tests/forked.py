"""Runs scripts in forks of one interpreter that has imported torch: importing it is most of what a small
script's process costs.

Under libpleat.so that interpreter imports torch with PLEAT_DISABLE=1. A fork takes that away and has
libpleat.so told of torch's engine once more (whole_process/late_start.c), which is where it starts in any
Python process: there it reads its options, opens the bridge and installs it.

Imported by the tests: ForkServer. Run by it, in the interpreter of the scripts: the server itself.
"""

import contextlib
import ctypes
import gc
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
START_SECONDS = 300  # torch's import, on a busy machine


class ForkServer:
    """Requests may come from several threads; their scripts run at the same time.

    library, late_start: paths of libpleat.so and of what starts it in a fork; None: stock."""

    def __init__(self, python, environment, folder, library=None, late_start=None):
        if library:
            environment = environment | {"PLEAT_DISABLE": "1", "LD_PRELOAD": f"{late_start}:{library}"}
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
        assert len(request) <= LONGEST_REQUEST, "a script like this one needs an interpreter of its own"
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as status, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                socket.send_fds(self.requests, [request], [out.fileno(), err.fileno(), writing])
            finally:
                os.close(writing)
            group = self._number(status, START_SECONDS)  # comes when torch is imported
            if group is None:
                raise RuntimeError(f"no script forked within {START_SECONDS} s")
            code = self._number(status, timeout)
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            out.seek(0)
            err.seek(0)
            return out.read(), err.read(), code

    @staticmethod
    def _number(status, seconds):
        """The next line; None if it does not come within `seconds`."""
        line, deadline = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            if not select.select([status], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            byte = status.read(1)  # the next line may be there already
            if not byte:
                raise RuntimeError("the server of forked scripts, or a script's parent, ended")
            line += byte
        return int(line)

    @property
    def ended(self):
        return self.process.poll() is not None

    def close(self):
        self.requests.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
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
    late_start, colon, library = os.environ.get("LD_PRELOAD", "").partition(":")
    if colon:
        os.environ["LD_PRELOAD"] = library
        del os.environ["PLEAT_DISABLE"]
    os.environ.update(request["variables"])
    if colon and not ctypes.PyDLL(late_start).pleat_test_start():
        raise RuntimeError("torch has not told its engine")
    return request["argv"]


if __name__ == "__main__":
    import pleat_test_support  # noqa: F401, and torch with it
    import torch._dynamo  # noqa: F401, which the first step of an optimizer does: most of a small training's time

    # What is there is nobody's to collect: a fork that ends walks all of it else, copying it page by page (1.5 s).
    gc.collect()
    gc.freeze()
    argv = serve(socket.socket(fileno=int(sys.argv[1])))
    if argv:
        sys.argv = argv
        sys.path[0] = os.path.dirname(argv[0])
        __file__ = argv[0]
        with open(__file__) as source:
            program = compile(source.read(), __file__, "exec", dont_inherit=True)
        for name in [name for name in globals() if not name.startswith("__") and name != "program"]:
            del globals()[name]  # a script has what it imports
        exec(program)
