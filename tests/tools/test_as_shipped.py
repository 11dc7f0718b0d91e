"""Whole-process tests and scenes run what ships: few set an option of tests, and these say why."""

import json
import subprocess
import sys

import pytest

import as_shipped
from conftest import REPOSITORY

MOST = 0.1  # of the tests of a folder that start a process under Pleat
FOLDERS = ("whole_process", "torch_bridge", "simulated_cuda", "scenes")

COUNT = f"""
import collections, json, sys, pytest
counts = collections.defaultdict(lambda: [0, 0])
class Collected:
    @pytest.hookimpl(tryfirst=True)  # before a selection
    def pytest_collection_modifyitems(self, items):
        for item in items:
            if {{"runner", "preload_library"}} & set(item.fixturenames):
                count = counts[item.path.parent.name]
                count[0] += item.get_closest_marker({as_shipped.MARK!r}) is not None
                count[1] += 1
pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Collected()])
with open(sys.argv[1], "w") as file:
    json.dump(counts, file)
"""


def test_at_most_a_tenth_of_a_folders_whole_process_tests_is_marked(tmp_path):
    file = tmp_path / "counts.json"
    command = [sys.executable, "-c", COUNT, file, *FOLDERS]
    subprocess.run(command, cwd=REPOSITORY / "tests", check=True, capture_output=True)
    counts = json.loads(file.read_text())
    assert counts["whole_process"][1] > 400 and counts["scenes"][1] > 300 and counts["simulated_cuda"][1] > 700
    assert counts["whole_process"][0] > 0 and counts["scenes"][0] > 0, "the marks were not seen"
    assert {folder: count for folder, count in counts.items() if count[0] > MOST * count[1]} == {}


def test_an_unmarked_test_that_sets_an_option_of_tests_fails(runner):
    for conf in ("bits:4,rule:assumed", "copy_raw:1", "verify:1", "bits:4,sensitivity:gact"):
        with pytest.raises(pytest.fail.Exception, match=as_shipped.MARK):
            runner.run("", conf=conf)
    with pytest.raises(pytest.fail.Exception, match="rule:assumed"):
        runner.environment(conf=None, preload=False, extra={"PLEAT_TEST_CONF": "rule:assumed"})
    as_shipped.variables_of("bits:4,min_bytes:0,seed:1,sensitivity:on")


@pytest.mark.not_as_shipped("about the mark")
def test_a_marked_test_can_set_an_option_of_tests():
    assert as_shipped.variables_of("bits:4,rule:assumed") == {"PLEAT_CONF": "bits:4", "PLEAT_TEST_CONF": "rule:assumed"}


def test_only_these_files_name_the_variable_of_such_options():
    """Others would go round the mark."""
    files = {path.name for path in (REPOSITORY / "tests").rglob("*.py") if "PLEAT_TEST_CONF" in path.read_text()}
    assert files == {"forked.py", "as_shipped.py", "sweep.py", "test_as_shipped.py", "test_check.py"}
