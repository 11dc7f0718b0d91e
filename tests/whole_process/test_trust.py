"""Functions that Pleat cannot inspect are exact, unless the user declares that noise in them is harmless; the report names
them, and poles that came after a proof."""

import re
import textwrap

import pytest

from conftest import REPOSITORY, STOCK_ONLY

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

CONF = "bits:4,min_bytes:0"

# A product in Python: its gradient is linear in its save. `gradients()` is of one step without noise of
# other origin: the losses are linear, and operands of contractions enter no gradient but a weight's own, which
# is left out.
PRELUDE = f"""
    import sys
    sys.path.insert(0, {str(REPOSITORY / "torch_bridge" / "python")!r})
    import pleat
    import torch, pleat_test_support as t
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b
        @staticmethod
        def backward(ctx, gradient):
            a, b = ctx.saved_tensors
            return gradient * b, gradient * a
    def parameter(*shape, seed):
        return torch.nn.Parameter(t.noise(*shape, seed=seed) / 8)
    first, second, last = (parameter(64, 64, seed=seed) for seed in (1, 2, 3))
    x = t.noise(128, 64, seed=4)
    def gradients(function=Product, end=lambda y: y @ last, before=lambda u: u, dtype=torch.float32):
        a, b = before(x @ first).to(dtype), (x @ second).to(dtype)
        y = function.apply(a, b)
        del a, b
        z = end(y)
        del y
        (z * t.noise(*z.shape, seed=5)).sum().backward()
        found = [first.grad, second.grad]
        first.grad = second.grad = last.grad = None
        return found
    def derived():                                   # a class of the same name, and one derived from it
        return type("Product", (torch.autograd.Function,), dict(Product.__dict__)), type("Heir", (Product,), {{}})
"""


def script(text):
    return textwrap.dedent(PRELUDE) + textwrap.dedent(text)


def noisy(mine, stock):
    return any(not (a == b).all() for a, b in zip(mine, stock, strict=True))


WAYS = script("""
    t.emit(
        closed=gradients(),
        never_closed=gradients(end=lambda y: y),
        pole=gradients(end=lambda y: (y * y + 1).log() + (y @ last).sum()),
        double=gradients(end=lambda y: y.float() @ last, dtype=torch.float64),
        before=gradients(end=lambda y: y, before=torch.tanh),
    )
""")


@pytest.mark.parametrize(
    "given, bear_noise",
    [
        ("none", set()),
        ("Another|Produc|roduct|Products", set()),
        ("Product", {"closed"}),
        ("Another|ProductBackward", {"closed"}),
        ("+Product", {"closed", "never_closed", "pole", "before"}),
        ("Product|+Product", {"closed", "never_closed", "pole", "before"}),
    ],
)
def test_a_trusted_function_bears_noise_once_a_path_is_closed_and_a_closing_one_at_once(run_pair, close, given, bear_noise):
    pair = run_pair(WAYS, conf=f"{CONF},trust:{given}")
    stock, pleat = pair.stock.check().json, pair.pleat.active().json
    ways = stock.keys() - {"pleat_stats"}
    assert {way for way in ways if noisy(pleat[way], stock[way])} == bear_noise
    for way in ways:
        close(pleat[way], stock[way], relative=0.2)
    assert pair.pleat.stats["options"]["trust"] == given
    function = pair.pleat.stats["exact"].get("function", {"storages": 0})["storages"]
    assert (function > 0) == (not bear_noise)


@pytest.mark.not_as_shipped("about `rule:operands`, the rule of yardsticks")
def test_trust_is_no_case_beyond_doubt(run_pair):
    pair = run_pair(WAYS, conf=f"{CONF},trust:+Product,rule:operands")
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert not any(noisy(pleat[way], stock[way]) for way in stock.keys() - {"pleat_stats"})


