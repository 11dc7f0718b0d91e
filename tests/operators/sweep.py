"""Runs PyTorch's own operator and module tables forward, backward and double backward, stock and under Pleat in one process,
and compares.

    LD_PRELOAD=build/lib/libpleat.so PLEAT_CONF="bits:4,min_bytes:0" PLEAT_TEST_CONF="copy_raw:1" \
        build/venv/bin/python tests/operators/sweep.py --check lossy --json report.json

Every sample runs with tagging off (the reference), then with tagging on. After a finding it runs with tagging off twice
more: a sample that stock itself does not repeat bit for bit is dropped and counted. Inputs are fresh results of a product
that are freed right after the forward pass, so that saved tensors are really released; the report counts the operators with
a saved tensor that came back changed.

  --check lossless   gradients, and gradients of gradients, equal stock's bit for bit
  --check lossy      no exception; finite values where stock's are finite; every tensor read back from
                     the graph is within its codec's bound of stock's
  --subject pleat    the side compared with stock: Pleat ("pleat"), stock again ("stock": validates
                     this program), or hooks that damage saved tensors ("damage": negative control)

Without --draw it runs every sample, in the order of the tables; with it a tenth of each operator's (tests/draw.py). With
--device cuda the same samples, made on the CPU, run there: lossless only.

Torch-only on purpose: it needs only the C ABI of the bridge to switch tagging.
"""

import argparse
import collections
import contextlib
import faulthandler
import functools
import json
import os
import re
import sys
import time
import traceback
import warnings
import zlib

faulthandler.enable()
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "whole_process")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_unflatten  # noqa: E402

import pleat_test_support as support  # noqa: E402
from draw import Draw  # noqa: E402
from exclusions import EXCLUSIONS  # noqa: E402

GROUP = 256  # elements of a quantisation group, in storage order

DEVICE = torch.device("cpu")  # of the samples


def seed_the_devices_in_use(seed):
    if DEVICE.type == "cuda":
        torch.cuda.manual_seed(int(seed))
    return torch.default_generator.manual_seed(int(seed))


# For every accelerator that is not yet in use, torch stores a formatted stack when it is seeded.
torch.manual_seed = torch.random.manual_seed = seed_the_devices_in_use

# Saved tensors whose backward is fragile: the bits they must keep at least (None: exact).
FRAGILE_OUTPUTS = {
    "SoftmaxBackward0": 8,
    "LogSoftmaxBackward0": 8,
    "ExpBackward0": 8,
    "LinalgCholeskyExBackward0": None,
    "LinalgQrBackward0": None,
    "LinalgSvdBackward0": None,
    "LinalgEighBackward0": None,
    "LinalgEigBackward0": None,
    "LinalgInvExBackward0": None,
    "LinalgLuBackward0": None,
    "LinalgLuFactorExBackward0": None,
    "LinalgSolveExBackward0": None,
}

# Saved tensors whose bytes stock leaves partly uninitialised and never reads: no value to compare.
PARTLY_UNINITIALISED = {
    ("CtcLossBackward0", "_saved_result1[0]"),  # log-alpha beyond each sequence's length
    ("MkldnnRnnLayerBackward0", "_saved_result3[0]"),  # oneDNN's workspace
    ("RreluWithNoiseBackward0", "_saved_noise[0]"),  # where the input is positive
}

