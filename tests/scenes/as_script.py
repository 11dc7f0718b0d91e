"""Trains a scene as a user's script would: python as_script.py SCENE [STEPS]. For `pleat check`, which looks at scripts."""

import pathlib
import sys

import torch


def main(path, steps=3):
    sys.path.insert(0, str(pathlib.Path(path).resolve().parents[1]))
    import leg

    scene = leg.import_scene(path)
    torch.manual_seed(0)
    model, step = scene.make(torch.Generator().manual_seed(0))
    optimiser = leg.optimiser_of(scene, leg.list_of_leaves(model))
    first = getattr(scene, "FIRST", 0)
    for i in range(first + int(steps)):
        torch.manual_seed(i)
        optimiser.zero_grad()
        result = step(i)
        leg.run_backward(scene, result[0] if getattr(scene, "VALUES", False) else result, i)
        optimiser.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
