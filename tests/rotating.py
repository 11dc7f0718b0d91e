"""The rotating part of the tests, a plugin of pytest: what is marked `rotating` runs a tenth a day (draw.py).

Of a parametrised test a tenth of its parameters is drawn. A test that takes the fixture `draw` draws samples of its
own and always runs. All run after the others, in an order of the day; none starts when the time is up.

    pytest tests --part fixed       all others
    pytest tests --part rotating    these
"""

import collections

import pytest

from draw import Draw

NOT_REACHED = "the time is up (PLEAT_TEST_UNTIL)"
DRAW, SETS = pytest.StashKey[Draw](), pytest.StashKey[dict]()


def pytest_addoption(parser):
    parser.addoption("--part", choices=["fixed", "rotating"], help="only the fixed or only the rotating part")


def pytest_configure(config):
    config.stash[DRAW] = Draw.of_environment()


@pytest.fixture(scope="session")
def draw(request):
    return request.config.stash[DRAW]


def set_of(nodeid):
    """The name of the set that a parametrised test belongs to."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(trylast=True)  # of what -m and -k have left
def pytest_collection_modifyitems(config, items):
    draw, part = config.stash[DRAW], config.getoption("part")
    fixed, sets = [], collections.defaultdict(list)
    for item in items:
        (sets[set_of(item.nodeid)] if item.get_closest_marker("rotating") else fixed).append(item)
    if part == "fixed":
        sets.clear()
    chosen = fixed if part != "rotating" else []
    for name in draw.in_turn(sets):
        tests = sets[name]
        own = any("draw" in item.fixturenames for item in tests)
        chosen += tests if own else [tests[i] for i in draw.samples(name, len(tests))]
    config.stash[SETS] = {name: [0, len(tests)] for name, tests in sets.items()}
    kept = set(chosen)
    left_out = [item for item in items if item not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def pytest_runtest_setup(item):
    if item.config.stash[DRAW].time_is_up() and item.get_closest_marker("rotating"):
        pytest.skip(NOT_REACHED)


# How much of each set ran. What xdist's workers collect and what they run, its controller learns from them.


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
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            name = set_of(report.nodeid)
            if name in sets and not (outcome == "skipped" and NOT_REACHED in str(report.longrepr)):
                sets[name][0] += 1
    terminalreporter.section(f"rotating part, PLEAT_TEST_DRAW={draw.text}")
    for name, (ran, all_of_it) in sorted(sets.items()):
        terminalreporter.write_line(f"{name}: {ran} of {all_of_it} tests")