# Nodes that compare their saved tensors with constants, or read only their shapes. Other values on the same sides suffice,
# so the node's gradient is compared with stock's, bit for bit.
READ_NO_VALUES = (
    "AbsBackward", "AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "ClampBackward1", "ClampMaxBackward0", "ClampMinBackward0",
    "CummaxBackward", "CumminBackward", "FftR2C", "FractionalMaxPool", "GatherBackward", "Hardshrink", "HardsigmoidBackward",
    "Hardtanh", "IndexAdd", "IndexCopy", "LeakyRelu", "MaskedSelect", "MaxPool2DWithIndices", "MaxPool3DWithIndices",
    "NllLoss", "PutBackward", "ReflectionPad", "ReluBackward", "ReplicationPad", "Softshrink", "TakeBackward", "Threshold",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------
# One sample: forward, backward, double backward.


def is_plain(tensor):
    return tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


class FreshInputs:
    """Copies of a sample's tensors: `leaves` (for gradients), and `values`, the pytree to feed."""

    def __init__(self, tree):
        flat, spec = tree_flatten(tree)
        self.leaves = []
        copies = {}
        fresh = []
        for item in flat:
            if not isinstance(item, torch.Tensor):
                fresh.append(item)
                continue
            if id(item) not in copies:
                copies[id(item)] = self._copy(item)
            fresh.append(copies[id(item)])
        self.values = tree_unflatten(fresh, spec)

    def _copy(self, tensor):
        plain = is_plain(tensor) and not tensor.is_conj() and not tensor.is_neg()
        if not plain:
            leaf = tensor.detach().clone().to(DEVICE)
            if tensor.requires_grad:
                leaf.requires_grad_()
                self.leaves.append(leaf)
            return leaf.clone() if tensor.requires_grad else leaf
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        whole = tensor.storage_offset() == 0 and tensor.is_contiguous() and tensor.numel() == elements
        with torch.no_grad():
            if whole:
                leaf = tensor.detach().clone().to(DEVICE)
            else:  # keep the layout: copy the whole storage, view it the same way
                base = torch.empty(0, dtype=tensor.dtype).set_(
                    tensor.detach().untyped_storage(), 0, (elements,), (1,)
                )
                leaf = base.clone().to(DEVICE)
        if tensor.requires_grad:
            leaf.requires_grad_()
            self.leaves.append(leaf)
        # A product, and not a clone: that could be a parameter's copy, which Pleat leaves alone.
        fresh = leaf * 1 if tensor.requires_grad else leaf
        if not whole:
            fresh = fresh.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return fresh

    def take(self):
        """The values, handed over to the caller: this object keeps no reference."""
        values, self.values = self.values, None
        return values


def differentiable(tree):
    return [
        t
        for t in tree_flatten(tree)[0]
        if isinstance(t, torch.Tensor) and t.requires_grad and (t.is_floating_point() or t.is_complex())
    ]


def weighted_sum(tensors, generator):
    """A scalar whose gradient with respect to each tensor is fixed and random."""
    total = None
    for tensor in tensors:
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        weight = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        term = (tensor * weight.to(tensor.dtype).to(tensor.device)).sum()
        if term.is_complex():
            term = term.real + term.imag
        term = term.double()
        total = term if total is None else total + term
    return total


class Case:
    """A sample as a function of fresh inputs. Failures print `name`; `index` is the sample's."""

    def __init__(self, name, tree, call, double):
        self.name, self.tree, self.call, self.double = name, tree, call, double
        self.index, self.seed = 0, 0
        self.changed = False  # some saved tensor came back other than stock's

    def forward(self):
        """(scalar, leaves); afterwards only the graph keeps intermediates alive."""
        torch.manual_seed(self.seed)
        inputs = FreshInputs(self.tree)
        leaves = inputs.leaves
        outputs, extra_leaves = self.call(inputs)
        leaves = leaves + extra_leaves
        outputs = differentiable(outputs)
        generator = torch.Generator().manual_seed(self.seed + 1)
        scalar = weighted_sum(outputs, generator) if outputs else None
        return scalar, leaves


class Outcome:
    """The result of running a case: tensors per stage, or the stage and text of its exception."""

    def __init__(self):
        self.stages = {}
        self.error = None

    def key(self):
        return {stage: [support.digest(t) for t in tensors] for stage, tensors in self.stages.items()}


def run_case(case, inspect=None):
    """The outcome. `inspect` is called with the scalar between forward and backward."""
    outcome = Outcome()
    stage = "forward"
    try:
        scalar, leaves = case.forward()
        outcome.stages["forward"] = [] if scalar is None else [dense(scalar)]
        if scalar is None or not leaves:
            return outcome
        if inspect:
            stage = "inspection"
            inspect(scalar)
        stage = "backward"
        first = torch.autograd.grad(
            scalar, leaves, create_graph=case.double, allow_unused=True
        )
        outcome.stages["backward"] = [dense(g) for g in first if g is not None]
        del scalar
        again = [g for g in first if g is not None and g.requires_grad]
        del first
        if not case.double or not again:
            return outcome
        stage = "double backward"
        generator = torch.Generator().manual_seed(case.seed + 2)
        scalar = weighted_sum(again, generator)
        del again
        second = torch.autograd.grad(scalar, leaves, allow_unused=True)
        outcome.stages["double backward"] = [dense(g) for g in second if g is not None]
    except Exception as error:  # noqa: BLE001 - whatever stock raises, Pleat must raise too
        outcome.error = (stage, type(error).__name__, str(error))
    return outcome


def dense(tensor):
    tensor = tensor.detach().cpu()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


# ---------------------------------------------------------------------------------------------
# The saved tensors of a sample's graph.

_saved_names = {}


def gradients_of(node):
    """A hash of the node's results for gradients that are the same in each graph."""
    made = []
    for like in node._input_metadata:
        generator = torch.Generator().manual_seed(len(made))
        made.append(torch.randn(tuple(like.shape), generator=generator, dtype=torch.float64).to(like.dtype))
    with torch.no_grad():
        found = node(*made)
    return support.digest(*(t for t in (found if isinstance(found, tuple) else (found,)) if t is not None))


def saved_tensors(scalar):
    """[(node name, attribute, tensor, gradients)] of every tensor saved in the graph of `scalar`. gradients: a hash, of
    nodes that read no values."""
    found = []
    seen, queue = {scalar.grad_fn}, collections.deque([scalar.grad_fn])
    while queue:
        node = queue.popleft()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
        kind = type(node)
        if kind not in _saved_names:
            names = [n for n in dir(node) if n.startswith("_saved_")]
            _saved_names[kind] = names or (["saved_tensors"] if hasattr(node, "saved_tensors") else [])
        for name in _saved_names[kind]:
            try:
                value = getattr(node, name)
            except AttributeError:
                continue
            for position, tensor in enumerate(value if isinstance(value, (tuple, list)) else [value]):
                if isinstance(tensor, torch.Tensor):
                    gradients = gradients_of(node) if node.name().startswith(READ_NO_VALUES) else None
                    found.append((node.name(), f"{name}[{position}]", tensor, gradients))
    return found


def storage_elements(tensor):
    """Indices, in elements of the storage, of every element of a strided tensor."""
    index = torch.full((), tensor.storage_offset(), dtype=torch.int64)
    for size, stride in zip(tensor.size(), tensor.stride()):
        index = index.unsqueeze(-1) + torch.arange(size, dtype=torch.int64) * stride
    return index.reshape(-1)


def room_of_channels(values):
    """How many times the step of its group an element may be off by. Where channels differ in size, a table of powers of two
    (docs/payload_format.md) brings small ones to the size of the others, to within rounding to a power of two: so a group
    may span half as much again, and twice that if only the small ones have the other sign."""
    for channels in {1, values.dim() - 1} if values.dim() >= 2 else ():
        others = [d for d in range(values.dim()) if d != channels]
        size = values.square().mean(others, keepdim=True).sqrt()
        ratio = torch.log2(size / size[size > 0].median()).nan_to_num(0, 0, 0) if bool((size > 0).any()) else size
        if bool((ratio.abs() >= 0.9).any()):
            return 3.0
    return 1.0


class Bounds:
    """The allowed error of every saved tensor, from the originals in a stock graph."""

    def __init__(self, originals):
        self.by_storage = collections.defaultdict(list)
        for _, _, tensor, _ in originals:
            if is_plain(tensor):
                self.by_storage[tensor.untyped_storage().data_ptr()].append(tensor)

    def allowed(self, original, bits):
        """Per element of `original`: group range / (2^bits - 1). Groups are 256 elements in storage order if this view
        covers its storage; else the range over all saved views of it, and likewise below 1024 elements: `copy_raw:1` fills
        groups by repetition, and the last one wraps."""
        views = self.by_storage[original.untyped_storage().data_ptr()]
        flat = original.detach().reshape(-1).double()
        flat = torch.where(flat.isfinite(), flat, 0.0)
        index = storage_elements(original)
        elements = original.untyped_storage().nbytes() // original.element_size()
        if 1024 <= elements == flat.numel() == index.unique().numel():
            values, groups, aligned = flat, index // GROUP, True
        else:
            aligned = False
            values = torch.cat([v.detach().reshape(-1).double() for v in views])
            values = torch.cat([values[values.isfinite()], flat])
            groups = torch.zeros(values.numel(), dtype=torch.int64)
        count = int(groups.max()) + 1

        def reduce(kind, of, empty):
            return torch.full((count,), empty, dtype=torch.float64).scatter_reduce_(0, groups, of, kind)

        low, high = reduce("amin", values, float("inf")), reduce("amax", values, float("-inf"))
        step = (high - low) / (2**bits - 1)
        rounding = {torch.float32: 2.0**-22, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
        slack = torch.maximum(high.abs(), low.abs()) * rounding.get(original.dtype, 0.0)
        # Zero-kept groups (zeros, and no negative values): one code is zero itself, so zeros are exact and the other values
        # share one code less.
        above = reduce("amin", torch.where(values > 0, values, float("inf")), float("inf"))
        keeps_zero = (low == 0) & (above > 2.0**-100) & above.isfinite()
        if bits >= 2 and aligned:
            step = torch.where(keeps_zero, torch.maximum((high - above) / (2**bits - 2), step), step)
        elif bits >= 2 and bool((values == 0).any()):  # some group of it may be such a one
            step = (high - low) / (2**bits - 2)
        groups = groups[-flat.numel() :]
        allowed = (step + slack)[groups] * room_of_channels(torch.where(original.isfinite(), original, 0.0).detach().double())
        if bits >= 2:
            allowed[keeps_zero[groups] & (flat == 0)] = 0.0
        return allowed


def excess_error(name, original, restored, bounds, bits):
    """None if `restored` may stand for `original`; else one line saying why not."""
    if restored.dtype != original.dtype or restored.shape != original.shape:
        return f"is {restored.dtype} {tuple(restored.shape)}, not {original.dtype} {tuple(original.shape)}"
    if restored.layout != original.layout or not is_plain(original):
        same = support.digest(dense(original)) == support.digest(dense(restored))
        return None if same else "pass-through tensor changed"
    if restored.is_conj() != original.is_conj() or restored.is_neg() != original.is_neg():
        return "conj or neg bit changed"
    if restored.stride() != original.stride():
        return f"strides {restored.stride()}, not {original.stride()}"
    if support.digest(original) == support.digest(restored):
        return None
    if original.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"{original.dtype} must be exact"
    fragile = FRAGILE_OUTPUTS.get(name, 0)
    if name in FRAGILE_OUTPUTS and fragile is None:
        return "factor of linear algebra must be exact"
    if not original.requires_grad:
        return "saved without requires_grad: must be exact"
    a, b = original.detach().reshape(-1).double(), restored.detach().reshape(-1).double()
    finite = a.isfinite()
    if bool((a.isnan() != b.isnan()).any()) or bool((a.isinf() != b.isinf()).any()):
        return "NaN or Inf moved"
    if bool((a[~finite & ~a.isnan()] != b[~finite & ~a.isnan()]).any()):
        return "Inf changed sign"
    allowed = bounds.allowed(original, max(bits, fragile))
    error = (a - b).abs()
    error[~finite] = 0.0
    worst = int((error - allowed).argmax())
    if error[worst] > allowed[worst]:
        return (
            f"element {worst} of {a.numel()}: {float(a[worst])!r} became {float(b[worst])!r}, "
            f"error {float(error[worst]):.4g} > {float(allowed[worst]):.4g}"
        )
    return None


def compare_saved(case, subject, originals, bits, census):
    """Lines of failures. Builds the subject's graph once more; `originals` are the saved tensors of stock's graph."""
    with subject.on():
        other, _ = case.forward()
        restored = saved_tensors(other)
    census["saved tensors compared"] += len(originals)
    bounds = Bounds(originals)
    if [saved[:2] for saved in originals] != [saved[:2] for saved in restored]:
        return ["the graphs differ"]
    failures = []
    for (name, attribute, original, gradients), (_, _, copy, gradients_of_copy) in zip(originals, restored):
        if (name, attribute) in PARTLY_UNINITIALISED:
            census["saved tensors with uninitialised parts, not compared"] += 1
            continue
        if gradients is not None and copy.shape == original.shape and copy.dtype == original.dtype:
            census["saved tensors whose node reads no values, compared by its gradient"] += 1
            if gradients != gradients_of_copy:
                failures.append(f"{name}.{attribute}: the gradient is not stock's")
            continue
        problem = excess_error(name, original, copy, bounds, bits)
        if problem:
            failures.append(f"{name}.{attribute}: {problem}")
        elif is_plain(original) and support.digest(original) != support.digest(copy):
            census["saved tensors changed within bound"] += 1
            case.changed = True
    return failures


# ---------------------------------------------------------------------------------------------
# The subjects that are compared with stock.


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *unused):
        return False


class StockSubject:
    """Stock against stock: every failure is a mistake of this program."""

    def on(self):
        return Nothing()

    def off(self):
        return Nothing()


class DamageSubject(StockSubject):
    """Hooks that quantise coarsely whatever is saved: must be found."""

    def on(self):
        def pack(tensor):
            if tensor.is_floating_point() and is_plain(tensor) and tensor.numel() > 1:
                low, high = tensor.detach().min(), tensor.detach().max()
                step = ((high - low) / 3).clamp_min(1e-30)
                return ((tensor.detach() - low) / step + 0.999).floor() * step + low
            return tensor.detach()

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


class PleatSubject:
    def __init__(self):
        self.bridge = support.Bridge()
        if not self.bridge.loaded:
            sys.exit("sweep: no bridge of Pleat in this process; run under LD_PRELOAD")

    def on(self):
        return _Switch(self.bridge.enable)

    def off(self):
        return _Switch(self.bridge.disable)


class _Switch(Nothing):
    def __init__(self, turn):
        self.turn = turn

    def __enter__(self):
        self.turn()
        return self


# ---------------------------------------------------------------------------------------------
# The tables.


LARGE = (70, 130)  # 35 groups of 256 and a rest


def enlarged_samples(op, dtype):
    """The table's own samples hold a few dozen elements: one large sample more, of many groups, for
    the operators whose arguments are easily made."""
    from torch.testing import make_tensor
    from torch.testing._internal.common_methods_invocations import SampleInput
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

    def make(low=None, high=None, shape=LARGE, **more):
        return make_tensor(shape, device="cpu", dtype=dtype, low=low, high=high, requires_grad=True, **more)

    name = op.name
    if isinstance(op, UnaryUfuncInfo):
        low, high = op.domain
        low = low if low is None else low + 0.05
        high = high if high is None else high - 0.05
        kwargs = op.sample_kwargs("cpu", dtype, None)[0]
        return [SampleInput(make(low, high), kwargs=kwargs)]
    if isinstance(op, BinaryUfuncInfo):
        left, right = op.lhs_make_tensor_kwargs, op.rhs_make_tensor_kwargs
        return [SampleInput(make(**left), args=(make(**right),))]
    if isinstance(op, ReductionOpInfo):
        return [SampleInput(make(0.1, 2.0), kwargs={"dim": 1})]
    if re.search(r"softmax|softmin|logsumexp|cumsum|cumprod|logcumsumexp", name):
        return [SampleInput(make(), args=(1,))]
    if name in ("matmul", "mm"):
        return [SampleInput(make(), args=(make(shape=LARGE[::-1]),))]
    if name in ("nn.functional.gelu", "nn.functional.softplus", "nn.functional.prelu"):
        more = (make(shape=(1,)),) if name.endswith("prelu") else ()
        return [SampleInput(make(), args=more)]
    if name in ("nn.functional.layer_norm", "nn.functional.rms_norm"):
        return [SampleInput(make(), args=((LARGE[1],),))]
    if name in ("nn.functional.glu", "sort", "nn.functional.normalize"):
        return [SampleInput(make())]
    if name in ("nn.functional.mse_loss", "nn.functional.smooth_l1_loss", "nn.functional.huber_loss"):
        return [SampleInput(make(), args=(make(),))]
    return []


def table_samples(op, dtype):
    """The samples of op.sample_inputs(), seeds included, without its search of the stack for a unittest. That search and the
    formatted stacks of seeding (above) take as long as the samples themselves."""
    from torch.testing._internal.common_utils import set_rng_seed

    samples = iter(op.sample_inputs_func(op, "cpu", dtype, True))
    while True:
        set_rng_seed()
        try:
            yield next(samples)
        except StopIteration:
            return


def seed_of(name, index):
    """A seed of the sample's own, independent of other work."""
    return zlib.crc32(name.encode()) % 100_000_000 + 10 * index


def operator_cases(op, dtype, skipped):
    name = "op_db/" + (op.full_name if hasattr(op, "full_name") else op.name)
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes(DEVICE.type):
        skipped["operator has no gradient in this type"] += 1
        return []
    torch.manual_seed(seed_of(name, 0))
    try:
        samples = list(table_samples(op, dtype))
        samples += enlarged_samples(op, dtype)
    except Exception:  # noqa: BLE001
        skipped["sample_inputs raises"] += 1
        return []

    def case(sample):
        def call(inputs):
            value, args, kwargs = inputs.take()
            return sample.output_process_fn_grad(op(value, *args, **kwargs)), []

        tree = (sample.input, sample.args, sample.kwargs)
        return Case(name, tree, call, double=op.supports_gradgrad)

    return [case(sample) for sample in samples]


def module_cases(info, dtype, skipped):
    name = "module_db/" + info.name
    if dtype not in info.dtypes:
        skipped["module has no such type"] += 1
        return []
    torch.manual_seed(seed_of(name, 0))
    try:
        samples = list(
            info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
        )
    except Exception:  # noqa: BLE001
        skipped["module_inputs raises"] += 1
        return []

    def case(sample):
        def call(inputs):
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(device=DEVICE, dtype=dtype)
            module.train()
            args, kwargs = inputs.take()
            outputs = module(*args, **kwargs)
            return outputs, [p for p in module.parameters() if p.requires_grad]

        tree = (sample.forward_input.args, sample.forward_input.kwargs)
        return Case(name, tree, call, double=info.supports_gradgrad)

    usable = [sample for sample in samples if sample.forward_input is not None]
    skipped["module sample without forward input"] += len(samples) - len(usable)
    return [case(sample) for sample in usable]


def tables(pattern):
    """(name, function that makes the cases) of every operator and module."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    for op in op_db:
        name = "op_db/" + (op.full_name if hasattr(op, "full_name") else op.name)
        if pattern.search(name):
            yield name, functools.partial(operator_cases, op)
    for info in module_db:
        if pattern.search("module_db/" + info.name):
            yield "module_db/" + info.name, functools.partial(module_cases, info)


def drawn_cases(pattern, dtype, draw, totals, skipped):
    """The cases of today, those of an operator one after the other. Counts how many there are in all."""
    for name, cases_of in draw.in_turn(tables(pattern)):
        cases = cases_of(dtype, skipped)
        for index, case in enumerate(cases):
            case.index, case.seed = index, seed_of(name, index)
        totals["samples of the table"] += len(cases)
        totals["operators and modules of the table"] += bool(cases)
        for index in draw.samples(name, len(cases)):
            if draw.time_is_up():
                totals["samples not reached"] += 1
            else:
                yield cases[index]


# ---------------------------------------------------------------------------------------------


def first_difference(reference, other):
    for stage, digests in reference.items():
        if other.get(stage) != digests:
            return stage
    return None


def excluded(name, check, problem):
    for pattern, which, text, reason in EXCLUSIONS:
        if which in ("both", check) and re.fullmatch(pattern, name) and re.search(text, problem):
            return reason
    return None


def judge(case, check, subject, bits, totals, dropped, census):
    """Failures of one sample, as lines."""
    originals = []
    inspect = (lambda scalar: originals.extend(saved_tensors(scalar))) if check == "lossy" else None
    with subject.off():
        stock = run_case(case, inspect)
    if stock.error and stock.error[0] == "inspection":
        return [f"what stock has saved cannot be read: {stock.error}"]
    if stock.error and stock.error[0] == "forward":
        totals["dropped: stock raises in forward"] += 1
        return []
    if "backward" not in stock.stages:
        totals["dropped: no gradient"] += 1
        return []
    with subject.on():
        other = run_case(case)
    if other.error != stock.error:
        failures = [f"raises {other.error}, stock {stock.error}"]
    elif check == "lossless":
        stage = first_difference(stock.key(), other.key())
        failures = [f"{stage}: not bit-equal ({describe(stock, other, stage)})"] if stage else []
    else:
        failures = gone_astray(stock, other) + compare_saved(case, subject, originals, bits, census)
    if failures and not repeats_itself(case, subject):
        dropped[case.name].append(case.index)
        totals["dropped: stock does not repeat itself"] += 1
        return []
    totals["samples compared"] += 1
    totals["double backwards compared"] += "double backward" in stock.stages
    return failures


def gone_astray(stock, other):
    """Faults of gradients from lossy saved tensors, as lines."""
    failures = []
    for stage, tensors in stock.stages.items():
        mine = other.stages.get(stage, [])
        if [t.shape for t in mine] != [t.shape for t in tensors]:
            failures.append(f"{stage}: other shapes")
            continue
        for number, (a, b) in enumerate(zip(tensors, mine)):
            if bool((a.isfinite() & ~b.isfinite()).any()):
                failures.append(f"{stage} {number}: not finite where stock is")
    if [support.digest(t) for t in stock.stages["forward"]] != [support.digest(t) for t in other.stages["forward"]]:
        failures.append("forward: not bit-equal")
    return failures


def repeats_itself(case, subject):
    """Whether stock returns the same result twice, bit for bit. The earlier result is not compared, because the subject can
    have damaged the inputs permanently."""
    with subject.off():
        first, second = run_case(case), run_case(case)
    return first.error == second.error and first.key() == second.key()


@contextlib.contextmanager
def written_memory(case):
    """Makes operators that read unwritten memory find torch's fill value of empty tensors.

    linalg.lstsq's gelsy is one: LAPACK reads its pivot argument, which is never written, so stock's own result depends on
    the contents of free memory."""
    reads_unwritten = case.name.startswith("op_db/linalg.lstsq")
    if reads_unwritten:
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        if reads_unwritten:
            torch.use_deterministic_algorithms(False)


def describe(stock, other, stage):
    mine = other.stages.get(stage)
    if mine is None:
        return "stage missing"
    for number, (a, b) in enumerate(zip(stock.stages[stage], mine)):
        if support.digest(a) != support.digest(b):
            if a.shape != b.shape:
                return f"tensor {number}: shape {tuple(b.shape)}, stock {tuple(a.shape)}"
            error = (a - b).abs().max().item() if a.numel() else 0.0
            return f"tensor {number} of {len(mine)}, largest difference {error:.3g}"
    return "number of tensors"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", choices=["lossless", "lossy"], default="lossless")
    parser.add_argument("--subject", choices=["pleat", "stock", "damage"], default="pleat")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bits", type=int, default=4, help="width the lossy bound is computed for")
    parser.add_argument("--only", default="", help="regular expression on names, e.g. 'op_db/linalg'")
    parser.add_argument("--draw", default="all", help="date whose tenth of the samples is run")
    parser.add_argument("--until", type=float, help="seconds since the epoch after which no sample starts")
    parser.add_argument("--json", default="", help="write the report here")
    parser.add_argument("--progress", default="", help="file that always names the sample under way")
    options = parser.parse_args()

    if options.device != "cpu" and options.check != "lossless":
        parser.error("--check lossy is the host's")
    global DEVICE
    DEVICE = torch.device(options.device)
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    subject = {"pleat": PleatSubject, "stock": StockSubject, "damage": DamageSubject}[options.subject]()
    pattern = re.compile(options.only)
    totals, census = collections.Counter(), collections.Counter()
    skipped, dropped = collections.Counter(), collections.defaultdict(list)
    failures, exclusions, seconds = [], [], collections.Counter()
    names, changed = set(), set()
    progress = open(options.progress, "w", buffering=1) if options.progress else None
    before = support.stats()
    started = time.time()

    for case in drawn_cases(pattern, dtype, Draw(options.draw, options.until), totals, skipped):
        if progress:
            progress.seek(0)
            progress.write(f"{case.name} sample {case.index} seed {case.seed}\n".ljust(160))
        names.add(case.name)
        totals["samples"] += 1
        begin = time.time()
        try:
            with written_memory(case):
                problems = judge(case, options.check, subject, options.bits, totals, dropped, census)
        except Exception:  # noqa: BLE001
            problems = ["sweep: " + traceback.format_exc(limit=4)]
        seconds[case.name] += time.time() - begin
        if case.changed:
            changed.add(case.name)
        for problem in problems:
            reason = excluded(case.name, options.check, problem)
            entry = {"name": case.name, "sample": case.index, "seed": case.seed, "problem": problem}
            if reason:
                exclusions.append({**entry, "reason": reason})
                print(f"EXCLUDED {case.name} sample {case.index}: {problem}", flush=True)
                continue
            failures.append(entry)
            print(f"FAIL {case.name} sample {case.index}: {problem}", flush=True)

    totals["operators and modules"] = len(names)
    if options.check == "lossy":
        totals["operators and modules with changed tensors"] = len(changed)
    after = support.stats()
    report = {
        "torch": torch.__version__,
        "check": options.check,
        "subject": options.subject,
        "dtype": options.dtype,
        "draw": options.draw,
        "seconds": round(time.time() - started, 1),
        "totals": dict(totals),
        "census": dict(census),
        "skipped": dict(skipped),
        "dropped": dropped,
        "failures": failures,
        "excluded": exclusions,
        "stats_before": before,
        "stats": after,
        "slowest": dict(seconds.most_common(10)),
    }
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
    print(f"torch {report['torch']} {options.dtype} {options.check}, {options.subject} against stock: "
          f"{report['seconds']} s")
    for title, counts in (("totals", totals), ("saved", census), ("skipped", skipped)):
        for what, count in sorted(counts.items()):
            print(f"  {title}: {what}: {count}")
    for name, samples in sorted(dropped.items()):
        print(f"  stock does not repeat: {name}: samples {samples}")
    if after:
        print("  records: " + json.dumps(after.get("records", after)))
    print(f"  failures: {len(failures)} in {len({f['name'] for f in failures})} operators, "
          f"excluded: {len(exclusions)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
