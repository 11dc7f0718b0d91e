"""The graph is built in a thread of its own and read in the one that calls backward; a sigmoid in it ends in a
log."""

import threading

import torch
from torch import nn


def in_thread(function, *arguments):
    results = []

    def run():
        torch.set_num_threads(1)  # applies to the calling thread
        results.append(function(*arguments))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(48, 128), nn.Linear(128, 128), nn.Linear(128, 48)
        with torch.no_grad():
            self.third.weight.mul_(12)

    def forward(self, x):
        return torch.sigmoid(self.third(torch.relu(self.second(torch.nn.functional.gelu(self.first(x))))))


def make(rng):
    model = Model()

    def step(i):
        x = torch.randn(192, 48, generator=torch.Generator().manual_seed(i))
        return -torch.log(in_thread(model, x) + 1e-7).mean()  # the pole is recorded in another thread than the sigmoid

    return model, step
