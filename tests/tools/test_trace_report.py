"""`pleat trace report`: one page, whatever a trace's names are, that says what the summary says and draws all of it."""

import json
import os
import shutil
import subprocess
import textwrap

import pytest

import browser
from conftest import STOCK_ONLY, clean_environment
from page import Page, check

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

HOSTILE = '</script><img src=x onerror="window.broken=1"><!--\u2028\x07'
SCRIPT = f"""
    import torch

    name = {HOSTILE!r}
    source = "def f(x):\\n    return (x @ weight).relu()\\n"
    weight = torch.nn.Parameter(torch.randn(256, 256) / 16)
    scope = {{"weight": weight}}
    exec(compile(source, name + ".py", "exec"), scope)
    f = scope["f"]
    f.__code__ = f.__code__.replace(co_name=name, **({{"co_qualname": name}} if hasattr(f.__code__, "co_qualname") else {{}}))
    optimizer = torch.optim.SGD([weight], lr=1e-3, momentum=0.9)
    kept = []
    for step in range(7):
        x = torch.randn(512, 256)
        for layer in range(3):
            x = f(x)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.ones(64, 1024))
"""


@pytest.fixture(scope="module")
def pleat(command, preload_library):
    def call(*arguments, executable=command):
        return subprocess.run([executable, *map(str, arguments)], env=clean_environment("LD_"), capture_output=True,
                              text=True, timeout=120)

    return call


