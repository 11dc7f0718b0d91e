"""`pleat profile`: its tables, numbers and verdicts, of profiles that are written by hand."""

import copy
import fcntl
import math
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from profiles_by_hand import (  # fixtures among them
    SMALL, asked, best, is_measured, mask, noise_of, profile, short, uniform_bytes, uniform_noise, unit, whole,
    write,
)  # fmt: skip

ACTIONS = ["show", "curve", "diff", "check"]


# show


def test_widths_are_those_of_an_exhaustive_search(asked, write):
    found = asked("show", write(SMALL))
    noise, widths = best(SMALL, 4)
    rows = {short(row["key"]): row for row in found["units"]}
    assert {key: rows[key]["width"] for key in widths} == widths
    assert len(set(widths.values())) > 2, "the case is too simple"
    assert found["noise"] == pytest.approx(noise, rel=1e-9)
    assert found["least_noise"] <= noise * (1 + 1e-9)
    assert found["gap"] == pytest.approx(noise / found["least_noise"] - 1)
    assert found["uniform_noise"] == pytest.approx(uniform_noise(SMALL, 4), rel=1e-9)
    assert found["uniform_lossy_payload_bytes"] == uniform_bytes(SMALL, 4)
    for row in SMALL["units"]:
        shown = rows[row["key"]]
        cost = {cost[0]: cost for cost in row.get("costs", [])}.get(shown["width"])
        assert shown["payload_bytes"] == (cost[1] if cost else row["payload_bytes"])
        assert shown["shape"] == row["shape"] and shown["tensors"] == row.get("tensors", 1)
        if is_measured(row):
            assert shown["sensitivity"] == pytest.approx(noise_of(row), rel=1e-9)
            assert shown["share"] == pytest.approx(noise_of(row) * cost[2] / noise, rel=1e-9, abs=1e-12)
        else:
            assert shown["sensitivity"] is shown["share"] is None and shown["width"] == row["width"]
    lossy = [row for row in found["units"] if row["lossy"]]
    assert found["lossy_payload_bytes"] == sum(row["payload_bytes"] for row in lossy) <= uniform_bytes(SMALL, 4)
    assert uniform_bytes(SMALL, found["mean_bits"]) == pytest.approx(found["lossy_payload_bytes"])
    assert found["stability"] == {"first_step": 10, "last_step": 1000, "rank_correlation": pytest.approx(1 - 2 / 35)}


@pytest.mark.parametrize("bits", [1, 1.5, 2.7, 3, 6, 8])
def test_noise_is_between_that_of_a_search_and_the_uniforms(asked, write, bits):
    found = asked("show", write(SMALL), "--bits", str(bits))
    noise, _ = best(SMALL, bits)
    assert found["bits"] == bits and found["least_noise"] <= noise * (1 + 1e-9)
    assert noise * (1 - 1e-9) <= found["noise"] <= uniform_noise(SMALL, bits) * (1 + 1e-9)
    assert found["lossy_payload_bytes"] <= uniform_bytes(SMALL, bits)


def test_the_table_says_who_what_and_why(profile, write):
    text = profile("show", write(SMALL)).stdout
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("  producer"))
    rows = [re.split(r" {2,}", line.strip()) for line in lines[head + 1 :]]
    assert [row[0] for row in rows] == [row["producer"] for row in SMALL["units"]]
    reasons = {row[0]: row[-1] for row in rows}
    assert reasons["MaxPoolBackward0"] == "mask"
    assert reasons["Node2Backward0"] == "at least 3: softmax"
    assert reasons["Node3Backward0"] == "new" and reasons["Node4Backward0"] == "distrusted"
    assert "float32 [8192,8]" in text and "0.26" in text and "exact" in text
    assert "p.profile: torch 2.11, 1000 steps, 12 extra passes in 1.5 s" in lines[0]
    assert "8 of 0.70 MB" in text and "rank correlation of steps 10 and 1000: 0.94" in text
    assert "\x1b" not in text


