"""Where the derivative has a pole: what it reads is exact, and so is what was made into that element by element."""

import pytest

from conftest import LOSSY

POWERS = """
    import torch, pleat_test_support as t
    def gradient(function, leaf):
        x = leaf * 1 + 0                             # positive; saved by the power alone
        y = function(x)
        del x
        g, = torch.autograd.grad(y.sum(), leaf)
        return g
    leaf = (t.noise(128, 512, seed=1).square() + 1e-4).requires_grad_()
    exact, lossy = {}, {}
    for n in (0.5, -0.5, 1 / 3, -1, -2, 1.5):
        exact[f"pow {n}"] = gradient(lambda x: x.pow(n), leaf)
    exact["**"] = gradient(lambda x: x ** -0.5, leaf)
    exact["in place"] = gradient(lambda x: x.pow_(-1), leaf)
    exact["float_power"] = gradient(lambda x: torch.float_power(x, 0.5), leaf)
    for n in (2, 3.0):
        lossy[f"pow {n}"] = gradient(lambda x: x.pow(n), leaf)
    t.emit(exact=exact, lossy=lossy)
"""


@pytest.mark.smoke
def test_powers_with_a_pole_or_a_branch_point_are_exact(run_pair, identical, close):
    pair = run_pair(POWERS, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    identical(pleat["exact"], stock["exact"])
    close(pleat["lossy"], stock["lossy"], relative=0.2)
    if pair.pleat.stats is not None:
        assert any((pleat["lossy"][n] != stock["lossy"][n]).any() for n in stock["lossy"])


POLES = """
    import torch, warnings, pleat_test_support as t
    torch.manual_seed(0)
    def gradients(function, *leaves):
        values = [leaf * 1 for leaf in leaves]               # lossy, but for who saves them
        y = function(*values)
        values.clear()
        return torch.autograd.grad(sum(r.sum() for r in y) if isinstance(y, (tuple, list)) else y.sum(), leaves)
    x = (t.noise(128, 512, seed=1).tanh() * 0.49 + 0.5).requires_grad_()        # within (0, 1)
    y = (t.noise(128, 512, seed=2).square() + 1e-2).requires_grad_()
    square = (t.noise(64, 64, seed=3) + 8 * torch.eye(64)).requires_grad_()
    exact = {
        "div_": gradients(lambda a, b: (a * 1).div_(b), x, y),
        "addcdiv": gradients(lambda a, b: torch.addcdiv(a, a, b), x, y),
        "addcdiv_": gradients(lambda a, b: (a * 1).addcdiv_(a, b), x, y),
        "copysign": gradients(lambda a, b: torch.copysign(a, b - 1), x, y),
        "foreach_div": gradients(lambda a, b: torch._foreach_div([a], [b]), x, y),
        "foreach_log": gradients(lambda a: torch._foreach_log([a]), y),
        "xlogy_": gradients(lambda a, b: (a * 1).xlogy_(b), x, y),
        "xlogy of a number": gradients(lambda a: torch.xlogy(2.0, a), y),
        "cdist": gradients(lambda a: torch.cdist(a[:, :64], a[:, 64:128]), x),
        "pinv": gradients(torch.linalg.pinv, square),
        "lu_solve": gradients(lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a * 1), b * 1), square, x[:64]),
        "householder": gradients(lambda a, b: torch.linalg.householder_product(a * 0.1, b[0, :64] * 1), square, x),
        "ormqr": gradients(lambda a, b: torch.ormqr(a * 0.1, b[0, :64] * 1, b[:64] * 1), square, x),
        "segment_max": gradients(lambda a: torch.segment_reduce(a.flatten(), "max", lengths=torch.full((512,), 128)), x),
        "segment_mean": gradients(lambda a: torch.segment_reduce(a.flatten(), "mean", lengths=torch.full((512,), 128)), x),
        "abs": gradients(lambda a: (a - 0.5).abs(), x),
        "abs_": gradients(lambda a: (a - 0.5).abs_(), x),
        "gamma": gradients(torch._standard_gamma, y),
        "grid": gradients(lambda a, b: torch.nn.functional.grid_sample(a[None, None], b[None, :, :510].view(1, 128, 255, 2) - 1,
                                                                       align_corners=False), x, y),
        "dirichlet": gradients(lambda a: torch.distributions.Dirichlet(a).rsample()[:, :9], y),
    }
    for name in ("log_", "log2_", "log10_", "log1p_"):
        exact[name] = gradients(lambda a: getattr(a * 1, name)(), y)
    for name in ("asin_", "acos_", "logit_", "erfinv_"):
        exact[name] = gradients(lambda a: getattr(a * 1, name)(), x)
    angle = (t.noise(128, 512, seed=4) * 6).requires_grad_()
    careful = {name: gradients(getattr(torch, name), angle) for name in ("sin", "cos", "sinh", "cosh")}
    careful.update({name: gradients(lambda a: getattr(a * 1, name)(), angle) for name in ("sin_", "cos_")})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.index_reduce(x, 0, torch.zeros(128, dtype=torch.long), y, "mean")
    t.emit(exact=exact, careful=careful, random=torch.get_rng_state(), warned=[str(w.message)[:40] for w in caught])
"""


def test_poles_and_periods_are_known_before_the_first_save(run_pair, identical, close):
    pair = run_pair(POLES, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=6).json
    identical(pleat["exact"], stock["exact"])
    # Finding out is not the job's: its random numbers and warnings are what they were.
    assert stock["warned"]
    identical([pleat["random"], pleat["warned"]], [stock["random"], stock["warned"]])
    # 8 bits of a range of 50 are steps of 0.2 radians; 4 bits would be 3.3, any angle.
    close(pleat["careful"], stock["careful"], relative=0.1)
    if pair.pleat.stats is not None:
        assert any((pleat["careful"][n][0] != stock["careful"][n][0]).any() for n in stock["careful"])


BEFORE = """
    import torch, pleat_test_support as t
    from torch.nn import functional as F
    def few(u):
        return (torch.arange(u.shape[-1]) % 25 == 3).float()
    cases = {
        "log of sigmoid": lambda u: torch.log(u.sigmoid() + 1e-8),
        "log of 1 - sigmoid": lambda u: torch.log(1 - u.sigmoid() + 1e-8),
        "log of 1 - tanh^2": lambda u: torch.log(1 - u.tanh()**2 + 1e-6),
        "log of 1 - tanh tanh": lambda u: torch.log(1 - u.tanh() * u.tanh() + 1e-6),
        "log of softmax": lambda u: torch.log(u.softmax(-1) + 1e-8),
        "log of 1 - (2 sigmoid - 1)^2": lambda u: torch.log(1 - (2 * u.sigmoid() - 1)**2 + 1e-6),
        "log1p": lambda u: torch.log1p(-u.tanh()**2 * 0.999),
        "logit": lambda u: torch.logit(u.sigmoid() * 0.99 + 0.005),
        "atanh": lambda u: torch.atanh(u.tanh() * 0.99),
        "cross entropy": lambda u: F.binary_cross_entropy(u.sigmoid().clamp(1e-7, 1 - 1e-7), torch.full_like(u, 0.5)),
        "root of a square": lambda u: torch.sqrt((u - 0.3)**2 + 1e-6),
        "root of a product": lambda u: (lambda v: torch.sqrt(v * v + 1e-6))(u - 0.3),
        "spectrum": lambda u: (lambda v: torch.log(v[:, ::2]**2 + v[:, 1::2]**2 + 1e-8))(u - 0.1),
        "sum of two": lambda u: torch.log((u - 0.1).view(64, -1, 2).pow(2).sum(-1) + 1e-8),
        "divisor": lambda u: 1 / (1 - u.tanh()**2 + 1e-6),
        "power": lambda u: (1 - u.tanh()**2 + 1e-6)**-0.5,
        "half of 1 + tanh": lambda u: torch.log((1 + u.tanh()) / 2 + 1e-8),
        "clamped": lambda u: torch.log((u * 9).sigmoid().clamp(min=1e-7)),
        "clamped by hand": lambda u: torch.log((u * 9).sigmoid().clamp_min(1e-7)),
        "rectified": lambda u: torch.log(u.tanh().relu() + 1e-6),
        "one of many": lambda u: torch.log(u.softmax(-1).gather(1, torch.arange(64)[:, None]) + 1e-10),
        "some of them": lambda u: torch.log(u.sigmoid()[:20] + 1e-8),
        "turned around": lambda u: torch.log(u.sigmoid().flip(1).roll(3, 0) + 1e-8),
        "padded": lambda u: torch.log(F.pad(u.sigmoid(), (1, 1)) + 1e-8),
        "sorted": lambda u: torch.log(u.sigmoid().sort(-1).values + 1e-8),
        "exponential": lambda u: torch.log(u.exp() / u.exp().sum(-1, keepdim=True) + 1e-8),
        "softplus": lambda u: torch.log(F.softplus(u * 3) + 1e-8),
        "cosine": lambda u: torch.log(u.cos() + 1 + 1e-6),
        "divisor in place": lambda u: torch.ones_like(u).div_(u.sigmoid() + 1e-7),
        "log in place": lambda u: (u.sigmoid() + 1e-8).log_(),
        "some classes": lambda u: torch.log((u.softmax(-1) * few(u)).sum(-1) + 1e-8),
        "other classes": lambda u: torch.log(1 - (u.softmax(-1) * (1 - few(u))).sum(-1) + 1e-8),
        "mean of few": lambda u: torch.log((u.softmax(-1) * few(u)).mean(-1) + 1e-10),
        "all but the largest": lambda u: torch.log(((u * 4 - (u * 4).amax(-1, keepdim=True)).exp() * (u < 2)).sum(-1)),
        "mixture": lambda u: torch.log(u.softmax(-1) @ few(u)[:, None] + 1e-8),
        "categorical": lambda u: torch.distributions.Categorical(probs=u.sigmoid()).log_prob(torch.arange(64)),
    }
    def gradient(case, width, seed):
        x = t.noise(64, width, seed=seed).requires_grad_()
        u = x * 1.0 @ (t.noise(width, width, seed=2) * 3 / width**0.5)
        y = case(u)
        del u
        return torch.autograd.grad(y.sum(), x)[0]
    # A width of its own each: what one case teaches does not help another.
    t.emit(gradients={name: [gradient(case, 128 + 2 * i, seed) for seed in (3, 4)] for i, (name, case) in enumerate(cases.items())},
           # Not before a pole: further off than a sum of sixteen, or mixed by a matrix.
           lossy={name: [gradient(case, 200, 5) for _ in range(6)][-1] for name, case in {   # of the first four some may wait
               "all classes": lambda u: torch.log((u - u.amax(-1, keepdim=True)).exp().sum(-1)),
               "all classes, repeated": lambda u: torch.log((u - u.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).expand(-1, 9)),
               "mean square": lambda u: torch.sqrt(((u - 0.3)**2).mean(-1) + 1e-6),
               "matrix": lambda u: torch.log((u.tanh() @ u.tanh().t()).abs() + 10),
               "numerator": lambda u: (u + 1).tanh() * 2 / (u * u + 1),
                "factor": lambda u: (u / 2) * (u / 3)}.items()},
           empty=gradient(lambda u: torch.log((u[:0].softmax(-1) * 2).sum(-1)), 224, 7),
           quotient=[gradient(lambda u: (u / 3).atan(), 220, 6), gradient(lambda u: (u / (u.square() + 1)).atan(), 222, 6)])
"""


@pytest.mark.smoke
def test_what_becomes_the_argument_of_a_pole_is_exact_from_the_first_step(run_pair, identical, close):
    pair = run_pair(BEFORE, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=3).json
    identical(pleat["gradients"], stock["gradients"])
    identical(pleat["quotient"][0], stock["quotient"][0])
    close(pleat["lossy"], stock["lossy"], relative=0.3)
    if pair.pleat.stats is not None:
        assert all((pleat["lossy"][n] != stock["lossy"][n]).any() for n in stock["lossy"])


LATE = """
    import torch, pleat_test_support as t
    def discretized(seed):                   # the likelihood of a bin: a difference of two sigmoids of products
        x, scale = t.noise(64, 130, seed=seed).requires_grad_(), t.noise(64, 130, seed=seed + 2).requires_grad_()
        inverse, centre = (scale * 1).exp(), x * 1
        inside = torch.sigmoid(inverse * (centre + 1e-5)) - torch.sigmoid(inverse * (centre - 1e-5))
        return torch.autograd.grad(torch.log(inside.clamp(min=1e-12)).sum(), (x, scale))
    def gradient(seed):
        x = t.noise(64, 128, seed=seed).requires_grad_()
        y = (x * 3).sigmoid() + 0
        for _ in range(12):                  # more nodes than it waits
            y = y + 1e-9
        return torch.autograd.grad(torch.log(y).sum(), x)[0]
    t.emit(first=[gradient(1), discretized(1)], second=[gradient(2), discretized(2)])
"""


def test_what_lies_further_back_is_exact_from_the_second_step(run_pair, identical):
    pair = run_pair(LATE, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    identical(pleat["second"], stock["second"])


WAITING = """
    import torch, pleat_test_support as t
    raw = []
    for step in range(6):
        x = t.noise(256, 256, seed=step).requires_grad_()
        h = x
        for _ in range(40):
            h = (h * 1).tanh()
        raw.append(t.stats()["bytes"]["saved_raw"]["current"] // (256 * 256 * 4) if t.stats() else 0)
        h.sum().backward()
        del h
        raw.append(t.stats()["bytes"]["saved_raw"]["current"] if t.stats() else 0)
    t.emit(raw=raw)
"""


def test_few_wait_for_a_pole_and_not_for_long(run_script):
    result = run_script(WAITING, conf=LOSSY).active(encoded=6 * 39)
    in_forward, after_backward = result.json["raw"][::2], result.json["raw"][1::2]
    assert max(in_forward) <= 6 and in_forward[-1] <= 1, in_forward    # the last lives
    assert max(after_backward) == 0, after_backward
    if result.stats is not None:
        assert max(in_forward) > 1, "none waited"