def test_tensors_saved_by_a_trusted_function_take_the_width_of_their_key(run_script):
    source = script("gradients(end=lambda y: y); t.emit()")
    alone = run_script(source, conf=f"{CONF},trust:+Product").active(encoded=2).stats["codec"]
    # Four bits, and of each 256 elements two of 16.
    assert alone["lossy_fp32"]["elements"] == 2 * 128 * 64
    assert alone["lossy_fp32"]["payload_bytes"] < 2 * 128 * 64 * (4 + 0.5) / 8


def test_trust_is_given_and_taken_while_the_script_runs(run_pair):
    pair = run_pair(script("""
        on = t.bridge().enable if t.bridge().loaded else lambda conf: None
        found = [gradients()]
        for given in ("Product", "Other", "+Product|Other", "none"):
            on("trust:" + given)
            found.append(gradients())
        t.emit(found=found)
    """), conf=CONF)  # fmt: skip
    stock, pleat = pair.stock.check().json["found"], pair.pleat.active().json["found"]
    assert [noisy(*both) for both in zip(pleat, stock, strict=True)] == [False, True, False, True, False]


def test_linear_trusts_that_very_class_in_every_form(run_pair):
    pair = run_pair(script("""
        namesake, heir = derived()
        kept = gradients()
        assert pleat.linear(Product) is Product
        found = [kept, gradients(), gradients(namesake), gradients(heir), gradients(end=lambda y: y)]
        assert pleat.linear(closes=True)(Product) is Product
        found += [gradients(end=lambda y: y)]
        @pleat.linear
        class Bare(Product): pass
        @pleat.linear()
        class Called(Product): pass
        found += [gradients(Bare), gradients(Called)]
        assert isinstance(Bare, type) and issubclass(Called, Product)
        t.emit(found=found)
    """), conf=CONF)  # fmt: skip
    stock, pleat = pair.stock.check().json["found"], pair.pleat.active().json["found"]
    assert [noisy(*both) for both in zip(pleat, stock, strict=True)] == [False, True, False, False, False, True, True, True]


def test_linear_only_returns_the_class_where_pleat_is_not_in_force(run_script):
    result = run_script(script("""
        same = [pleat.linear(Product) is Product, pleat.linear()(Product) is Product,
                pleat.linear(closes=True)(Product) is Product]
        loaded = any("libpleat_bridge" in line for line in open("/proc/self/maps"))
        t.emit(found=gradients(), same=same, left=[loaded, pleat.is_enabled(), pleat.stats()])
    """), preload=False).check()  # fmt: skip
    assert result.json["same"] == [True] * 3 and result.json["left"] == [False, False, {}]


def test_linear_accepts_only_a_class_of_functions(run_script):
    result = run_script(script("""
        messages = []
        for wrong in (len, None, 3, int, torch.nn.Linear, Product.apply, "Product", Product._backward_cls):
            try: pleat.linear(wrong)
            except TypeError as error: messages.append(str(error))
        t.emit(messages=messages)
    """), conf=CONF).check()  # fmt: skip
    assert len(result.json["messages"]) == 8
    for message in result.json["messages"]:
        assert re.fullmatch(r"pleat\.linear takes a subclass of torch\.autograd\.Function, not .+", message)


def test_an_operator_of_torch_library_is_trusted_by_the_name_that_the_report_gives_it(run_pair):
    source = script("""
        @torch.library.custom_op("pleat_trust::product", mutates_args=())
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a * b
        product.register_autograd(lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
                                  setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
        class Operator: apply = product
        t.emit(found=gradients(Operator), report=t.report())
    """)  # fmt: skip
    pair = run_pair(source, conf=CONF)
    stock, plain = pair.stock.check().json["found"], pair.pleat.active(encoded=0).json
    assert not noisy(plain["found"], stock)
    line = re.search(r"^ .*: (trust:\w+)$", plain["report"], re.M)[1]
    trusted = run_pair(source, conf=f"{CONF},{line}").pleat.active().json
    assert noisy(trusted["found"], stock) and "trust:" not in trusted["report"]


