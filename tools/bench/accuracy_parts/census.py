"""What one forward pass saves, by torch's own hooks: the whole that shares are of. Knows nothing of Pleat."""

from __future__ import annotations

from collections.abc import Callable

import torch


def saved_floats(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> dict[str, int]:
    """Bytes of the floating storages that `loss()` saves, each once, without those of parameters; and how many of them
    are `masks`: two values at most, and no gradient asked for."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}  # alive, so that no address comes twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if tensor.is_floating_point() and address not in parameters:
            known = kept.get(address)
            # A storage asks for a gradient if one of its tensors does.
            if known is None or (tensor.requires_grad and not known.requires_grad):
                kept[address] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = loss()
    found = {"bytes": 0, "masks": 0}
    for tensor in kept.values():
        size = tensor.untyped_storage().nbytes()
        found["bytes"] += size
        if not tensor.requires_grad and 1 < tensor.numel() and len(tensor.unique()) <= 2:
            found["masks"] += size
    del result
    return found
