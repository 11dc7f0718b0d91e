"""Functions of users in C++: their saves belong to them, whichever node is recorded next."""

import pytest

from conftest import STOCK_ONLY

CONF = "bits:4,min_bytes:0"

SAVES = """
    import sys, torch, pleat_test_support as t
    torch.ops.load_library(sys.argv[1])
    w = torch.nn.Parameter(t.noise(64, 64, seed=1) / 8)
    bias = torch.nn.Parameter(t.noise(64, seed=2) + 3)
    x = t.noise(128, 64, seed=3).abs() + 0.01
    factor = torch.nn.Parameter(t.noise(64, 64, seed=4) / 8)
    gradients = []
    for step in range(2):                       # in the first one its save is the first that Pleat sees
        for name in ("log", "product"):
            h = x + bias.abs()
            other = (x @ factor, ) if name == "product" else ()
            y = getattr(torch.ops.pleat_tests, name)(h, *other)
            z = h @ w                           # bears noise in h
            del h, other
            (y.sum() + z.sum()).backward()
            gradients += [p.grad for p in (bias, factor) if p.grad is not None]
            bias.grad = factor.grad = w.grad = None
    t.emit(gradients=gradients)
"""


@pytest.fixture
def library(build_dir, torch_version):
    path = build_dir / "lib" / f"libtest_cpp_functions_torch{'.'.join(torch_version.split('.')[:2])}.so"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


def test_tensors_saved_by_a_function_in_cpp_are_exact_even_before_a_tolerant_operator(run_pair, identical, library):
    pair = run_pair(SAVES, conf=CONF, args=(library,))
    identical(pair.pleat.active(encoded=0).json, pair.stock.check().json)


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
@pytest.mark.parametrize("given", ["ProductFunction", "+ProductFunction"])
def test_a_function_in_cpp_is_trusted_by_its_name_without_arguments(run_pair, close, library, given):
    pair = run_pair(SAVES, conf=f"{CONF},trust:{given}", args=(library,))
    stock, pleat = pair.stock.check().json["gradients"], pair.pleat.active(encoded=0).json["gradients"]
    noisy = [not (a == b).all() for a, b in zip(stock, pleat, strict=True)]
    # The saves of log and the product's two, twice. No node closes a path from the product, so the product itself must close
    # it.
    assert noisy == [False, given[0] == "+", given[0] == "+"] * 2
    close(pleat, stock, relative=0.2)