def test_trails_are_told_in_words(profile, asked, write):
    """Of a file of the version before this one there are none."""
    known = whole([unit(0, 4096, trail=["profile:3", "wide_steps:4", "attention:8"]), mask(0xA0) | {"trail": ["shape:0"]},
                   unit(1, 4096, trail=["bits:4", "pole:0"]), unit(2, 4096)], pleat_profile=2)  # fmt: skip
    rows = profile("show", "--why", write(known)).stdout.splitlines()[-4:]
    assert [re.split(r" {2,}", row)[-1] for row in rows] == [
        "asked 3 by profile; 4: wider steps than 1/2; 8: multiplied with a softmax, as in attention",
        "only its shape is read",
        "asked 4 by the option `bits`; exact: a division, logarithm, comparison or loss follows",
        "new",
    ]
    assert [row["trail"] for row in asked("show", write(known))["units"]] == [row.get("trail", []) for row in known["units"]]
    assert "asked" not in profile("show", write(known)).stdout
    assert profile("show", "--why", write(SMALL)).stdout == profile("show", write(SMALL)).stdout


def test_a_trail_of_any_text_leaves_the_terminal_alone(profile, write):
    odd = ["profile:\x1b]0;title\x07", "\x1b[2J:4", "profile:3:4:5"]
    shown = profile("show", "--why", write(whole([unit(0, 4096, trail=odd)], pleat_profile=2))).stdout
    assert "\x1b" not in shown and "\x07" not in shown and "title" in shown


def decreasing(values):
    known = [value for value in values if value is not None]
    assert values == known + [None] * (len(values) - len(known)) and len(known) > 1
    return known == sorted(known, reverse=True)


@pytest.mark.parametrize(
    "sort, value",
    [
        ("bytes", lambda row: row["bytes"]),
        ("payload", lambda row: row["payload_bytes"]),
        ("sensitivity", lambda row: row["sensitivity"]),
        ("share", lambda row: row["share"]),
        ("bits", lambda row: (row["width"] or 99) if row["lossy"] else None),
    ],
)
def test_rows_are_sorted_by_what_is_asked(asked, write, sort, value):
    assert decreasing([value(row) for row in asked("show", write(SMALL), "--sort", sort)["units"]])


def test_other_sorts(asked, profile, write):
    file = write(SMALL)
    names = [row["producer"] for row in SMALL["units"]]
    assert [row["producer"] for row in asked("show", file, "--sort", "producer")["units"]] == sorted(names)
    assert profile("show", file, "--sort", "backward").stdout == profile("show", file).stdout
    for arguments in (["show", file], ["diff", file, file]):
        error = profile(*arguments, "--sort", "siz\ne", code=2).stderr
        assert error.count("\n") == 1 and "'siz?e'" in error
        for known in ("backward", "bytes", "payload", "sensitivity", "share", "bits", "producer"):
            assert known in error


@pytest.mark.parametrize("bits", ["0.5", "9", "x", "nan"])
def test_bits_are_1_to_8(profile, write, bits):
    assert profile("show", write(SMALL), "--bits", bits, code=2).stderr.startswith("pleat: --bits")


def test_nothing_measured_is_the_uniform_width(asked, profile, write):
    file = write(whole([unit(0, 4096), unit(1, 8192), mask(7)]))
    found = asked("show", file)
    assert [row["width"] for row in found["units"]] == [4, 4, 0]
    assert found["noise"] is found["uniform_noise"] is found["gap"] is found["stability"] is None
    assert "no unit is measured" in profile("show", file).stdout
    assert "no unit is measured" in profile("curve", file).stdout
    assert {point["noise"] for point in asked("curve", file)["curve"]} == {None}


def test_an_empty_profile_has_a_heading_only(profile, asked, write):
    file = write(whole([]))
    assert "0 of 0.00 MB" in profile("show", file).stdout
    assert asked("show", file)["units"] == [] and asked("show", file)["mean_bits"] is None


def test_a_narrow_terminal_cuts_names_and_leaves_out_columns(command, tmp_path, write):
    rows = [unit(0, 4096, (1e-4,), producer="A" * 200, reader="B" * 50), mask(5)]
    file = write(whole(rows))

    def lines(columns):
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        subprocess.run([command, "profile", "show", file], stdout=terminal, cwd=tmp_path, timeout=20, check=True)
        os.close(terminal)
        text = os.read(main, 1 << 16).decode()
        os.close(main)
        return text.replace("\r\n", "\n").split("\n\n")[1].splitlines()

    for columns in (80, 100, 160):
        assert all(len(line) <= columns for line in lines(columns))
    assert "tensors" not in lines(80)[0] and "sensitivity" in lines(80)[0] and "type and shape" in lines(160)[0]
    assert len(lines(20)) == 3  # no room at all


