"""Small trainings in plain torch: the same on every device.

    programs.py NAME DEVICE [STEPS]

Prints a line of JSON: the losses and a hash of the parameters at the end."""

import hashlib
import json
import sys

import torch
from torch import nn
from torch.nn import functional


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
    def __init__(self, vocabulary=100, length=32, width=64, layers=2, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))

    def loss(self, rng, device):
        tokens = torch.randint(0, 100, (4, 32), generator=rng).to(device)
        x = self.tokens(tokens) + self.places(torch.arange(32, device=device))
        return functional.cross_entropy(self.head(self.blocks(x)).view(-1, 100), tokens.view(-1))


class Convolutions(nn.Module):
    """Two residual blocks with batch norms."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                          nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def loss(self, rng, device):
        x = self.stem(torch.randn(8, 3, 16, 16, generator=rng).to(device))
        for block in self.inner:
            x = functional.relu(x + block(x))
        return functional.cross_entropy(self.head(x.mean((2, 3))), torch.randint(0, 5, (8,), generator=rng).to(device))


class Graph(nn.Module):
    """Messages along edges, by index_select and index_add."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * 16, 16) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def loss(self, rng, device):
        nodes = torch.randn(40, 16, generator=rng).to(device)
        source, target = torch.randint(0, 40, (2, 120), generator=rng).to(device)
        for layer in self.layers:
            messages = layer(torch.cat([nodes.index_select(0, source), nodes.index_select(0, target)], 1)).relu()
            nodes = torch.zeros_like(nodes).index_add(0, target, messages)
        return functional.cross_entropy(self.head(nodes), torch.randint(0, 3, (40,), generator=rng).to(device))


class LSTM(nn.Module):
    """Written by hand, a step at a time."""

    def __init__(self):
        super().__init__()
        self.gates, self.head = nn.Linear(8 + 24, 4 * 24), nn.Linear(24, 1)

    def loss(self, rng, device):
        series = torch.randn(12, 6, 8, generator=rng).to(device)
        hidden = cell = torch.zeros(6, 24, device=device)
        for x in series:
            forget, take, give, new = self.gates(torch.cat([x, hidden], 1)).chunk(4, 1)
            cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
            hidden = give.sigmoid() * cell.tanh()
        return functional.mse_loss(self.head(hidden)[:, 0], series.mean((0, 2)))


PROGRAMS = {"gpt": GPT, "convolutions": Convolutions, "graph": Graph, "lstm": LSTM}


def train(name, device, steps):
    torch.manual_seed(0)
    model = PROGRAMS[name]().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        loss = model.loss(torch.Generator().manual_seed(step), device)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    hashed = hashlib.sha256()
    for tensor in model.state_dict().values():
        hashed.update(tensor.detach().cpu().numpy().tobytes())
    return {"losses": losses, "state": hashed.hexdigest()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # a device has no convolutions of that kind
    print(json.dumps(train(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)))
