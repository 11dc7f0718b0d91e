"""Small trainings in plain torch: the same on every device.

    programs.py NAME DEVICE [--steps N] [--seed S]

Prints a line of JSON: the losses, a hash of the final state and, on a CUDA device, the peak of allocated bytes from the
third step on, minus the allocated bytes before that step."""

import argparse
import hashlib
import json

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-1, -2) / (width // self.heads) ** 0.5
        ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(ahead, float("-inf")).softmax(-1) @ values
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    vocabulary, length, batch = 100, 64, 8

    def __init__(self, width=128, layers=4, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(self.vocabulary, width), nn.Embedding(self.length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, self.vocabulary, bias=False))

    def loss(self, rng, device):
        tokens = torch.randint(0, self.vocabulary, (self.batch, self.length), generator=rng).to(device)
        x = self.tokens(tokens) + self.places(torch.arange(self.length, device=device))
        return functional.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), tokens.flatten())


class Checkpointed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False)


class CheckpointedGPT(GPT):
    def __init__(self):
        super().__init__(layers=8)
        self.blocks = nn.Sequential(*map(Checkpointed, self.blocks))


def convolution(before, after, size, stride=1):
    return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.inner = nn.Sequential(convolution(before, after, 3, stride), nn.ReLU(True), convolution(after, after, 3))
        self.past = convolution(before, after, 1, stride) if stride != 1 else nn.Identity()

    def forward(self, x):
        return functional.relu(self.past(x) + self.inner(x))


class ResNet18(nn.Module):
    """An eighth of the usual width."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1))
        wide = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(
            *(Residual(wide[i + (j == 1)], wide[i + 1], 2 if i > 0 and j == 0 else 1) for i in range(4) for j in range(2))
        )
        self.head = nn.Linear(8 * width, 10)

    def loss(self, rng, device):
        x = self.blocks(self.stem(torch.randn(8, 3, 64, 64, generator=rng).to(device)))
        return functional.cross_entropy(self.head(x.mean((2, 3))), torch.randint(0, 10, (8,), generator=rng).to(device))


class Graph(nn.Module):
    """Messages along edges, by index_select and index_add."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.head = nn.Linear(width, 3)

    def loss(self, rng, device):
        nodes = torch.randn(200, 32, generator=rng).to(device)
        source, target = torch.randint(0, 200, (2, 1200), generator=rng).to(device)
        for layer in self.layers:
            messages = layer(torch.cat([nodes.index_select(0, source), nodes.index_select(0, target)], 1)).relu()
            nodes = torch.zeros_like(nodes).index_add(0, target, messages)
        return functional.cross_entropy(self.head(nodes), torch.randint(0, 3, (200,), generator=rng).to(device))


class LSTM(nn.Module):
    """Written by hand, a step at a time."""

    def __init__(self, width=64):
        super().__init__()
        self.width = width
        self.gates, self.head = nn.Linear(16 + width, 4 * width), nn.Linear(width, 1)

    def loss(self, rng, device):
        series = torch.randn(24, 32, 16, generator=rng).to(device)
        hidden = cell = torch.zeros(32, self.width, device=device)
        for x in series:
            forget, take, give, new = self.gates(torch.cat([x, hidden], 1)).chunk(4, 1)
            cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
            hidden = give.sigmoid() * cell.tanh()
        return functional.mse_loss(self.head(hidden)[:, 0], series.mean((0, 2)))


PROGRAMS = {"gpt": GPT, "checkpointed_gpt": CheckpointedGPT, "resnet18": ResNet18, "graph": Graph, "lstm": LSTM}


def train(name, device, steps, seed):
    torch.manual_seed(seed)
    model = PROGRAMS[name]().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    result = {"losses": []}
    for step in range(steps):
        if device != "cpu" and step == 2:
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
        loss = model.loss(torch.Generator().manual_seed(1000 * seed + step), device)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        result["losses"].append(loss.item())
        del loss
    if device != "cpu" and steps > 2:
        result["peak"] = torch.cuda.max_memory_allocated() - base
    hashed = hashlib.sha256()
    for tensor in model.state_dict().values():
        hashed.update(tensor.detach().cpu().numpy().tobytes())
    return result | {"state": hashed.hexdigest()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("device")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # a device has no such convolutions
    torch.backends.cudnn.enabled = False
    print(json.dumps(train(options.name, options.device, options.steps, options.seed)))