# curve


def test_the_curve_is_that_of_show_and_of_the_uniform(asked, write):
    file = write(SMALL)
    curve = asked("curve", file)
    assert [point["bits"] for point in curve["curve"]] == [1.5 + i / 2 for i in range(14)]
    total = sum(row["bytes"] for row in SMALL["units"])
    for point in curve["curve"]:
        bits = point["bits"]
        assert point["uniform_noise"] == pytest.approx(uniform_noise(SMALL, bits), rel=1e-9)
        assert point["uniform_lossy_payload_bytes"] == pytest.approx(uniform_bytes(SMALL, bits), abs=1)
        assert point["ratio"] == pytest.approx(total / point["payload_bytes"])
        if point["uniform_bits"] is not None:
            assert uniform_noise(SMALL, point["uniform_bits"]) == pytest.approx(point["noise"], rel=1e-6)
            assert point["uniform_bits"] >= bits
        else:
            assert point["noise"] < uniform_noise(SMALL, 8)
    for bits in (2.5, 4):
        shown = asked("show", file, "--bits", str(bits))
        point = next(point for point in curve["curve"] if point["bits"] == bits)
        for name in ("noise", "payload_bytes", "lossy_payload_bytes"):
            assert point[name] == shown[name]
        measured = [row["payload_bytes"] for row in shown["units"] if row["measured"]]
        assert point["measured_payload_bytes"] == sum(measured)


def test_the_curves_table_has_the_same_numbers(profile, asked, write):
    file = write(SMALL)
    table = profile("curve", file).stdout.split("\n\n")[1].splitlines()
    assert len(table) == 15
    for line, point in zip(table[1:], asked("curve", file)["curve"]):
        cells = line.replace(" %", "").split()
        assert float(cells[0]) == point["bits"]
        assert float(cells[2]) == pytest.approx(point["payload_bytes"] / 1e6, abs=0.005)
        assert float(cells[3].removesuffix("x")) == pytest.approx(point["ratio"], abs=0.005)
        assert float(cells[4]) == pytest.approx(point["noise"], rel=0.01)
        assert float(cells[5]) == pytest.approx(100 * math.sqrt(point["noise"]), rel=0.01)
        assert float(cells[7]) == pytest.approx(100 * math.sqrt(point["uniform_noise"]), rel=0.01)
        assert cells[8] == ("-" if point["uniform_bits"] is None else f"{point['uniform_bits']:.2f}")


# diff


def changed():
    other = copy.deepcopy(SMALL)
    del other["units"][3]  # unit 2
    for row in other["units"]:
        if row["producer"] == "Node0Backward0":
            row["measurements"] = [[10, 2e-2]]
        if row["producer"] == "Node1Backward0":
            row.update(bytes=2 * row["bytes"])
    other["units"].append(unit(9, 4096, (1e-5, 1e-5)))
    return other


def test_diff_names_what_changed(asked, profile, write):
    first, second = write(SMALL, "a"), write(changed(), "b")
    found = asked("diff", first, second)
    assert found["same_model"] and len(found["units"]) == 7
    assert [row["producer"] for row in found["only_in_a"]] == ["Node2Backward0"]
    assert [row["producer"] for row in found["only_in_b"]] == ["Node9Backward0"]
    rows = {row["producer"]: row for row in found["units"]}
    ratio = noise_of(changed()["units"][0]) / noise_of(SMALL["units"][0])
    assert rows["Node0Backward0"]["sensitivity_ratio"] == pytest.approx(ratio)
    assert rows["Node1Backward0"]["bytes"] == {"a": 262144, "b": 524288}
    shown = {row["producer"]: row["width"] for row in asked("show", first)["units"]}
    assert {name: row["width"]["a"] for name, row in rows.items()} == {name: shown[name] for name in rows}
    measured = [{row["producer"]: noise_of(row) for row in model["units"] if is_measured(row)} for model in (SMALL, changed())]
    both = [[noises[f"Node{number}Backward0"] for number in (0, 1, 5, 6)] for noises in measured]
    ranks = [[sorted(noises).index(noise) for noise in noises] for noises in both]
    apart = sum((a - b) ** 2 for a, b in zip(*ranks))
    assert found["rank_correlation"] == pytest.approx(1 - 6 * apart / (4 * 15))
    assert found["a"]["noise"] == asked("show", first)["noise"]
    text = profile("diff", first, second).stdout
    assert "7 units of both, 1 only in A, 1 only in B" in text and f"{ratio:.0f}x" in text and "0.26 -> 0.52" in text
    assert "only in A\n" in text and "Node2Backward0" in text and "Node9Backward0" in text


