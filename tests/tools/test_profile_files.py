"""`pleat profile`: pages, files that are no profile, and what may stand in names and numbers."""

import copy
import html.parser
import json
import os
import re

import pytest

from profiles_by_hand import SMALL, asked, mask, profile, unit, whole, write  # fixtures among them

ACTIONS = ["show", "curve", "check"]


# Pages


class Page(html.parser.HTMLParser):
    VOID = {"meta"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open, self.attributes = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(name, value) for name, value in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


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
    assert set(page.tags) <= {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "table",
                              "thead", "tbody", "tr", "th", "td", "svg", "path", "circle", "text"}  # fmt: skip
    assert page.tags.count("svg") == 4
    assert NASTY in page.texts and "<b>p'\"&.profile" in "".join(page.texts)
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "data", "action"}
    assert not any(name.startswith("on") for name in names)
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style and "@import" not in style and "print" in style and "dark" in style
    without_names = text.replace("http://example.com/", "")
    assert "://" not in without_names and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert not re.search(r"\b(nan|inf)\b", without_names.replace(NASTY, ""))
    assert ("tabindex", "0") in page.attributes


def test_a_page_of_nothing_measured_and_of_one_measurement(profile, write, tmp_path):
    pages = {}
    for name, rows in {"none": [unit(0, 4096), mask(3)], "empty": [], "once": [unit(0, 4096, (1e-4,))]}.items():
        profile("show", write(whole(rows)), "--html", f"{name}.html")
        pages[name] = Page((tmp_path / f"{name}.html").read_text()).tags.count("svg")
    assert pages == {"none": 1, "empty": 1, "once": 3}


def test_a_page_that_cannot_be_written_is_one_line(profile, write, tmp_path):
    file = write(SMALL)
    before = (tmp_path / file).read_text()
    for out, reason in {file: "is the profile itself", "no/page.html": "No such file", ".": "Is a directory"}.items():
        error = profile("show", file, "--html", out, code=2).stderr
        assert error.startswith(f"pleat: {out}: ") and reason in error and error.count("\n") == 1
    assert (tmp_path / file).read_text() == before


# What is no profile, and names


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
    assert "\ufffd" in (tmp_path / "page.html").read_text(encoding="utf-8")


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
    assert not re.search(r"\b(nan|inf)\b", (tmp_path / "page.html").read_text())