NAMES = script("""
    names = ["Third", "Largest", "we\\\"ird\\n|\\\\", "Fourth", "Second", "Least", "Caf\\u00e9"]
    rows = dict(zip(names, (96, 512, 256, 32, 128, 4, 16)))
    for name, count in rows.items():
        function = type(name, (torch.autograd.Function,), dict(Product.__dict__))
        a = t.noise(count, 64, seed=1) @ first
        y = function.apply(a.tanh(), a)
        del a
        y.sum().backward()
    t.emit(report=t.report(), rows=rows)
""")


def test_the_most_expensive_functions_are_named_with_the_line_to_copy(run_script):
    result = run_script(NAMES, conf=f"{CONF},trust:+Before").active(encoded=0)
    rows = result.json["rows"]
    largest = sorted(rows, key=rows.get, reverse=True)
    functions = result.stats["functions"]
    assert [function["name"] for function in functions] == largest
    # It saves both of its arguments, of which one is also tanh's result: one storage, its own reason counts.
    assert [function["saved_bytes"] + function["behind_bytes"] for function in functions] == [
        2 * rows[name] * 64 * 4 for name in largest
    ]
    (named,) = re.findall(r"^  functions .*: (.*)\n +if .*: (.*)$", result.json["report"], re.M)
    assert re.findall(r"(?:^|, )(.*?) \d+\.\d MB", named[0]) == ["Largest", 'we"ird?|\\', "Second", "Third", "Fourth"]
    assert named[1] == "trust:+Before|Largest|Second|Third|Fourth"


def test_bytes_without_a_proof_because_of_a_function_are_counted_with_it(run_script):
    result = run_script(script("""
        with torch.no_grad(): constant = x @ second
        y = Product.apply((x @ first).tanh() * 2, constant) @ last
        y.sum().backward()
        t.emit()
    """), conf=CONF).active(encoded=0)  # fmt: skip
    storage = 128 * 64 * 4
    (function,) = result.stats["functions"]
    assert function == {"name": "Product", "saved_bytes": storage, "behind_bytes": storage}
    assert result.stats["exact"]["function_behind"] == {"storages": 1, "bytes": storage}


@pytest.mark.parametrize("reentrant, given", [(True, "none"), (True, "CheckpointFunction"), (False, "_NoopSaveInputs")])
def test_torchs_checkpoint_is_named_and_neither_trusted_nor_proposed(run_pair, reentrant, given):
    source = script("""
        from torch.utils.checkpoint import checkpoint
        def inner(u):
            return u.log()
        u = (x @ first).exp()
        kept = (u * 2) @ last
        y = checkpoint(inner, u, use_reentrant=REENTRANT)
        del u
        (y.sum() + kept.sum()).backward()
        t.emit(found=[first.grad], report=t.report())
    """).replace("REENTRANT", str(reentrant))
    pair = run_pair(source, conf=f"{CONF},trust:{given}")
    assert not noisy(pair.pleat.check().json["found"], pair.stock.check().json["found"])
    assert [f["name"] for f in pair.pleat.stats["functions"]] == ["torch.utils.checkpoint"]
    assert re.search(r"^  functions .*: torch\.utils\.checkpoint [\d.]+ MB$", pair.pleat.json["report"], re.M)
    assert "trust:" not in pair.pleat.json["report"]


def test_a_pole_after_a_proof_is_named_with_the_saving_node(run_script):
    result = run_script(script("""
        for step in range(3):
            y = (x @ first).sigmoid()
            later = y + 1
            z = y @ last
            del y
            (z.sum() + later.log().sum()).backward()
        t.emit(report=t.report())
    """), conf=CONF).active()  # fmt: skip
    # Once: that node of the script gets no proof from then on.
    assert result.stats["late_poles"] == [{"pole": "LogBackward0", "saver": "SigmoidBackward0", "number": 1}]
    assert result.stats["exact"]["poles_after_proof"] == 1
    assert re.search(r"^  late poles .*: LogBackward0 behind SigmoidBackward0 1$", result.json["report"], re.M)
