"""Runs test files of the host with device "cuda"."""

import importlib
import pathlib
import sys

import pytest

from device_runner import DeviceRunner

pytest_plugins = ("simulated",)
pytestmark = pytest.mark.rotating(set="files of the host on a device", share=4)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "whole_process"))

OF_THE_HOST = ("test_a_tensor_less_at_the_peak_of_backward",)  # it measures the host's memory
# Features that the simulation lacks, and scripts for the host only.
LACKING = ("SIMULATED CUDA: ", "can't convert cuda:0 device type tensor to numpy")
FILES = ("test_normalisation", "test_returned_gradients", "test_hooks", "test_threads", "test_in_place_gradients")


class OfHostFiles(DeviceRunner):
    def pair(self, source, **options):
        pair = super().pair(source, **options)
        lacking = [line for line in pair.stock.stderr.splitlines() if any(word in line for word in LACKING)]
        if pair.stock.returncode and lacking:
            pytest.skip(f"in stock too: {lacking[0][:200]}")
        return pair


@pytest.fixture(scope="module")
def runner(simulate, under_pleat, tmp_path_factory):
    return OfHostFiles(simulate, under_pleat, tmp_path_factory.mktemp("scripts"), launcher=[HERE / "on_device.py"])


for file in FILES:
    module = importlib.import_module(file)
    for name, thing in vars(module).items():
        if name.startswith("test_") and name not in OF_THE_HOST:
            globals()[f"{name}__{file.removeprefix('test_')}"] = thing
