"""`--what-if` of `pleat trace summary` and `report`: the peak with other bits, beside the real one and where it would be."""

import re

import pytest

import traces_by_hand
from recorded_trace import data_of, pleat, summary  # noqa: F401  fixtures

MIB = 1 << 20
AT_4 = (1 << 17) + 8256  # bytes of a payload
UNKNOWN = "the trace does not say what may be compressed: record it with bits:off"


@pytest.fixture
def planned(tmp_path):
    return traces_by_hand.planned_trace(tmp_path / "off.trace")


@pytest.fixture
def undecided(tmp_path):
    return traces_by_hand.planned_trace(tmp_path / "stock.trace", decided=False)


@pytest.fixture
def page(pleat):
    def call(trace, *arguments):
        done = pleat("report", trace, "-o", "-", *arguments)
        assert done.returncode == 0, done.stderr
        return data_of(done.stdout.decode())

    return call


def test_the_peak_has_a_moment_of_its_own(planned, summary):
    told = summary(planned, "--what-if", "4")
    [host] = told["devices"]
    assert told["what_if"] == {"bits": 4.0, "known": True}
    assert host["peak_live"]["bytes"] == 3 * MIB
    would_be = host["what_if"]
    assert would_be["peak_live"]["bytes"] == 5 * MIB // 2
    assert would_be["peak_live"]["seconds"] > host["peak_live"]["seconds"]
    assert sum(would_be["classes"].values()) == 5 * MIB // 2
    # When the third tensor comes, two are payloads.
    assert would_be["moment_live_bytes"] == sum(row["what_if_bytes"] for row in host["by_line"]) == MIB + 2 * AT_4
    [row] = [row for row in host["by_line"] if row["class"] == "saved raw"]
    assert (row["bytes"], row["what_if_bytes"]) == (2 * MIB, 2 * AT_4)
    assert summary(planned, "--what-if", "8")["devices"][0]["what_if"]["moment_live_bytes"] == MIB + 2 * (AT_4 + (1 << 17))
    assert summary(planned, "--what-if", "lossless")["devices"][0]["what_if"]["peak_live"]["bytes"] == 3 * MIB


def test_a_summary_in_words(planned, pleat):
    text = pleat("summary", "--what-if", "2.5", planned).stdout.decode()
    assert "would be      2.50 MiB at 2.5 bits, 83.3 % of that; at 0.0" in text
    assert re.search(r"size +at 2.5 bits", text)
    assert "would be" not in pleat("summary", planned).stdout.decode()
    assert "what_if_bytes" not in pleat("summary", "--json", planned).stdout.decode()


def test_a_trace_that_does_not_know(undecided, pleat, summary, page):
    done = pleat("summary", "--what-if", "4", undecided)
    assert done.returncode == 0 and done.stdout.decode().count(UNKNOWN) == 1
    assert "would be" not in done.stdout.decode()
    told = summary(undecided, "--what-if", "4")
    assert told["what_if"] == {"bits": 4.0, "known": False} and told["devices"][0]["what_if"] is None
    assert "what_if_bytes" not in told["devices"][0]["by_line"][0]
    data = page(undecided)
    assert data["what_if"] is None and data["no_what_if"] is None and data["devices"][0]["what_if"] is None
    assert page(undecided, "--what-if", "4")["no_what_if"] == UNKNOWN


@pytest.mark.parametrize("bits", ["0", "0.99", "9", "-4", "nan", "inf", "4bits", "", "exact"])
@pytest.mark.parametrize("view", ["summary", "report"])
def test_bits_that_are_refused(planned, pleat, view, bits):
    done = pleat(view, planned, f"--what-if={bits}", *(["-o", "-"] if view == "report" else []))
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2 and done.stdout == b"", done.stderr
    assert "--what-if" in lines[0] and (bits == "" or "numbers of bits from 1 to 8, and lossless" in lines[0])


def test_a_report_draws_4_bits_by_itself(planned, page):
    data = page(planned)
    [host] = data["devices"]
    assert data["what_if"] == "at 4 bits"
    assert host["what_if"]["bytes"] == 5 * MIB // 2 == host["curve"]["what_if"][-1]
    assert len(host["curve"]["what_if"]) == len(host["curve"]["time"])
    assert sum(row["what_if"] for row in host["by_line"]) == MIB + 2 * AT_4
    assert sum(row["what_if"] for row in host["by_operator"]) == MIB + 2 * AT_4
    other = page(planned, "--what-if", "1")
    assert other["what_if"] == "at 1 bit"
    assert max(other["devices"][0]["curve"]["what_if"]) == 5 * MIB // 2
