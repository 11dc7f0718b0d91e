"""Traces by hand: where the memory of a part of a program goes. ``pleat trace record`` does the same for a whole program."""

import contextlib
import ctypes
import os
from typing import Iterator

import pleat


def start(path: str | os.PathLike[str]) -> None:
    """Begins a trace into a file that does not exist yet; in a folder, into pleat.trace there.

    ``%r`` in the path is the rank, ``%l`` the local rank, ``%p`` the process, ``%h`` the host, ``%t`` the time.
    Installs Pleat if it is not in force, and compresses nothing then. The option ``stacks`` says which stacks
    the trace has. Raises PleatError if a trace is being written already, or if the file cannot be made. Any thread.
    """
    library = pleat._load()
    if not library.pleat_is_installed():
        pleat._install(library)
        library.pleat_disable()
    error = ctypes.create_string_buffer(4096 + 512)
    if library.pleat_trace_start(os.fsencode(path), error, len(error)) != 0:
        raise pleat.PleatError(error.value.decode(errors="replace"))


def stop() -> bool:
    """Ends the trace. False if there was none. Any thread that is not in an operator."""
    library = pleat._loaded()
    return library is not None and bool(library.pleat_trace_stop())


def dump(title: str | None = None) -> None:
    """Says on standard error who holds the memory now, and marks the moment in the trace, if there is one.

    Without a trace it has the classes that Pleat counts anyway; with one, lines of the script as well. ``title`` stands in
    its first line. Nothing where Pleat is not in force. Any thread.
    """
    library = pleat._loaded()
    if library is not None:
        library.pleat_trace_dump(None if title is None else " ".join(str(title).split()).encode())


def path() -> str | None:
    """The file of the trace that is being written."""
    library = pleat._loaded()
    text = pleat._text(library.pleat_trace_path) if library is not None else ""
    return text or None


@contextlib.contextmanager
def recording(path: str | os.PathLike[str]) -> Iterator[None]:
    """A trace of what happens inside."""
    start(path)
    try:
        yield
    finally:
        stop()
