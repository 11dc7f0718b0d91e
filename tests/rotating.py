"""The rotating part of the tests, a plugin of pytest: a tenth of the tests marked `rotating` runs each day (draw.py).

A set is the parameters of one test, or all tests marked `rotating(set="NAME")`; at least one of each set runs. With
`rotating(share=3)` a third of the set runs a day: all tests of a set name the same share. A test whose argument is the
fixture `draw` draws samples of its own and always runs. All run after the others, in an order of the day; none starts when
the time is up.

    pytest tests --part fixed       all others
    pytest tests --part rotating    these
"""

import collections
import inspect

import pytest

from draw import DAYS, Draw

NOT_REACHED = "the time is up (PLEAT_TEST_UNTIL)"
DRAW, SETS = pytest.StashKey[Draw](), pytest.StashKey[dict]()


def pytest_addoption(parser):
    parser.addoption("--part", choices=["fixed", "rotating"], help="only the fixed or only the rotating part")


def pytest_configure(config):
    config.stash[DRAW] = Draw.of_environment()


@pytest.fixture(scope="session")
def draw(request):
    return request.config.stash[DRAW]


def set_of(item):
    """The name of the set that a test belongs to; None if it is of the fixed part."""
    marker = item.get_closest_marker("rotating")
    return marker and marker.kwargs.get("set", item.nodeid.partition("[")[0])


def share_of(tests):
    """In how many days a set runs once."""
    shares = {item.get_closest_marker("rotating").kwargs.get("share", DAYS) for item in tests}
    if len(shares) > 1:
        raise pytest.UsageError(f"one set, several shares: {sorted(shares)}: {set_of(tests[0])}")
    return shares.pop()


@pytest.hookimpl(trylast=True)  # after the selection by -m and -k
def pytest_collection_modifyitems(config, items):
    draw, part = config.stash[DRAW], config.getoption("part")
    fixed, sets = [], collections.defaultdict(list)
    for item in items:
        name = set_of(item)
        (sets[name] if name else fixed).append(item)
    if part == "fixed":
        sets.clear()
    chosen = fixed if part != "rotating" else []
    for name in draw.in_turn(sets):
        tests = sets[name]
        own = any("draw" in inspect.signature(item.function).parameters for item in tests)
        chosen += tests if own else [tests[i] for i in draw.samples(name, len(tests), share_of(tests))]
    config.stash[SETS] = {name: sorted(test.nodeid for test in tests) for name, tests in sets.items()}
    kept = set(chosen)
    left_out = [item for item in items if item not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def pytest_runtest_setup(item):
    if item.config.stash[DRAW].time_is_up() and item.get_closest_marker("rotating"):
        pytest.skip(NOT_REACHED)


# The share of each set that ran. xdist's workers report their collected and executed tests to the controller.


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["rotating sets"] = session.config.stash.get(SETS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash.setdefault(SETS, {}).update(getattr(node, "workeroutput", {}).get("rotating sets", {}))


def pytest_terminal_summary(terminalreporter, config):
    sets, draw = config.stash.get(SETS, {}), config.stash[DRAW]
    if not sets or draw.everything and draw.until is None:
        return
    ran = set()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            if not (outcome == "skipped" and NOT_REACHED in str(report.longrepr)):
                ran.add(report.nodeid)
    terminalreporter.section(f"rotating part, PLEAT_TEST_DRAW={draw.text}")
    for name, tests in sorted(sets.items()):
        terminalreporter.write_line(f"{name}: {len(ran.intersection(tests))} of {len(tests)} tests")
