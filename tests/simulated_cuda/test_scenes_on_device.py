"""Scenes (tests/scenes) with device "cuda": noise is as harmless as on the host."""

import pathlib
import sys

import pytest

pytest_plugins = ("simulated",)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "scenes"))

import scene  # noqa: E402

CONF = "cuda:1,bits:4,min_bytes:0"
SMALL = 0.2  # of a gradient's norm: one draw of noise that is 0.16 in the mean. The host's can be a luckier one.
SCENES = [path for path in scene.all_scenes() if not scene.is_slow(path)]


@pytest.mark.rotating(set="scenes on a device", share=6)
@pytest.mark.parametrize("path", SCENES, ids=scene.scene_name)
def test_noise_is_as_harmless_on_a_device_as_on_the_host(path, under_pleat, simulate):
    outcome = under_pleat(HERE / "scene_on_device.py", path, CONF, conf=CONF)
    if outcome.code:  # missing in the simulation, or a scene that creates tensors on the host itself
        stock = simulate(HERE / "scene_on_device.py", path, CONF)
        if stock.code == outcome.code:
            pytest.skip(f"in stock too: {stock.stderr.strip().splitlines()[-1][:200]}")
    found = outcome.result
    if "missing" in found:
        pytest.skip(f"{found['missing']} is not installed")
    device, host, bar = found["device"], found["host"], found["bar"]
    assert device.keys() == host.keys()
    assert {name: error for name, error in device.items() if error > (bar or max(SMALL, 1.6 * host[name]))} == {}, host
    assert outcome.reports == []
    if any(host.values()):
        assert sum(found["coded"].values()) > 0
