"""`pleat profile`: pages, files that are no profile, and odd names and numbers."""

import copy
import json
import os
import re

import pytest

import browser
from page import Page, check
from profiles_by_hand import SMALL, asked, mask, profile, unit, whole, write  # fixtures among them

ACTIONS = ["show", "curve", "check"]


# Pages


NASTY = "<script>alert('x')</script> & \"quotes\" </style> http://example.com/\u00fc\u4e2d"


@pytest.mark.parametrize("action", ["show", "curve"])
def test_a_page_needs_no_network_and_escapes_names(profile, write, tmp_path, action):
    rows = copy.deepcopy(SMALL["units"])
    rows[0].update(producer=NASTY, reader=NASTY + "\n\x1b[31m", type=NASTY)
    rows[1]["fixed"] = rows[3]["floor_reason"] = NASTY
    file = write(whole(rows), "<b>p'\"&.profile")
    (tmp_path / "page.html").write_text("of before")
    plain = profile(action, file).stdout
    assert profile(action, file, "--html", "page.html").stdout == plain and "\x1b" not in plain
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    check(page)
    assert sum(section["chart"] is not None for section in page.data["sections"]) == 4
    [units] = [section["table"]["rows"] for section in page.data["sections"] if section["title"].startswith("Units")]
    assert NASTY in [cell[1] for row in units for cell in row] and page.data["file"] == "<b>p'\"&.profile"
    assert "<b>p'\"&.profile" in "".join(text for tag, _, text in page.elements if tag == "title")
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "print" in style and "dark" in style
    without_data = text.replace(page.stored, "").replace("http://www.w3.org/2000/svg", "")
    assert "://" not in without_data and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_a_page_of_nothing_measured_and_of_one_measurement(profile, write, tmp_path):
    pages = {}
    for name, rows in {"none": [unit(0, 4096), mask(3)], "empty": [], "once": [unit(0, 4096, (1e-4,))]}.items():
        profile("show", write(whole(rows)), "--html", f"{name}.html")
        data = Page((tmp_path / f"{name}.html").read_text()).data
        pages[name] = sum(section["chart"] is not None for section in data["sections"])
        assert bool(data["notices"]) == (name != "once")
    assert pages == {"none": 1, "empty": 1, "once": 3}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_browser_draws_a_page_and_asks_for_nothing(profile, write, tmp_path, dark):
    path = browser.find()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is installed")
    rows = copy.deepcopy(SMALL["units"])
    rows[0].update(producer=NASTY, type=NASTY)
    page = tmp_path / "page.html"
    profile("show", write(whole(rows)), "--html", "page.html")
    with browser.Browser(path) as running:
        running.open(page, dark=dark, ready="document.documentElement.dataset.drawn")
        assert running.complaints() == [] and running.requests() == [page.resolve().as_uri()]
        charts = "[...document.querySelectorAll('svg')].map((one) => one.querySelectorAll('circle[cx]').length)"
        # The legend has a dot for each series with dots that has a name. Units: 7 may be noisy, 5 are measured.
        assert running.value(charts) == [7 + 1, 2 * 5 + 2, 2 * 14 + 2, 5]
        assert running.value("[...document.querySelectorAll('svg path')].every((one) => !one.getAttribute('d').includes('NaN'))")
        cells = "[...document.querySelectorAll('#sections section:last-child tbody tr')].map((one) => one.cells[0].textContent)"
        assert running.value(cells) == [row["producer"] for row in reversed(rows)]
        running.value("document.querySelectorAll('#sections section:last-child th button')[4].click()")  # the largest
        assert running.value(cells)[0] == max(rows, key=lambda row: row["bytes"])["producer"]
        assert running.value("document.querySelectorAll('[tabindex=\"0\"]').length") >= 4
        paper = running.value("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(18, 21, 27)" if dark else "rgb(255, 255, 255)")


