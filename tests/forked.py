"""Runs scripts in forks of one interpreter that has imported torch: the import is most of the cost of a small script's
process.

Under libpleat.so that interpreter imports torch with PLEAT_DISABLE=1. A fork removes that variable and registers torch's
engine with libpleat.so once more (whole_process/late_start.c). There Pleat starts as in any Python process: it reads its
options, opens the bridge and installs it.

An interpreter with torch takes 0.3 seconds to wind down, most of the cost of a small script in a fork. So a fork whose
script succeeded runs the `atexit` functions and ends, unless its request sets wind_down.

A script requested with `start=False` runs before Pleat has started: it does its imports, forks, and each of its forks calls
start_pleat().

Imported by the tests: ForkServer, variables_of. Imported by such scripts: start_pleat. Run by it, in the interpreter of the
scripts: the server itself.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

LONGEST_REQUEST = 1 << 16
START_SECONDS = 600  # torch's import, on a busy machine


class ForkServer:
    """Requests may come from several threads, and from all processes that name the same address; their scripts run at the
    same time.

    address: where the server listens. The first caller starts it and waits for its end, which comes once all callers
             have closed.
    library, late_start: paths of libpleat.so and of the library that starts it in a fork; None: stock."""

    def __init__(self, address, python, environment, folder, library=None, late_start=None):
        if library:
            environment = environment | {"PLEAT_DISABLE": "1", "LD_PRELOAD": f"{late_start}:{library}"}
        self.requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = None
        with entrance(address):
            try:
                self.requests.connect(address)
                return
            except (FileNotFoundError, ConnectionRefusedError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(address)
                listener.listen()
                self.process = subprocess.Popen(
                    [python, __file__, address, str(listener.fileno())], pass_fds=[listener.fileno()],
                    env=environment, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                self.requests.connect(address)

    def run(self, script, args, variables, timeout, wind_down=True, start=True):
        """Runs `script` as __main__ with `variables` added to the environment: its output, its errors, its exit
        code as subprocess gives them, None if it was ended after `timeout` seconds, and its CPU seconds.
        start: whether Pleat starts before the script does."""
        request = {"argv": [str(script), *map(str, args)], "variables": variables, "wind_down": wind_down, "start": start}
        request = json.dumps(request).encode()
        assert len(request) <= LONGEST_REQUEST, "a script like this one needs an interpreter of its own"
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as status, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                socket.send_fds(self.requests, [request], [out.fileno(), err.fileno(), writing])
            finally:
                os.close(writing)
            started = self._line(status, START_SECONDS)  # comes when torch is imported
            if started is None:
                raise RuntimeError(f"no script forked within {START_SECONDS} s")
            ended = self._line(status, timeout)
            if ended is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(started[0]), signal.SIGKILL)
            code, cpu_seconds = (int(ended[0]), float(ended[1])) if ended else (None, 0.0)
            out.seek(0)
            err.seek(0)
            return out.read(), err.read(), code, cpu_seconds

    @staticmethod
    def _line(status, seconds):
        """The words of the next line; None if it does not come within `seconds`."""
        line, deadline = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            if not select.select([status], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            byte = status.read(1)  # the next line may be there already
            if not byte:
                raise RuntimeError("the server of forked scripts, or a script's parent, ended")
            line += byte
        return line.split()

    @property
    def ended(self):
        """Whether the server has ended, whichever process started it."""
        poll = select.poll()
        poll.register(self.requests, 0)
        return bool(poll.poll(0))

    def hang_up(self):
        """No more requests from here."""
        self.requests.close()

    def wait(self):
        """Waits for the server's end, if this process started it: until all callers have hung up."""
        if self.process:
            self.process.wait()


def close_all(servers):
    """Hangs up at all servers before it waits for any: a process that waits for one server while its call at a second one is
    open can deadlock with others."""
    servers = list(servers)
    for server in servers:
        server.hang_up()
    for server in servers:
        server.wait()


