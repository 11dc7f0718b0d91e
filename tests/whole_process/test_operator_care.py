"""An operator gets the same care whichever way Pleat was switched on, and it stands in one table."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import LOSSY, REPOSITORY, STOCK_ONLY

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

SCRIPT = REPOSITORY / "tests" / "whole_process" / "care_of_operators.py"
TABLE = REPOSITORY / "torch_bridge" / "policy" / "operator_table.cpp"
FIRST, LAST = 0, 1
OPERATOR, BEFORE_IT = 0, 1

# With the preload library these are known by the place in torch that saves them. By hand only their node is.
MORE_CAREFUL_WITH_PRELOAD = {
    "div": "of a quotient the divisor is at a pole, the dividend is not",
    "div_": "as div",
    "div of a constant": "as div",
    "clamp of tensors": "bounds are saved where all optional tensors are, losses' weights among them",
    "clamp_ of tensors": "as clamp of tensors",
    "foreach_div": "lists are saved where all lists are, those of divisors among them",
    "foreach_exp": "as foreach_div",
    "foreach_sin": "as foreach_div",
    "foreach_abs": "as foreach_div",
    "foreach_norm": "as foreach_div",
    "foreach_maximum": "as foreach_div",
    "foreach_clamp_min": "as foreach_div",
}

# Rows of the table with a care that no case below meets.
NOT_MET = {
    "EfficientAttention": "CUDA",
    "FlashAttention": "CUDA",
    "CudnnGridSampler": "CUDA",
    "DeformConv2d": "torchvision",
    "DifferentiableGraph": "TorchScript",
    "PoissonNllLoss": "of several operators on a CPU",
    "KlDiv": "of several operators on a CPU",
    "FloatPower": "runs pow",
    "HouseholderProduct": "a name of linalg's in older releases",
    "Svd": "a name of linalg's in older releases",
    "Matrix": "a name of linalg's in older releases",
    "Pinverse": "a name of linalg's in older releases",
    "Geqrf": "no derivative",
    "DirichletGrad": "in Python",
    "Lu": "saves pivots, which are integers",
}


@pytest.fixture(scope="module")
def care(runner, preload_library):
    """{way: {operator: [in the first step, in the last]}}, each as care_of_operators.py has it."""
    package = REPOSITORY / "torch_bridge" / "python"
    with ThreadPoolExecutor(2) as pool:
        ways = {
            "preload": pool.submit(runner.run, SCRIPT, conf=LOSSY + ",copy_raw:1", args=("preload",)),
            "by hand": pool.submit(runner.run, SCRIPT, preload=False, args=("by-hand", package, preload_library.parent)),
        }
        return {way: run.result().check().json["care"] for way, run in ways.items()}


def test_with_preload_and_by_hand_an_operator_gets_the_same_care(care):
    differ = {
        name: (with_preload[LAST], by_hand[LAST])
        for (name, with_preload), by_hand in zip(care["preload"].items(), care["by hand"].values())
        if with_preload[LAST] != by_hand[LAST]
    }
    assert differ.keys() == MORE_CAREFUL_WITH_PRELOAD.keys(), differ
    for with_preload, by_hand in differ.values():
        order = ["4 bits", "8 bits", "exact"]
        for mine, other in zip(with_preload, by_hand):
            assert all(order.index(a[2]) >= order.index(b[2]) for a, b in zip(mine, other)), (with_preload, by_hand)


def test_with_preload_an_operators_care_is_known_at_its_first_save(care):
    late = {name: found for name, found in care["preload"].items() if found[FIRST] != found[LAST]}
    assert not late


@pytest.mark.parametrize("way", ["preload", "by hand"])
def test_care_is_what_derivatives_ask_for(care, way):
    def of(name, argument=0):
        saved, before = care[way][name][LAST]
        return saved[argument][2], before[argument][2]

    for name in ("mul", "mm", "conv1d", "gelu", "tanh", "pow 2", "addmm"):
        assert of(name) == ("4 bits", "4 bits"), name
    for name in ("sin", "cosh", "softmax", "logsumexp", "binary_cross_entropy_with_logits", "clamp", "prelu", "nll_loss"):
        assert of(name) == ("8 bits", "4 bits"), name
    for name in ("maximum", "inv", "det", "prod", "atan2", "abs", "grid_sample", "scatter_reduce amax", "std"):
        assert of(name) == ("exact", "4 bits"), name
    for name in ("log", "sqrt", "rsqrt", "reciprocal", "pow 0.5", "pow", "acos", "logit", "xlogy", "xlog1py of a number"):
        assert of(name) == ("exact", "exact"), name
    for name in ("special_xlog1py", "binary_cross_entropy", "xlogy_", "logit_", "pow_", "pow of a number"):
        assert of(name) == ("exact", "exact"), f"{name}: two lists had differed"


def test_every_row_of_the_table_that_asks_for_care_was_met(care):
    rows = re.findall(r'\{"(\w+)"sv, (k\w+)(?:, (k\w+))?', TABLE.read_text())
    careful = {name for name, made, saved in rows if {made, saved} & {"kEight", "kExact", "kPole"}}
    assert len(careful) > 100
    nodes = {node for found in care["preload"].values() for node, _, _ in found[LAST][OPERATOR]}
    met = {next((row for row, _, _ in rows if re.match(f"(Foreach)?{row}", node)), None) for node in nodes}
    assert careful - met == NOT_MET.keys()
