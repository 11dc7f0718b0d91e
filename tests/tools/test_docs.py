"""The pages a reader meets first: what they name exists, and what they say of options is so."""

import json
import re
import subprocess
import sys

import pytest

import file_table
from conftest import REPOSITORY, STOCK_ONLY, clean_environment

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
RESULTS = REPOSITORY / "tools" / "bench" / "results"


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_of_the_repository_that_is_named_exists(page):
    folders = "|".join(path.name for path in REPOSITORY.iterdir() if path.is_dir() and path.name not in (".git", "build"))
    named = re.findall(rf"(?<![\w/.-])((?:{re.escape('.ci')}|{folders})/[\w./-]*\w)", page.read_text())
    missing = {name for name in named if not (REPOSITORY / name).exists()}
    assert not missing


def test_the_readme_fits_a_newcomers_patience():
    text = (REPOSITORY / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^    .*$", "", text, flags=re.M)))
    sentences = [sentence for cell in re.split(r"\n| \| ", plain) for sentence in re.split(r"(?<=[.!?:;])\s+", cell)]
    long = [sentence for sentence in sentences if len(sentence.split()) > 25]
    assert len(sentences) > 60 and not long


def test_the_table_of_files_is_what_the_headers_say():
    page = file_table.PAGE.read_text()
    assert page == file_table.written(page), "run python3 tests/tools/file_table.py"


def test_the_table_of_files_cuts_a_long_sentence_after_its_first_clause():
    assert file_table.sentence_of("Pool cuts blocks. It is fast") == ("Pool cuts blocks", True)
    assert file_table.sentence_of("Pool cuts blocks from segments: " + "x" * 120) == ("Pool cuts blocks from segments", False)
    assert file_table.sentence_of("") == ("", False)
    assert file_table.comment_of("// One\n// line.\n#pragma once\n// no\n") == "One line."


def test_the_figures_name_every_file_of_results_and_no_other():
    named = set(re.findall(r"`(\w[\w.-]*\.(?:json|md))`", (REPOSITORY / "docs" / "figures.md").read_text()))
    assert named == {path.name for path in RESULTS.iterdir()}


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_the_readmes_options_are_those_of_the_command(build_dir, preload_library):
    command = [build_dir / "bin" / "pleat", "doctor", "--json", "--python", "/bin/false"]
    printed = subprocess.run(command, env=clean_environment("LD_"), capture_output=True, text=True).stdout
    options = {option["key"]: option["default"] for option in json.loads(printed)["options"]}
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (REPOSITORY / "docs" / "options.md").read_text(), re.M)
    assert dict(rows) == options and len(rows) == len(options)


def test_few_clauses_hide_their_noun():
    """1,582 clauses began with what, whoever, nobody or nothing before they were counted; a third may stay."""
    printed = subprocess.run([sys.executable, REPOSITORY / "tests" / "tools" / "plain_prose.py"], capture_output=True, text=True).stdout
    assert int(printed.split()[-3]) <= 1582 // 3
