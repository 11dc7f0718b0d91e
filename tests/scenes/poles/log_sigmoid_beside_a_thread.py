"""log(sigmoid(u) + 1e-8) while a second thread records a graph of its own: nodes recorded next need not be readers."""

import threading

import torch


def nll(u):
    return -torch.log(torch.sigmoid(u) + 1e-8).mean()


def make(rng):
    leaf = (4 * torch.randn(40, 512, generator=rng)).requires_grad_()
    other = torch.randn(64, 64, generator=rng).requires_grad_()

    def record(stop):
        while not stop.is_set():
            x = other
            for _ in range(20):
                x = torch.relu(torch.tanh(x) * 1.1)

    def step(i):
        stop = threading.Event()
        thread = threading.Thread(target=record, args=(stop,))
        thread.start()
        try:
            return sum(nll(leaf[k]) for k in range(40))
        finally:
            stop.set()
            thread.join()

    return [leaf], step
