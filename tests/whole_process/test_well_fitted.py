"""Cross entropy's log-probabilities are coded at 8 bits. Small elements of its gradient must stay small: a token that the
model has nearly right gets the gradient of the remaining error, not noise."""

import numpy
import pytest

BITS = "bits:4,min_bytes:0"

# Three quarters of the targets are ahead. `ahead` and `gap` in logits: the gap is to one competitor, or to none.
LOGITS = """
    import torch, pleat_test_support as t
    from torch import nn
    from torch.nn import functional as F
    g = torch.Generator().manual_seed(1)
    def logits(rows, classes, ahead, gap):
        x = torch.randn(rows, classes, generator=g) * 2
        target, other = torch.randint(classes, (2, rows), generator=g)
        fitted = torch.rand(rows, generator=g) < 0.75
        row = fitted.nonzero()[:, 0]
        if gap is not None:
            x[row, other[row]] = ahead - gap
        x[row, target[row]] = ahead
        return x, target, fitted
    torch.manual_seed(0)
"""

TOKENS = LOGITS + """
    x, target, fitted = logits(128, 50257, {ahead}, {gap})
    below, head = nn.Linear(8, 32), nn.Linear(32, 50257)
    hidden = below(torch.randn(128, 8, generator=g))
    hidden.retain_grad()
    F.cross_entropy(head(hidden) * 0.1 + x, target).backward()
    t.emit(gradient=hidden.grad[fitted], fitted=int(fitted.sum()))
"""

PIXELS = LOGITS + """
    x, target, fitted = logits(4 * 96 * 96, 21, {ahead}, {gap})
    x, target, fitted = x.view(4, 96, 96, 21).permute(0, 3, 1, 2), target.view(4, 96, 96), fitted.view(4, 96, 96)
    below, head = nn.Conv2d(1, 16, 1), nn.Conv2d(16, 21, 1)
    hidden = below(torch.randn(4, 1, 96, 96, generator=g))
    hidden.retain_grad()
    F.cross_entropy(head(hidden) * 0.1 + x, target).backward()
    t.emit(gradient=hidden.grad.permute(0, 2, 3, 1)[fitted], fitted=int(fitted.sum()))
"""


def error_of(run_pair, figures, name, script):
    """The relative error of the gradient of the well-fitted rows."""
    pair = run_pair(script, conf=BITS)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert stock["fitted"] == pleat["fitted"] > 64
    exact, noisy = numpy.asarray(stock["gradient"]), numpy.asarray(pleat["gradient"])
    assert (exact != noisy).any(), "nothing was lossy"
    error = numpy.linalg.norm(noisy - exact) / numpy.linalg.norm(exact)
    figures.append(f"gradient of well-fitted {name}: off by {error:.4f} of its norm")
    return error


def test_well_fitted_tokens_of_a_large_vocabulary_get_their_gradient_within_one_percent(run_pair, figures):
    assert error_of(run_pair, figures, "tokens", TOKENS.format(ahead=16, gap=None)) <= 0.01


@pytest.mark.parametrize("gap", [4, 8])
@pytest.mark.parametrize("script", [TOKENS, PIXELS], ids=["tokens", "pixels"])
def test_a_well_fitted_element_with_one_competitor_gets_its_gradient_within_three_percent(run_pair, figures, request, script, gap):
    name = f"{request.node.callspec.id}, one competitor"
    assert error_of(run_pair, figures, name, script.format(ahead=25, gap=gap)) <= 0.03
