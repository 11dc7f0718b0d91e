"""Trains a scene as a user's script would: python as_script.py SCENE [STEPS]. For `pleat check`, which looks at scripts."""

import importlib.util
import sys

import torch


def main(path, steps=3):
    spec = importlib.util.spec_from_file_location("scene", path)
    scene = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scene)
    torch.manual_seed(0)
    model, step = scene.make(torch.Generator().manual_seed(0))
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else list(model)
    optimiser = getattr(scene, "OPTIMISER", lambda p: torch.optim.Adam(p, 1e-3))([p for p in parameters if p.requires_grad])
    backward = getattr(scene, "backward", lambda loss, _: loss.backward())
    first = getattr(scene, "FIRST", 0)
    for i in range(first + int(steps)):
        torch.manual_seed(i)
        optimiser.zero_grad()
        result = step(i)
        loss = result[0] if getattr(scene, "VALUES", False) else result
        if loss is not None:
            backward(loss, i)
        optimiser.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
