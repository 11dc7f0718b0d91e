"""Profiles written by hand, the command that reads them, and what it should find, found by other means."""

import itertools
import json
import math
import subprocess

import pytest

from conftest import clean_environment

WIDTHS = [1, 2, 3, 4, 6, 8]


@pytest.fixture
def profile(command, tmp_path):
    def call(*arguments, code=0, **more):
        done = subprocess.run(
            [command, "profile", *arguments], cwd=tmp_path, env=clean_environment("LD_"), capture_output=True,
            text=True, errors="surrogateescape", timeout=20, **more,
        )  # fmt: skip
        assert done.returncode == code, done
        return done

    return call


@pytest.fixture
def asked(profile):
    """The answer in JSON."""
    return lambda *arguments, code=0: json.loads(profile(*arguments, "--json", code=code).stdout)


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="p.profile"):
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    return to_file


def costs(elements):
    """Payloads with a header of 64 bytes; errors as of a range that is cut into equal steps."""
    lossy = [[width, elements * width // 8 + 64, 225 / (2**width - 1) ** 2] for width in WIDTHS]
    return [*lossy, [0, 4 * elements, 0]]


def unit(number, elements, noises=(), steps=(10, 1000), **more):
    return {
        "key": hex(0x1F00 + number), "producer": f"Node{number}Backward0", "reader": "ConvolutionBackward0",
        "type": "float32", "shape": [elements // 8, 8], "bytes": 4 * elements,
        "payload_bytes": elements // 2 + 64, "width": 4, "costs": costs(elements),
        "measurements": [list(pair) for pair in zip(steps, noises)],
    } | more  # fmt: skip


def mask(number):
    return {"key": hex(number), "producer": "MaxPoolBackward0", "reader": "MaxPoolBackward0", "type": "int64",
            "shape": [4, 4], "bytes": 128, "payload_bytes": 32, "width": 0, "fixed": "mask"}  # fmt: skip


def whole(units, **more):
    return {"pleat_profile": 1, "torch": "2.11", "steps": 1000, "bits": 4, "passes": 12, "seconds": 1.5,
            "units": units} | more  # fmt: skip


SMALL = whole([
    unit(0, 4096, (1e-4, 4e-4)),
    mask(0xA0),
    unit(1, 65536, (3e-6, 3e-6), tensors=3),
    unit(2, 8192, (1e-5, 2e-5), floor=3, floor_reason="softmax"),
    unit(3, 16384),
    unit(4, 32768, (1e-2, 1e-2), distrusted=True),
    unit(5, 16384, (2e-3, 2e-4)),
    unit(6, 32768, (5e-6, 4e-6)),
])  # fmt: skip


# What the command should find, found by other means.


def noise_of(row):
    """The geometric mean, in which a measurement at half as many steps counts a quarter."""
    last = row["measurements"][-1][0]
    weights = [((step + 1) / (last + 1)) ** 2 for step, _ in row["measurements"]]
    logarithms = [math.log(noise) for _, noise in row["measurements"]]
    return math.exp(sum(w * log for w, log in zip(weights, logarithms)) / sum(weights))


def is_lossy(row):
    return "costs" in row and "fixed" not in row


def is_measured(row):
    return is_lossy(row) and bool(row["measurements"]) and not row.get("distrusted")


def candidates(row):
    return [cost for cost in row["costs"] if cost[0] == 0 or cost[0] >= row.get("floor", 1)]


def linear(bits, value_at):
    """Between two widths of the codec."""
    low = max(width for width in WIDTHS if width <= bits)
    high = min(width for width in WIDTHS if width >= bits)
    part = (bits - low) / (high - low) if high > low else 0
    return value_at(low) * (1 - part) + value_at(high) * part


def uniform_cost(row, width):
    return next(cost for cost in candidates(row) if cost[0] >= width)


def uniform_bytes(model, bits):
    rows = [row for row in model["units"] if is_lossy(row)]
    return linear(bits, lambda width: sum(uniform_cost(row, width)[1] for row in rows))


def uniform_noise(model, bits):
    rows = [row for row in model["units"] if is_measured(row)]
    return linear(bits, lambda width: sum(noise_of(row) * uniform_cost(row, width)[2] for row in rows))


def best(model, bits):
    """The widths with the least noise, of all that there are: (noise, {key: width})."""
    free = [row for row in model["units"] if is_measured(row)]
    left = linear(bits, lambda width: sum(uniform_cost(row, width)[1] for row in free))
    choices = []
    for chosen in itertools.product(*(candidates(row) for row in free)):
        if sum(cost[1] for cost in chosen) <= left:
            noise = sum(noise_of(row) * cost[2] for row, cost in zip(free, chosen))
            choices.append((noise, {row["key"]: cost[0] for row, cost in zip(free, chosen)}))
    return min(choices, key=lambda choice: choice[0])


def short(key):
    return hex(int(key, 16))
