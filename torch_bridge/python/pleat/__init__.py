"""Pleat: PyTorch training in a fraction of its memory, with no change to the script.

The usual way needs none of this: ``pleat run -- python train.py``. This package is for scripts and
notebooks that switch Pleat on by hand::

    import torch, pleat
    pleat.enable(bits=4)      # from here on; tensors that exist already are left alone
    ...
    print(pleat.report())

Everything here is thin: the work is done by the bridge library of the torch that is installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import re
import sys
from typing import Any, Iterator

__all__ = [
    "enable", "disable", "is_enabled", "stats", "profile", "report", "reset_peaks", "exempt", "linear", "trace", "PleatError",
]
__version__ = "0.1.0"

_bridge: ctypes.CDLL | None = None
_linear: dict[type, bool] = {}  # classes of nodes, and whether they close; never given up


class PleatError(RuntimeError):
    """Pleat cannot be switched on: the message says why and what to do."""


def _library_directories() -> Iterator[pathlib.Path]:
    here = pathlib.Path(__file__).resolve().parent
    if "PLEAT_LIB_DIR" in os.environ:
        yield pathlib.Path(os.environ["PLEAT_LIB_DIR"])
    yield here / "lib"
    # A checkout: torch_bridge/python/pleat beside build/lib.
    yield here.parents[2] / "build" / "lib"


def _mapped_bridge() -> str | None:
    """The bridge that the preload library has already put into this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                path = line.rstrip("\n").split(None, 5)[-1]
                if "/libpleat_bridge_torch" in path:
                    return path
    except OSError:
        pass
    return None


def _find_bridge() -> str:
    import torch

    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    name = f"libpleat_bridge_torch{match[1]}.{match[2]}.so" if match else "libpleat_bridge_torch?.so"
    looked = []
    for directory in _library_directories():
        looked.append(str(directory))
        if (directory / name).is_file():
            return str(directory / name)
    raise PleatError(
        f"no bridge for torch {torch.__version__}: {name} is not in {' or '.join(looked)}; "
        "build Pleat with this interpreter (-DPLEAT_PYTHON=...) or set PLEAT_LIB_DIR"
    )


def _load() -> ctypes.CDLL:
    global _bridge
    if _bridge is not None:
        return _bridge
    path = _mapped_bridge()
    if path is None:
        import torch  # noqa: F401  the bridge resolves against the torch that is loaded

        path = _find_bridge()
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.pleat_stats_json.restype = ctypes.c_size_t
    library.pleat_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.pleat_profile_json.restype = ctypes.c_size_t
    library.pleat_profile_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.pleat_report_text.restype = ctypes.c_size_t
    library.pleat_report_text.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.pleat_trust_class.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.pleat_enable.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.pleat_trace_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.pleat_trace_dump.argtypes = [ctypes.c_char_p]
    library.pleat_trace_dump.restype = None
    library.pleat_trace_path.restype = ctypes.c_size_t
    library.pleat_trace_path.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    _bridge = library
    return library


def _loaded() -> ctypes.CDLL | None:
    """The bridge, if it is in this process."""
    return _load() if _bridge is not None or _mapped_bridge() is not None else None


def _install(library: ctypes.CDLL) -> None:
    if library.pleat_is_installed():
        return
    if library.pleat_install_late() != 0:
        raise PleatError("the bridge refused to install; its reason is on stderr")
    _watch_backward(library)
    for node_class, closes in _linear.items():
        library.pleat_trust_class(id(node_class), closes)


def _watch_backward(library: ctypes.CDLL) -> None:
    """Without LD_PRELOAD, the start of a backward pass is seen here."""
    import torch.autograd
    import torch.autograd.graph

    run = torch.autograd.graph._engine_run_backward

    def engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        library.pleat_backward_enter()
        try:
            return run(*args, **kwargs)
        finally:
            library.pleat_backward_exit()

    torch.autograd._engine_run_backward = engine_run_backward
    torch.autograd.graph._engine_run_backward = engine_run_backward


def _spell(key: str, value: Any) -> bytes:
    """The item of PLEAT_CONF that gives this text, number or path back, byte for byte."""
    if not re.fullmatch(r"\w+", key):
        raise PleatError(f"{key!r}: no such key")
    if isinstance(value, bool):
        value = int(value)
    try:
        data = os.fsencode(value if isinstance(value, (bytes, os.PathLike)) else str(value))
    except UnicodeEncodeError as error:
        raise PleatError(f"{key}={value!r}: {error}") from None
    if b"\0" in data:
        raise PleatError(f"{key}={value!r}: a value may not hold a NUL")
    return key.encode() + b':"' + re.sub(rb'(["\\])', rb"\\\1", data) + b'"'