def test_diff_is_sorted_by_how_much_changed(asked, write):
    first, second = write(SMALL, "a"), write(changed(), "b")
    by = {sort: asked("diff", first, second, "--sort", sort)["units"] for sort in ("sensitivity", "bytes", "producer")}
    assert by["sensitivity"][0]["producer"] == "Node0Backward0"
    assert by["bytes"][0]["producer"] == "Node1Backward0"
    assert [row["producer"] for row in by["producer"]] == sorted(row["producer"] for row in by["producer"])


def test_a_profile_does_not_differ_from_itself(profile, asked, write):
    file = write(SMALL)
    assert "8 units of the same width" in profile("diff", file, file).stdout
    assert {row["sensitivity_ratio"] for row in asked("diff", file, file)["units"]} == {1, None}


def test_different_models_are_said_in_one_line(profile, asked, write):
    other = whole([unit(number, 4096, (1e-5,)) for number in range(100, 105)] + [unit(0, 4096, (1e-4,))])
    first, second = write(SMALL, "a"), write(other, "b")
    done = profile("diff", first, second, code=1)
    assert done.stdout == "" and done.stderr == "pleat: a and b are of different models: 1 of 6 units in common\n"
    assert asked("diff", first, second, code=1)["same_model"] is False


# check


def verdict_of(asked, write, units, code, **more):
    found = asked("check", write(whole(units, **more)), code=code)
    assert found["code"] == code
    return found["verdict"]


FOUR = [unit(number, 4096, (10.0**-number, 2 * 10.0**-number)) for number in range(3, 7)]


def test_check_judges(asked, write, profile):
    assert verdict_of(asked, write, FOUR, 0) == "good"
    assert profile("check", "p.profile").stdout.endswith("\np.profile: good\n")
    once = [unit(number, 4096, (1e-4,)) for number in range(4)]
    assert verdict_of(asked, write, once, 1) == "few measurements"
    turned = [unit(number, 4096, (10.0**-number, 10.0**-(9 - number))) for number in range(3, 7)]
    assert verdict_of(asked, write, turned, 1) == "unstable"
    doubtful = [*FOUR, unit(7, 64, (1e-4, 1e-4), distrusted=True)]
    assert verdict_of(asked, write, doubtful, 1) == "distrusted units"
    assert verdict_of(asked, write, [*FOUR, unit(7, 65536)], 1).startswith("partly measured")
    assert verdict_of(asked, write, [unit(0, 4096), mask(1)], 2) == "nothing measured"
    assert verdict_of(asked, write, [mask(1)], 2) == "nothing to choose"
    assert verdict_of(asked, write, [], 2) == "nothing to choose"
    text = profile("check", write(SMALL), code=1).stdout
    assert "6 of 7" not in text and "5 of 7 units that may be noisy" in text
    assert text.endswith("p.profile: partly measured, distrusted units; of use all the same\n")


# Usage


def test_profile_alone_prints_its_help(profile):
    alone = profile()
    assert alone.stderr == "" and alone.stdout == profile("--help").stdout
    for action in ACTIONS:
        assert action in alone.stdout
        text = profile(action, "--help").stdout
        assert "Examples:" in text and f"pleat profile {action}" in text


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["show"], ["show", "a", "b"], ["diff", "a"], ["check", "a", "--html", "x"],
     ["curve", "a", "--bits", "3"]],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(profile, arguments):
    done = profile(*arguments, code=2)
    assert done.stdout == "" and done.stderr.startswith("pleat: ")


def test_a_full_disk_behind_stdout_is_said(command, tmp_path, write):
    file = write(SMALL)
    with open("/dev/full", "w") as full:
        show = [command, "profile", "show", file]
        done = subprocess.run(show, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("pleat: standard output: ") and done.stderr.count("\n") == 1
