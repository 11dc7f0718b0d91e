"""CPU seconds of each file of tests, a plugin of pytest: user and system time of this process, of the children it has
waited for, and of scripts forked elsewhere (`note`). Neighbours on the machine hardly change them."""

import collections
import contextlib
import resource
import sys
import threading

import pytest

BY_FILE = pytest.StashKey[collections.Counter]()
SHOWN = 3  # seconds; files that take less make one line

_noted, _lock = 0.0, threading.Lock()


def note(seconds):
    """Adds the CPU time of a process that is not a child of the tests."""
    global _noted
    with _lock:
        _noted += seconds


@contextlib.contextmanager
def noted_before():
    """Around the wait for a child whose own children have been noted one by one."""
    begin = of(resource.RUSAGE_CHILDREN)
    yield
    note(begin - of(resource.RUSAGE_CHILDREN))


@pytest.fixture(scope="session")
def cpu_account():
    """With note() and noted_before()."""
    return sys.modules[__name__]


def of(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _now():
    return of(resource.RUSAGE_SELF) + of(resource.RUSAGE_CHILDREN) + _noted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    begin = _now()
    try:
        return (yield)
    finally:
        seconds = item.config.stash.setdefault(BY_FILE, collections.Counter())
        seconds[item.nodeid.partition("::")[0]] += _now() - begin


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of pytest-xdist's workers
        session.config.workeroutput["cpu seconds"] = dict(session.config.stash.get(BY_FILE, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    seconds = node.config.stash.setdefault(BY_FILE, collections.Counter())
    seconds.update(getattr(node, "workeroutput", {}).get("cpu seconds", {}))


def pytest_terminal_summary(terminalreporter, config):
    seconds = config.stash.get(BY_FILE, collections.Counter())
    if seconds.total() < SHOWN:
        return
    terminalreporter.section("CPU seconds")
    for file, took in seconds.most_common():
        if took >= SHOWN:
            terminalreporter.write_line(f"{took:8.1f}  {file}")
    few = [took for took in seconds.values() if took < SHOWN]
    if few:
        terminalreporter.write_line(f"{sum(few):8.1f}  {len(few)} other files")