@pytest.fixture(scope="module")
def trace(pleat, test_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    done = pleat("trace", "record", "--bits", "4", "-o", folder / "run.trace", "--", test_python, script)
    assert done.returncode == 0, done.stderr
    return folder / "run.trace"


@pytest.fixture(scope="module")
def page(pleat, trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.html"
    done = pleat("trace", "report", trace, "-o", path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return path


@pytest.fixture(scope="module")
def summary(pleat, trace):
    return json.loads(pleat("trace", "summary", "--json", "--top", "1000", trace).stdout)


@pytest.fixture(scope="module")
def data(page):
    return Page(page.read_text(encoding="utf-8")).data


def test_the_page_loads_nothing_and_names_do_not_become_markup(page, data):
    assert any("<img src=x onerror=" in text for text in data["texts"]), "the script's own name is not in the page"
    check(Page(page.read_text(encoding="utf-8")))


def test_figures_are_those_of_the_summary(data, summary):
    assert [d["device"] for d in data["devices"]] == [d["device"] for d in summary["devices"]]
    assert (data["events"], data["lost"], data["incomplete"]) == (summary["events"], 0, False)
    for mine, told in zip(data["devices"], summary["devices"]):
        assert mine["peak_live"]["bytes"] == told["peak_live"]["bytes"] == mine["moment"]["live"] > 0
        assert mine["peak_reserved"]["bytes"] == told["peak_reserved"]["bytes"]
        assert max(mine["curve"]["live"]) == mine["peak_live"]["bytes"]
        assert dict(zip(data["classes"], mine["moment"]["classes"])) == told["moment"]["classes"]
        rows = sum(pair[1] for row in mine["by_line"] for pair in row["classes"])
        assert rows == mine["flame"]["bytes"][0] == mine["moment"]["live"]
        assert mine["compression"]["all"]["saved"] == told["compression"]["saved_bytes"]
        assert mine["compression"]["all"]["to"] == told["compression"]["payload_bytes"] > 0
        assert mine["growth"]["per_step"] == told["growth"]["bytes_per_step"] >= 64 * 1024 * 4


def test_a_page_is_bounded_and_whole(data):
    for device in data["devices"]:
        curve, flame = device["curve"], device["flame"]
        assert 0 < len(curve["time"]) <= 4000 and len(device["steps"]) <= 4000
        columns = [column for column in curve["classes"] if column]
        assert [sum(point) for point in zip(*columns)] == curve["live"]
        assert 1 < len(flame["bytes"]) <= 2000
        below = [0] * len(flame["bytes"])
        for index in range(1, len(below)):
            assert flame["parent"][index] < index
            below[flame["parent"][index]] += flame["bytes"][index]
        for index, all_below in enumerate(below):
            assert all_below == flame["bytes"][index] or flame["class"][index] >= 0 or all_below == 0
        for segment in device["map"]["segments"]:
            places = [(piece[1], piece[1] + piece[2]) for piece in segment["pieces"] if piece[0] != 1]
            assert all(a[1] <= b[0] for a, b in zip(places, places[1:])), "two blocks lie over each other"
            assert all(0 <= begin for begin, _ in places)


def test_a_moment_and_a_filter(pleat, trace, tmp_path):
    path = tmp_path / "end.html"
    done = pleat("trace", "report", trace, "-o", path, "--at", "end", "--class", "kept", "--device", "host")
    assert done.returncode == 0, done.stderr
    told = Page(path.read_text(encoding="utf-8")).data
    assert "kept" in told["filtered"]
    kept = told["classes"].index("kept")
    assert {pair[0] for row in told["devices"][0]["by_line"] for pair in row["classes"]} <= {kept}


def refused(done, *words):
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert lines[0].startswith("pleat: ") and all(word in lines[0] for word in words), lines[0]


def test_outputs_that_are_refused(pleat, trace, page, tmp_path):
    before = page.read_bytes()
    refused(pleat("trace", "report", trace, "-o", page), "exists", "--force")
    assert page.read_bytes() == before
    refused(pleat("trace", "report", trace, "-o", trace, "--force"), "the trace itself")
    refused(pleat("trace", "report", trace, "-o", tmp_path / "absent" / "run.html"), "No such file")
    refused(pleat("trace", "report", trace, "-o", tmp_path, "--force"), "directory")
    refused(pleat("trace", "report", tmp_path / "absent.trace", "-o", tmp_path / "run.html"), "No such file")
    refused(pleat("trace", "report", trace, "-o", tmp_path / "run.html", "--device", "cuda:7"), "cuda:7")
    if os.path.exists("/dev/full"):
        refused(pleat("trace", "report", trace, "-o", "/dev/full/run.html"), "Not a directory")
    assert not list(tmp_path.iterdir()), "something was left behind"
    assert pleat("trace", "report", trace).returncode == 2


def test_force_replaces_a_file_and_leaves_nothing_else(pleat, trace, tmp_path):
    path = tmp_path / "run.html"
    path.write_text("old")
    assert pleat("trace", "report", trace, "-o", path, "--force").returncode == 0
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def bare_page(pleat, command, trace, tmp_path_factory):
    """By a program without plotly's file."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "bin").mkdir()
    shutil.copy(command, folder / "bin")
    done = pleat("trace", "report", trace, "-o", folder / "run.html", executable=folder / "bin" / "pleat")
    assert done.returncode == 0 and "plotly.min.js was not there" in done.stderr
    return folder / "run.html"


def test_without_plotly_the_page_says_so(bare_page):
    text = bare_page.read_text()
    assert len(text) < 1 << 20 and "charts are left out: plotly.min.js was not there" in text


# In a browser.

DRAWN = "document.documentElement.dataset.drawn"


@pytest.fixture(scope="module")
def chromium():
    path = browser.find()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is installed")
    with browser.Browser(path) as running:
        yield running


def shapes(chromium, selector):
    return chromium.value(f"document.querySelectorAll('{selector}').length")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_browser_draws_all_and_asks_for_nothing(chromium, build_dir, page, dark):
    chromium.open(page, dark=dark, ready=DRAWN)
    assert chromium.complaints() == []
    assert chromium.requests() == [page.resolve().as_uri()]
    assert chromium.value("window.broken") is None
    assert shapes(chromium, "img") == 0
    assert shapes(chromium, "#flame-graph rect") > 5 and shapes(chromium, "#flame-graph text") > 2
    assert shapes(chromium, "#map-rows rect[data-index]") > 3
    assert shapes(chromium, "#places-line tbody tr") > 3 and shapes(chromium, "#compression-body tbody tr") > 0
    assert shapes(chromium, "#growth-body tbody tr") > 0
    if not (build_dir / "share" / "pleat" / "plotly.min.js").exists():
        pytest.skip("plotly.min.js is not in this build: its charts are not looked at")
    for chart in ("time-chart", "growth-chart"):
        assert shapes(chromium, f"#{chart} .main-svg") > 0
        assert chromium.value(f"[...document.querySelectorAll('#{chart} .scatterlayer path')].some(p => p.getTotalLength() > 100)")
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == ("rgb(18, 21, 27)" if dark else "rgb(255, 255, 255)")


def test_keyboard_search_and_sorting(chromium, bare_page):
    chromium.open(bare_page, ready=DRAWN)
    assert chromium.complaints() == []
    chromium.value("document.getElementById('flame-graph').focus({preventScroll: true})")
    chromium.key("ArrowDown")
    assert shapes(chromium, "#flame-graph .current") == 1
    assert not chromium.value("document.getElementById('tip').hidden")
    chromium.key("ArrowDown")
    chromium.key("Enter")
    assert chromium.value("flame.zoom") > 0 and shapes(chromium, "#flame-path button") > 1
    for _ in range(2):
        chromium.key("Escape")
    assert chromium.value("flame.zoom") == 0
    first = "document.querySelector('#places-line tbody td').textContent"
    largest = chromium.value(first)
    chromium.value("document.querySelectorAll('#places-line th button')[2].click()")  # live bytes, now from below
    assert chromium.value(first) != largest
    field = "document.querySelector('#places-line input')"
    rows = shapes(chromium, "#places-line tbody tr")
    chromium.value(f"{field}.value = 'relu'; {field}.dispatchEvent(new Event('input'))")
    assert 0 < shapes(chromium, "#places-line tbody tr") < rows
    chromium.value("document.getElementById('theme').click()")
    assert chromium.value("document.documentElement.dataset.theme") == "light"
