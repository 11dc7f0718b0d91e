"""The build backend of `pip install --no-build-isolation .`: scikit-build-core, told which Python (and so
which torch) to build for, after one clear line where that cannot work."""

import importlib.util
import sys

if importlib.util.find_spec("scikit_build_core") is None:
    sys.exit("pleat: scikit-build-core is missing; install it first: pip install scikit-build-core")

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F401,F403 (the hooks that need nothing of ours)


def _settings(config_settings):
    if importlib.util.find_spec("torch") is None:
        sys.exit(
            f"pleat: there is no torch in {sys.prefix}; install torch first, then Pleat with"
            " `pip install --no-build-isolation .`"
        )
    return {"cmake.define.PLEAT_PYTHON": sys.executable, **(config_settings or {})}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _backend.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _backend.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return _backend.prepare_metadata_for_build_wheel(metadata_directory, _settings(config_settings))


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    return _backend.prepare_metadata_for_build_editable(metadata_directory, _settings(config_settings))
