"""Metadata of the wheel: it requires the release of torch that its bridge is built for."""

import importlib.metadata


def dynamic_metadata(field, settings=None):
    """["torch==2.11.*"] where torch 2.11 is installed. A source archive made without torch asks for any that can be built."""
    assert field == "dependencies"
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return ["torch>=2.11"]
    return [f"torch=={major}.{minor}.*"]
