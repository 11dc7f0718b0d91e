"""Old rules that were wrong, planted by the option `rule`: the scenes that were made of them turn red."""

import judge
import pytest
import scene

from conftest import STOCK_ONLY

AT_4_BITS = scene.LEGS["4"]
# The fault, the option that plants it, and the scenes that must show it.
FAULTS = [
    ("a sigmoid before a logarithm bears noise", "assumed", ["poles/sigmoid_gelu_log", "poles/sigmoid_one_hot_matmul_log"]),
    ("the quotients and variances of SSIM do", "assumed", ["vision/ssim_constant", "vision/ssim_separable"]),
    ("a row that is flat beside its group does", "no_lines", ["normalisations/layer_norm_96_flat_rows"]),
    ("values stand for the sides that a mask needs", "no_sides", ["poles/hardtanh_of_hardtanh", "poles/leaky_relu_at_zero"]),
    ("a second loss is not seen", "no_late_poles", ["poles/second_loss_after_the_first_layer", "losses/sparsity_kl_sigmoid"]),
]  # fmt: skip
PLANTED = [pytest.param(rule, name, id=f"{fault}: {name}") for fault, rule, names in FAULTS for name in names]


@pytest.mark.not_as_shipped("plants the rule that was wrong")
@pytest.mark.skipif(STOCK_ONLY, reason="needs the bridge")
@pytest.mark.parametrize("rule, name", PLANTED)
def test_a_planted_fault_makes_its_scene_fail(rule, name, runner, preload_library, cpu_account):
    (path,) = scene.chosen_scenes([name], everything=False)
    yardstick = {"yardstick": scene.LEGS["yardstick"]}
    server = runner.fork_server(preload=True)
    outcome = scene.run_scene(server, path, {"4": AT_4_BITS, "planted": f"{AT_4_BITS},rule:{rule}", **yardstick})
    cpu_account.note(outcome.cpu_seconds)
    legs = outcome.legs
    assert scene.problem(legs) is None
    assert judge.misses({"4": legs["4"], "yardstick": legs["yardstick"]}) == []
    missed = judge.misses({"4": legs["planted"], "yardstick": legs["yardstick"]})
    assert "4 bits" in {miss.what for miss in missed}