def enable(**options: Any) -> None:
    """Switches Pleat on, or changes its options: ``enable(bits=4, when="forward_end")``.

    Keys and values are those of ``PLEAT_CONF`` (``pleat run --help-all`` lists them). A value is a number, a path
    or any text; it needs no quotes of its own. Saved tensors from here on are compressed; memory allocated
    before is left alone. Raises PleatError on a bad option (nothing changes then) or if no bridge fits the
    torch in use. Any thread.
    """
    library = _load()
    _install(library)
    conf = b",".join(_spell(key, value) for key, value in options.items())
    error = ctypes.create_string_buffer(512)
    if library.pleat_enable(conf, error, len(error)) != 0:
        raise PleatError(error.value.decode(errors="replace"))


def disable() -> None:
    """No further tensor is compressed. What is compressed already stays readable."""
    library = _loaded()
    if library is not None:
        library.pleat_disable()


def is_enabled() -> bool:
    """True if saved tensors of this process are being compressed."""
    library = _loaded()
    return library is not None and bool(library.pleat_is_enabled())


def _text(function: Any) -> str:
    size = function(None, 0) + 1
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = function(buffer, size)
        if needed < size:
            return buffer.value.decode(errors="replace")
        size = needed + 1


def stats() -> dict[str, Any]:
    """All counters: bytes by kind (current, peak, allocated, freed), records, eligibility, codec, time.

    Bytes are bytes, times nanoseconds. Empty where Pleat is not installed.
    """
    library = _loaded()
    return json.loads(_text(library.pleat_stats_json)) if library is not None else {}


def profile() -> dict[str, Any]:
    """What is known of each saved tensor: who makes and reads it, its bits, what its noise does to the gradient.

    As the file that the option ``profile`` names has it. Has no units where neither that option nor ``sensitivity`` is
    set, and before the first of them is known. Empty where Pleat is not installed.
    """
    library = _loaded()
    return json.loads(_text(library.pleat_profile_json)) if library is not None else {}


def report() -> str:
    """The text that ``verbose:1`` prints at exit."""
    library = _loaded()
    return _text(library.pleat_report_text) if library is not None else "pleat: not installed in this process\n"


def reset_peaks() -> None:
    """Restarts every peak of stats() from the present."""
    library = _loaded()
    if library is not None:
        library.pleat_reset_peaks()


@contextlib.contextmanager
def exempt() -> Iterator[None]:
    """Tensors saved inside, by this thread, are left alone."""
    library = _loaded()
    if library is not None:
        library.pleat_exempt_enter()
    try:
        yield
    finally:
        if library is not None:
            library.pleat_exempt_exit()


_NOT_GIVEN = object()


def linear(function: Any = _NOT_GIVEN, *, closes: bool = False) -> Any:
    """Says that noise in what a ``torch.autograd.Function`` saves is harmless, and returns the function's class::

        @pleat.linear
        class Scale(torch.autograd.Function): ...

        @pleat.linear(closes=True)
        class FusedLinear(torch.autograd.Function): ...

    Pleat cannot look into a function: without this, what the function saves is exact, and no other tensor
    is shown to be harmless by what lies behind the function. You promise that the gradient is linear, or
    nearly, in each tensor that the function saves: no logarithm, root, quotient or comparison reads it in
    backward. With ``closes`` you also promise that each element of the gradient is a sum over many elements
    of what is saved or of what arrives, as in a matrix product or a normalisation.

    The promise is for this very class, not for subclasses. It holds from here on, in whatever thread. Without
    Pleat in force nothing else happens. ``trust:Scale|+FusedLinear`` in the options is the same by name.
    """
    if function is _NOT_GIVEN:
        return lambda function: linear(function, closes=closes)
    torch = sys.modules.get("torch")
    if torch is None or not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise TypeError(f"pleat.linear takes a subclass of torch.autograd.Function, not {function!r}")
    node_class = function._backward_cls
    _linear[node_class] = bool(closes)
    library = _loaded()
    if library is not None:
        library.pleat_trust_class(id(node_class), bool(closes))
    return function


def _autoload() -> None:
    """Entry point of the group ``torch.backends``: torch calls it at the end of ``import torch``.

    Does nothing unless PLEAT_CONF is set, and never raises: a job under Pleat must not fail where it
    would have run without it.
    """
    if "PLEAT_CONF" not in os.environ or os.environ.get("PLEAT_DISABLE", "0") not in ("", "0"):
        return
    if _mapped_bridge() is not None or "libpleat.so" in os.environ.get("LD_PRELOAD", ""):
        return  # the preload library was here first, and has said so if it could not help
    try:
        _install(_load())
    except Exception as error:  # noqa: BLE001
        print(f"pleat: {error}; running without Pleat", file=sys.stderr)


def __getattr__(name: str) -> Any:
    if name == "trace":  # by itself: most programs have no use for it
        return importlib.import_module(f"{__name__}.trace")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
