"""GACT (Liu et al. 2022) as its paper has it, for comparison: groups of 256, stochastic rounding to 2^b levels between a
group's least and largest value (that of ActNN, Chen et al. 2021, too), and widths of 1, 2, 4, 8 and 32 bits by its
algorithm 1."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Sequence

import torch

GROUP = 256
EXACT = 32
WIDTHS = (EXACT, 8, 4, 2, 1)


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
    rounded, storages once each, and numbered in the order in which backward reads them first. `bits`: of all, or of
    each. `random`: of all, or what makes that of a number. `loss`: what a loss saves of its logarithms of
    probabilities, too; these are exact or 8 bits on Pleat's side."""

    def __init__(
        self,
        bits: int | Sequence[int],
        random: torch.Generator | Callable[[int], torch.Generator],
        loss: bool,
    ) -> None:
        self._bits, self._random, self._loss = bits, random, loss
        self.elements: list[int] = []  # of each that was read
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
            number = len(self.elements)
            bits = self._bits if isinstance(self._bits, int) else self._bits[number]
            random = self._random(number) if callable(self._random) else self._random
            self.elements.append(flat.numel())
            self._rounded[key] = (storage, flat if bits == EXACT else rounded(flat, bits, random))
        return torch.as_strided(self._rounded[key][1], size, stride, offset)


@dataclasses.dataclass(frozen=True)
class Sensitivities:
    """Of each tensor in its order: c, where its noise at b bits is c S(b), and its elements."""

    values: list[float]
    elements: list[int]


def shape(bits: int) -> float:
    """S(b), the noise of b bits but for a factor of the tensor."""
    return 0.0 if bits == EXACT else (2**bits - 1) ** -2.0


def sensitivities(gradient: Callable[[], torch.Tensor], bits: int, seed: int) -> Sensitivities:
    """Algorithm 1: two gradients for each tensor, all of which are noisy, with another seed of this one."""

    def taken(redrawn: int | None) -> tuple[torch.Tensor, list[int]]:
        def random(number: int) -> torch.Generator:
            return torch.Generator().manual_seed((seed << 24) + 2 * number + (number == redrawn))

        rounding = PaperRounding(bits, random, loss=True)
        with rounding:
            return gradient(), rounding.elements

    _, elements = taken(None)
    values = []
    for number in range(len(elements)):
        one, other = taken(None)[0], taken(number)[0]
        values.append(float((one - other).double().square().sum()) / 2 / shape(bits))
    return Sensitivities(values, elements)


def assigned(found: Sensitivities, bits: float) -> list[int]:
    """The bits of each tensor: all begin with 32, and the one whose noise grows least by the bit and element goes down
    a step, until they are no more than `bits` on average."""
    levels = [0] * len(found.elements)
    left = sum((EXACT - bits) * elements for elements in found.elements)

    def step(number: int) -> tuple[float, int]:
        high, low = WIDTHS[levels[number]], WIDTHS[levels[number] + 1]
        grows = found.values[number] * (shape(low) - shape(high))
        return grows / (found.elements[number] * (high - low)), -number

    steps = [step(number) for number in range(len(levels))]
    heapq.heapify(steps)
    while left > 0 and steps:
        number = -heapq.heappop(steps)[1]
        left -= found.elements[number] * (WIDTHS[levels[number]] - WIDTHS[levels[number] + 1])
        levels[number] += 1
        if levels[number] + 1 < len(WIDTHS):
            heapq.heappush(steps, step(number))
    return [WIDTHS[level] for level in levels]


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
