"""Gradients of the same steps, stock and under Pleat, each in a process of its own. Shared by planted.py and zoo.py.

    gradients.py MODULE SPEC OUT

is such a process: `workload(**SPEC)` of MODULE builds the model. The weights stay as they are, unless SPEC has the rate
`train` of Adam: then only losses are written. The process neither imports nor configures Pleat.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from harness import QUIET, Problem, Row, environment


@dataclass
class Pair:
    """Gradients of each step by parameter, and Pleat's counters."""

    exact: list[dict]
    noisy: list[dict]
    pleat: dict

    def steps(self, first: int = 0):
        return list(zip(self.exact, self.noisy, strict=True))[first:]


def pair(module: str, spec: dict, conf: str, library: pathlib.Path, threads: int) -> Pair:
    stock, pleat = (run(module, spec, row, library, threads) for row in (Row("stock"), Row("pleat", conf)))
    if stock["losses"] != pleat["losses"]:
        raise Problem(f"{spec}: losses differ: {stock['losses']} and {pleat['losses']}")
    if not pleat["pleat"]:
        raise Problem("Pleat was not active")
    return Pair(stock["gradients"], pleat["gradients"], pleat["pleat"])


def run(module: str, spec: dict, row: Row, library: pathlib.Path, threads: int) -> dict:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "gradients.pt"
        command = [sys.executable, __file__, module, json.dumps(spec), str(out)]
        done = subprocess.run(command, env=environment(row, library, threads) | QUIET, capture_output=True, text=True)
        if done.returncode:
            said = " | ".join(done.stderr.strip().splitlines()[-3:])
            raise Problem(f"{spec}, {row.name}: exit code {done.returncode}: {said}")
        return torch.load(out)


def error(have, want) -> float:
    """|have - want| / |want|."""
    return float((have.double() - want.double()).norm() / want.double().norm())


def column_error(have, want) -> float:
    """The root mean square of the columns' errors, each relative to its own norm. Columns of norm 0 do not count."""
    norms = want.double().flatten(1).norm(dim=0)
    apart = (have.double() - want.double()).flatten(1).norm(dim=0)
    return float((apart / norms)[norms > 0].square().mean().sqrt())


def payload_share(pleat: dict) -> float:
    """Payload bytes, with those kept raw, for each byte of the saved storages."""
    raw = pleat["codec"]["kept_raw_bytes"]
    return (pleat["records"]["payload_bytes"] + raw) / (pleat["records"]["source_bytes"] + raw)


def main(module: str, spec: str, out: str) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    from pleat_counters import of_this_process

    spec = json.loads(spec)
    steps, rate = spec.pop("steps"), spec.pop("train", None)
    workload = importlib.import_module(module).workload(**spec)
    optimizer = torch.optim.Adam(workload.model.parameters(), lr=rate) if rate else None
    losses, gradients = [], []
    for step in range(steps):
        torch.manual_seed(step)
        workload.model.zero_grad()
        loss = workload.loss(workload.batch(step))
        loss.backward()
        losses.append(loss.item())
        del loss
        if optimizer:
            optimizer.step()
            continue
        gradients.append({name: p.grad for name, p in workload.model.named_parameters() if p.grad is not None})
    torch.save({"losses": losses, "gradients": gradients, "pleat": of_this_process()}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
