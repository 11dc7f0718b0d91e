"""A page that `pleat` writes, as read by tests: its elements and its data. Any page must pass `check`."""

import html.parser
import json
import re

VOID = {"meta", "link", "input", "br"}


class Page(html.parser.HTMLParser):
    """Every element with its attributes, and its text, of scripts and styles too."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert self.open == [], "elements that do not end"
        [data] = [text for _, attributes, text in self.elements if attributes.get("id") == "data"]
        self.stored = data.rstrip("\n")  # text behind an element counts as its own
        self.data = json.loads(data, parse_constant=refuse)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.elements:
            tag, attributes, before = self.elements[-1]
            self.elements[-1] = (tag, attributes, before + text)


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def check(page):
    """It loads nothing, and names of the file that it shows do not become markup."""
    for tag, attributes, text in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag not in ("iframe", "object", "embed", "img", "base", "video", "audio")
        if tag == "style" or "style" in attributes:
            assert not re.search(r"url\((?!['\"]?(data:|#))|@import", text + attributes.get("style", ""))
    [policy] = [a["content"] for _, a, _ in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy and "http" not in policy
    assert [tag for tag, *_ in page.elements].count("script") == 3
    assert page.stored.isascii() and not set(page.stored) & set("<>&")