def test_a_page_that_cannot_be_written_is_one_line(profile, write, tmp_path):
    file = write(SMALL)
    before = (tmp_path / file).read_text()
    for out, reason in {file: "is the profile itself", "no/page.html": "No such file", ".": "Is a directory"}.items():
        error = profile("show", file, "--html", out, code=2).stderr
        assert error.startswith(f"pleat: {out}: ") and reason in error and error.count("\n") == 1
    assert (tmp_path / file).read_text() == before


# Files that are no profile, and names


GOOD = json.dumps(SMALL)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "content",
    ["", " ", "{}", "[1,2]", "null", '{"units": []}', "\x00\x01\x02", "pleat_profile", '{"pleat_profile": 1}',
     GOOD.replace('"pleat_profile": 1', '"pleat_profile": 99'), GOOD[: len(GOOD) // 2], GOOD[:-1], GOOD[:20],
     GOOD + "x"],
    ids=lambda content: re.sub(r"\W+", "_", content[:24]) + str(len(content)),
)  # fmt: skip
def test_what_is_no_profile_is_one_line_and_exit_code_2(profile, write, action, content):
    done = profile(action, write(content), code=2)
    assert done.stdout == "" and done.stderr.startswith("pleat: p.profile: ") and done.stderr.count("\n") == 1
    if "99" in content[:30]:
        assert "version 99" in done.stderr


def test_no_file_a_directory_and_a_device(profile, write, tmp_path):
    (tmp_path / "folder").mkdir()
    good = write(SMALL)
    for name in ("absent", "folder", "/dev/zero", ""):
        for arguments in (["show", name], ["diff", good, name], ["diff", name, good]):
            done = profile(*arguments, code=2)
            assert done.stdout == "" and done.stderr.startswith(f"pleat: {name}: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name, shown",
    [("two\nlines", "two?lines"), ('"quoted\'', '"quoted\''), ("<script>", "<script>"), ("gr\u00fc\u00dfe\u4e2d",) * 2,
     ("\x1b[31mred", "?[31mred"), ("a" * 200, "a" * 64 + "..."), ("[a,b]",) * 2, ("%s{}",) * 2],
    ids=range(8),
)  # fmt: skip
def test_names_of_files_are_shown_as_one_line(profile, asked, write, name, shown):
    assert profile("show", name, code=2).stderr.startswith(f"pleat: {shown}: ")
    file = write(SMALL, name)
    for action in ("show", "curve"):
        assert profile(action, file).stdout.splitlines()[0].startswith(f"profile {shown}: torch")
    assert asked("check", file, code=1)["file"] == name


def test_a_name_that_is_no_utf8_is_replaced_in_json_and_pages(profile, asked, write, tmp_path):
    file = write(SMALL, os.fsdecode(b"bad\xff\xf0name"))
    assert "\ufffd" in asked("show", file)["file"]
    profile("show", file, "--html", "page.html")
    assert "\ufffd" in Page((tmp_path / "page.html").read_text(encoding="utf-8")).data["file"]


def test_extreme_numbers_stay_numbers(profile, asked, write, tmp_path):
    rows = [unit(0, 8, (0, 0)), unit(1, 8, (1e100, 1e100)), unit(2, 8, (1e-300, 1e100)), unit(3, 1 << 36, (1e-5, 0)),
            unit(4, 8, (1e-5, 1e-5), bytes=0, costs=[[0, 0, 0]]),
            unit(5, 8, (1, 1), costs=[[4, 9, 1e100], [0, 1, 0]])]  # fmt: skip
    file = write(whole(rows, bits=0.01, seconds=1e100))
    for action, code in (("show", 0), ("curve", 0), ("check", 1)):
        asked(action, file, code=code)
        text = profile(action, file, code=code).stdout
        assert not re.search(r"\b(nan|inf)\b", text)
    profile("show", file, "--html", "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert not re.search(r"\b(nan|inf)\b", page.stored)
