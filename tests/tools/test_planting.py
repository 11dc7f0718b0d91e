"""tools/bench/planting.py makes a model as trained ones are, and leaves its function as it was."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))

MODELS = {
    "llama": {"width": 64, "layers": 2, "length": 32, "vocabulary": 256, "autocast": False}, "bert": {}, "vit": {}, "t5": {},
}  # fmt: skip


@pytest.mark.rotating(set="planting")
@pytest.mark.parametrize("name", MODELS)
def test_planting_leaves_the_function_and_makes_outliers(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision" if name == "vit" else "transformers")
    import planted
    import planting

    workload = planted.workload(name, planted=False, seed=0, batch=1, **MODELS[name])
    model = workload.model.double().eval()
    results, widest = [], []
    model.register_forward_hook(lambda _, __, result: results.append(result if name == "vit" else result.logits))

    def note(module, inputs):
        rms = inputs[0].detach().flatten(0, -2).square().mean(0).sqrt()
        widest.append(float(rms.max() / rms.median()))

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(note)
    batch = workload.batch(0)
    batch = tuple(t.double() if t.is_floating_point() else t for t in batch) if isinstance(batch, tuple) else batch
    with torch.no_grad():
        workload.loss(batch)
        before, weights = copy.deepcopy(widest), {n: p.clone() for n, p in model.named_parameters()}
        planting.plant(model)
        widest.clear()
        workload.loss(batch)
    assert sum((p != weights[n]).any().item() for n, p in model.named_parameters()) >= 8
    assert results[0].std() > 1e-3
    # transformers' norms and softmax round to float32 in any case.
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5 * float(results[0].abs().max()))
    assert max(before) < 10 and sum(ratio > 15 for ratio in widest) >= 2, (before, widest)
