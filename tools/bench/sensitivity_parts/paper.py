"""The rounding of ActNN and GACT (Chen et al. 2021, Liu et al. 2022), for comparison: groups of 256, stochastic
rounding to 2^b levels between a group's least and largest value, one width for all."""

from __future__ import annotations

import torch

GROUP = 256


def rounded(values: torch.Tensor, bits: int, random: torch.Generator) -> torch.Tensor:
    """`values`: one dimension. The result is unbiased, element by element."""
    count = values.numel()
    groups = -(-count // GROUP)
    padded = values.new_empty(groups * GROUP)
    padded[:count] = values
    padded[count:] = values[-1]
    padded = padded.view(groups, GROUP)
    low, high = padded.amin(1, keepdim=True), padded.amax(1, keepdim=True)
    top = float(2**bits - 1)
    step = (high - low) / top
    safe = torch.where(step > 0, step, torch.ones_like(step))
    code = torch.floor((padded - low) / safe + torch.rand(padded.shape, generator=random)).clamp_(0, top)
    return torch.where(step > 0, low + code * step, padded).view(-1)[:count]


class PaperRounding(torch.autograd.graph.saved_tensors_hooks):
    """Inside, for one forward and backward pass: every saved float that asks for a gradient and is no parameter is
    rounded, storages once each. `loss`: what a loss saves of its logarithms of probabilities, too; these are exact or
    8 bits on Pleat's side."""

    def __init__(self, bits: int, random: torch.Generator, loss: bool) -> None:
        self._bits, self._random, self._loss = bits, random, loss
        self._rounded: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}  # by address; keeps the storage alive
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor):
        if (
            tensor.dtype != torch.float32
            or not tensor.requires_grad
            or tensor.is_leaf
            or (not self._loss and "LogSoftmax" in type(tensor.grad_fn).__name__)
            or _is_view_of_leaf(tensor)
        ):
            return tensor.detach() if tensor.grad_fn is not None else tensor
        storage = tensor.untyped_storage()
        # In place changes come after the save of what a step reads: by the time of backward it is the last value.
        return storage, tensor.size(), tensor.stride(), tensor.storage_offset()

    def _unpack(self, kept):
        if isinstance(kept, torch.Tensor):
            return kept
        storage, size, stride, offset = kept
        key = storage.data_ptr()
        if key not in self._rounded:
            flat = torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,), (1,))
            self._rounded[key] = (storage, rounded(flat, self._bits, self._random))
        return torch.as_strided(self._rounded[key][1], size, stride, offset)


def _is_view_of_leaf(tensor: torch.Tensor) -> bool:
    """A parameter, transposed or seen in another shape."""
    node = tensor.grad_fn
    for _ in range(5):
        if node is None:
            return False
        name = type(node).__name__
        if "AccumulateGrad" in name:
            return True
        if not any(view in name for view in ("TBackward", "Transpose", "View", "Permute")):
            return False
        node = node.next_functions[0][0] if node.next_functions else None
    return False
