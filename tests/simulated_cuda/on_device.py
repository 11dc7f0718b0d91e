"""Runs a script of the host with device "cuda": tensors created without a device are created on cuda:0, with the values that the
host would draw.

    on_device.py SCRIPT ARGS...
"""

import sys
import threading

from simulate import run
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

CONSTRUCTORS = _device_constructors()


class OnDevice(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function not in CONSTRUCTORS or kwargs.get("device") is not None:
            return function(*args, **kwargs)
        if kwargs.get("generator") is None:
            return function(*args, **kwargs | {"device": "cuda"})
        leaf = kwargs.pop("requires_grad", False)  # the host's generator draws there
        return function(*args, **kwargs).cuda().requires_grad_(leaf)


def enter_in_threads():
    """Enters the mode in each new thread, because modes belong to threads."""
    of_thread = threading.Thread.run

    def run_on_device(self):
        with OnDevice():
            of_thread(self)

    threading.Thread.run = run_on_device


if __name__ == "__main__":
    enter_in_threads()
    with OnDevice():
        code = run(sys.argv[1], sys.argv[2:])
    sys.exit(code)