@contextlib.contextmanager
def entrance(address):
    """Held by one process at a time: a caller of the server, or the server while it checks whether it can end."""
    with open(address + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# The server: a fork for each request becomes the script's parent, reports its result and ends. The server waits for its
# forks, so that their CPU seconds are counted.


def serve(address, listener):
    """The next request whose script this process is to run; None in the server, when no more will come."""
    signal.signal(signal.SIGCHLD, lambda *_: reap(os.WNOHANG))
    callers = []
    while callers or somebody_calls(address, listener):
        for ready in select.select([listener, *callers], [], [])[0]:
            if ready is listener:
                callers.append(listener.accept()[0])
                continue
            message, descriptors, _, _ = socket.recv_fds(ready, LONGEST_REQUEST, 3)
            if not message:
                callers.remove(ready)
                ready.close()
            elif os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for connection in (listener, *callers):
                    connection.close()
                return become_script(json.loads(message), *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    reap(0)
    return None


def somebody_calls(address, listener):
    """Whether a connection waits to be accepted. If none does, none will."""
    with entrance(address):
        if select.select([listener], [], [], 0)[0]:
            return True
        os.unlink(address)
        return False


def reap(options):
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def become_script(request, stdout, stderr, status):
    os.setsid()
    os.write(status, b"%d\n" % os.getpid())
    child = os.fork()
    if child:
        _, how, used = os.wait4(child, 0)
        cpu_seconds = used.ru_utime + used.ru_stime
        os.write(status, b"%d %.3f\n" % (os.waitstatus_to_exitcode(how), cpu_seconds))
        os._exit(0)
    for descriptor, place in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.close(status)
    if request["start"]:
        start_pleat(request["variables"])
    else:
        os.environ.update(request["variables"])
    return request


OPTIONS_OF_TESTS = re.compile(
    r"(?:^|,)((?:rule|copy_raw|verify):[^,]*|sensitivity:(?:exact|gact|gact_code))(?=,|$)"
)


def variables_of(conf):
    """The options of a test as Pleat reads them: those that no user may set stand in PLEAT_TEST_CONF."""
    of_tests = ",".join(OPTIONS_OF_TESTS.findall(conf))
    of_user = OPTIONS_OF_TESTS.sub("", conf).removeprefix(",")
    return {"PLEAT_CONF": of_user} | ({"PLEAT_TEST_CONF": of_tests} if of_tests else {})


def start_pleat(variables):
    """Starts Pleat in this process, a fork of the server, with `variables` added to the environment. In a fork of stock
    only the environment changes."""
    late_start, colon, library = os.environ.get("LD_PRELOAD", "").partition(":")
    if colon:
        os.environ["LD_PRELOAD"] = library
        del os.environ["PLEAT_DISABLE"]
    os.environ.update(variables)
    if colon and not ctypes.PyDLL(late_start).pleat_test_start():
        raise RuntimeError("torch has not told its engine")


def end_here():
    """Ends the process of a script that has ended well, without a walk through all that torch has allocated."""
    import atexit, os, sys, threading  # noqa: E401, the names of this module are the script's by now

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    import pleat_test_support  # noqa: F401, and torch with it
    import torch._dynamo  # noqa: F401, which the first step of an optimizer does: most of a small training's time

    # Excludes the present objects from collection: an ending fork would walk all of them, copying page by page (1.5 s).
    gc.collect()
    gc.freeze()
    request = serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
    if request:
        sys.argv = request["argv"]
        sys.path[0] = os.path.dirname(sys.argv[0])
        __file__ = sys.argv[0]
        with open(__file__) as source:
            program = compile(source.read(), __file__, "exec", dont_inherit=True)
        __end__ = None if request["wind_down"] else end_here
        for name in [name for name in globals() if not name.startswith("__") and name != "program"]:
            del globals()[name]  # a script has only its own imports
        exec(program)
        if __end__:
            __end__()
