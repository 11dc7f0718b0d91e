"""Runs a scene of tests/scenes with device "cuda", and then on the host: see test_scenes_on_device.py.

    scene_on_device.py SCENE CONF

A device knows the scales of a key's values from the second tensor on that is asked for in the same way, and the first step
of a graph changes what is asked. So the first two steps of a scene about scales do not count there. Tensors that the scene
creates without a device are created on cuda:0, with the values that the host would draw. Prints a line of JSON: the errors of both by parameter (the largest of all steps), the scene's own bar and the coded bytes on each device; an
empty object in stock."""

import contextlib
import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "scenes"), str(TESTS), str(TESTS / "simulated_cuda")]

import leg  # noqa: E402
from on_device import OnDevice  # noqa: E402


def errors(path, conf, where, first=0):
    scene = leg.import_scene(path)
    with where:
        report = leg.Leg(scene, conf, with_bias=False).report()
    found = {}
    for step in report["steps"][first:] or report["steps"][-1:]:
        for name, error in ((step["errors"] or {}) | step["values"]).items():
            found[name] = max(error, found.get(name, 0.0))
    return found, report


def main(path, conf):
    about_scales = pathlib.Path(path).parent.name == "scales"
    on_device, report = errors(path, conf, OnDevice(), first=2 if about_scales else 0)
    if report["stats"] is None:  # stock
        print("{}")
        return
    on_host, _ = errors(path, conf, contextlib.nullcontext())
    coded = {d["name"]: d["records"]["encoded"] for d in report["stats"]["devices"]}
    print(json.dumps({"device": on_device, "host": on_host, "bar": report["bar"], "coded": coded}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ModuleNotFoundError as absent:
        if (absent.name or "").partition(".")[0] not in leg.OPTIONAL:
            raise
        print(json.dumps({"missing": absent.name}))
