"""Trainings on the simulated device give the CPU's values, bit for bit."""

import json
import pathlib
import subprocess

import pytest

pytest_plugins = ("simulated",)

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs.py"


@pytest.mark.smoke
@pytest.mark.parametrize("program", ["gpt", "resnet18", "graph", "lstm"])
def test_a_training_equals_the_cpus_bit_for_bit(program, simulate, run_script):
    cpu = run_script(PROGRAMS, preload=False, args=(program, "cpu"))
    assert cpu.returncode == 0, cpu.stderr
    device = simulate(PROGRAMS, program, "cuda", lag=30, seed=1)
    result = device.result
    assert 0 < result.pop("peak") < device.facts["peaks"]["devices"][0]
    assert result == json.loads(cpu.stdout)
    assert device.reports == []


def test_without_true_values_a_training_still_runs(simulate):
    outcome = simulate(PROGRAMS, "gpt", "cuda", "--steps", 2, shadow=False)
    assert len(outcome.result["losses"]) == 2
    assert outcome.facts["launches"]


def test_an_operator_without_a_twin_fails_with_its_name(simulate):
    outcome = simulate(
        """
        import torch
        x = torch.randn(2, 4, 16, 8, device="cuda", dtype=torch.float16)
        torch.ops.aten._scaled_dot_product_flash_attention(x, x, x)
        """
    )
    assert outcome.code == 1
    assert "_scaled_dot_product_flash_attention has no twin for the CPU" in outcome.stderr


def test_copies_convert_and_keep_values(simulate):
    outcome = simulate(
        """
        import json, torch
        x = torch.arange(24, dtype=torch.float64).reshape(4, 6)
        y = x.cuda()
        pinned = torch.empty(6, 4, dtype=torch.int32, pin_memory=True)
        pinned.copy_(y.t(), non_blocking=True)
        torch.cuda.synchronize()
        half = torch.empty(4, 6, device="cuda", dtype=torch.float16)
        half.copy_(x)
        print(json.dumps([y.t().cpu().tolist(), pinned.tolist(), half.tolist(), y[:, ::2].cpu().tolist()]))
        """,
        lag=10,
    )
    x = [[float(6 * row + column) for column in range(6)] for row in range(4)]
    turned = [list(column) for column in zip(*x)]
    assert outcome.result == [turned, turned, x, [row[::2] for row in x]]


def test_a_graph_replays_with_new_values(simulate):
    outcome = simulate(
        """
        import json, torch
        x = torch.ones(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1).relu()
        seen = []
        for value in (3.0, 5.0, -4.0):
            x.fill_(value)
            graph.replay()
            seen.append(y[7].item())
        print(json.dumps(seen))
        """
    )
    assert outcome.result == [7.0, 11.0, 0.0]
    assert outcome.reports == []


def test_values_that_the_host_reads_are_true(simulate):
    outcome = simulate(
        """
        import json, torch
        x = torch.tensor([3.0, -1.0, 3.0, 0.0], device="cuda")
        print(json.dumps([x.nonzero().tolist(), x[x > 0].tolist(), x.unique().tolist(), x.sort().values.tolist()]))
        """
    )
    assert outcome.result == [[[0], [1], [2]], [3.0, 3.0], [-1.0, 0.0, 3.0], [-1.0, 0.0, 3.0, 3.0]]


def test_the_requested_number_of_devices_exists_and_they_copy_to_each_other(simulate):
    outcome = simulate(
        """
        import json, torch
        x = torch.arange(5.0, device="cuda:0") * 2
        y = x.to("cuda:1") + 1
        print(json.dumps([torch.cuda.device_count(), y.device.index, y.tolist(), torch.cuda.memory_allocated(1)]))
        """,
        devices=2,
    )
    count, device, values, allocated = outcome.result
    assert (count, device, values) == (2, 1, [1.0, 3.0, 5.0, 7.0, 9.0])
    assert allocated == 512  # torch's granule
    assert outcome.reports == []
