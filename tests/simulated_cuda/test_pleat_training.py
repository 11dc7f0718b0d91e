"""Trainings under Pleat on a simulated device: without loss they give the CPU's values, bit for bit."""

import json
import pathlib

import pytest

from codings import EXACT

pytest_plugins = ("simulated",)

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs.py"


@pytest.fixture(scope="module")
def on_the_cpu(runner):
    """What a program prints there."""
    known = {}

    def run(program):
        if program not in known:
            done = runner.run(PROGRAMS, preload=False, args=(program, "cpu"))
            assert done.returncode == 0, done.stderr
            known[program] = json.loads(done.stdout)
        return known[program]

    return run


@pytest.mark.smoke
@pytest.mark.parametrize("lag, seed", [(0, 0), (30, 1), (300, 2)])
@pytest.mark.parametrize("conf", EXACT)
@pytest.mark.parametrize("program", ["gpt", "resnet18", "graph", "lstm"])
def test_a_training_without_loss_equals_the_cpus_bit_for_bit(program, conf, lag, seed, under_pleat, on_the_cpu):
    outcome = under_pleat(PROGRAMS, program, "cuda", conf=conf, lag=lag, seed=seed)
    result = outcome.result
    assert result.pop("peak") > 0
    assert result == on_the_cpu(program)
    assert outcome.reports == []
