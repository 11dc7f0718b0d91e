"""Tests run what ships, a plugin of pytest. A test that sets an option that no user may set (forked.OPTIONS_OF_TESTS) carries

    @pytest.mark.not_as_shipped("the reason")

or it fails. tests/tools/test_as_shipped.py counts the marks.
"""

import pytest

import forked

MARK = "not_as_shipped"

_running = None  # the test, or none in a script


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _running
    _running = item
    return (yield)


def pytest_itemcollected(item):
    for mark in item.iter_markers(MARK):
        if not (mark.args and isinstance(mark.args[0], str)):
            raise pytest.UsageError(f"{item.nodeid}: {MARK} needs a reason")


def variables_of(conf):
    """As forked.variables_of, for a process of the running test."""
    variables = forked.variables_of(conf)
    check(variables)
    return variables


def check(variables):
    """Fails an unmarked test that starts a process with these variables."""
    of_tests = variables.get("PLEAT_TEST_CONF")
    if of_tests and _running and not _running.get_closest_marker(MARK):
        pytest.fail(f"{of_tests}: no user can set that; mark the test as {MARK}, with the reason", pytrace=False)
