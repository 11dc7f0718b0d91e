"""torch.compile: saves of a compiled function are left alone and counted; saves of the layers around it are compressed."""

import pytest

from conftest import LOSSLESS, LOSSY, OFF


def left_to_the_compiled_function(result):
    return result.stats["eligibility"].get("compiled_function", {}).get("tensors", 0)


COMPILED = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    stem = torch.nn.Sequential(torch.nn.Linear(64, 64), t.Gate(), torch.nn.GELU())
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 4))
    compiled = torch.compile(model, backend={backend!r})
    head = torch.nn.Linear(4, 1)
    parameters = [*stem.parameters(), *model.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    x, y = t.noise(128, 64, seed=1), t.noise(128, 1, seed=2)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        loss = (torch.tanh(head(compiled(stem(x)))) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    t.emit(losses=losses, final=parameters)
"""


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_compiled_models_train(run_pair, identical, close, build_dir, torch_version, backend, conf):
    cache = build_dir / "test_extensions" / f"inductor{torch_version}"
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    pair = run_pair(COMPILED.format(backend=backend), conf=conf, env=env, timeout=400)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=5).json
    assert pleat["losses"][0] == stock["losses"][0]
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        close(pleat["final"], stock["final"], relative=0.1)
    if pair.pleat.stats is not None:
        # At least the function's input in every step, which the eager layer before it has made.
        assert left_to_the_compiled_function(pair.pleat) >= 5


FRAGILE = """
    import torch, pleat_test_support as t
    a = t.activations(t.noise(128, 512, seed=1).square() + 1e-4)
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g
    def gradient(function):
        x = a * 1 + 0
        y = function(x)
        del x
        return torch.autograd.grad(y.sum(), a)[0]
    compiled = torch.compile(lambda x: x.log() + 1 / x, backend="aot_eager")
    own = [gradient(Own.apply)]
    quotient = [gradient(compiled), gradient(compiled)]
    own.append(gradient(Own.apply))                  # a function of the script's own, before and after
    t.emit(quotient=quotient, own=own)
"""


@pytest.mark.smoke
def test_tensors_saved_by_a_compiled_function_are_exact(run_pair, identical, close):
    pair = run_pair(FRAGILE, conf=LOSSY + ",trust:+Own", timeout=240)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    identical(pleat["quotient"], stock["quotient"])
    close(pleat["own"], stock["own"], relative=0.2)
    if pair.pleat.stats is not None:
        assert left_to_the_compiled_function(pair.pleat) >= 2
        for mine, theirs in zip(pleat["own"], stock["own"]):
            assert (mine != theirs).any(), "a function of the script's own was left alone too"


COMPILED_BACKWARD = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), t.Gate(), torch.nn.GELU(), torch.nn.Linear(256, 16))
    x = t.noise(256, 64, seed=1)
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss
    step(x)                                          # an ordinary step first
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="aot_eager")(x)
    from torch._dynamo import compiled_autograd
    loss = model(x).square().mean()
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
        loss.backward()
    t.emit(gradients=t.gradients(model))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [OFF, LOSSLESS])
def test_compiled_autograd_gives_the_same_as_in_stock(run_pair, identical, conf):
    pair = run_pair(COMPILED_BACKWARD, conf=conf, timeout=240)
    pair.stock.check()
    identical(pair.pleat.active(encoded=1).json, pair.stock.json)
