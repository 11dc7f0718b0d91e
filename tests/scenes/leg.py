"""Runs in the process of a scene and in its legs, for scene.py.

    leg.py SCENE '{"legs": {"4": "bits:4,..."}, "report": FILE}'

runs in a fork of an interpreter that has imported torch (tests/forked.py), where Pleat has not started.
"""

import importlib.util
import json
import math
import os
import pathlib
import sys
import tempfile
import traceback

SCENES = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(SCENES), str(SCENES.parent)]

import forked  # noqa: E402
import judge  # noqa: E402

OPTIONAL = {"torch_geometric", "torchvision", "transformers", "sklearn", "gpytorch"}  # not of `tools/setup.sh test`
PASSES, MORE_PASSES = 32, 128  # with noise at the last step, for its mean
SMALL = 1e-3  # of the largest gradient's norm: not judged


class Leg:
    """One leg of one scene: `report()` runs it."""

    def __init__(self, scene, conf, with_bias):
        import torch

        self.scene, self.conf, self.with_bias = scene, conf, with_bias
        self.steps, self.first = getattr(scene, "STEPS", 6), getattr(scene, "FIRST", 0)
        seed_everything(-1)  # before a module draws its weights
        self.model, self.step = scene.make(torch.Generator().manual_seed(0))
        is_module = isinstance(self.model, torch.nn.Module)
        named = self.model.named_parameters() if is_module else enumerate(list_of_leaves(self.model))
        self.parameters = {str(name): p for name, p in named}
        self.buffers = list(self.model.named_buffers()) if is_module else []
        self.optimiser = optimiser_of(scene, self.parameters.values())

    def report(self):
        from pleat_test_support import bridge, stats

        self.bridge = bridge() if bridge().loaded else None
        if self.bridge:
            self.bridge.disable()
        report = {"steps": [], "projections": {}, "bar": getattr(self.scene, "BAR", None)}
        for i in range(self.steps):
            state = self.note_state()
            exact = self.run_pass(i)
            check_exact(exact)
            if i == 0:
                again = self.run_pass(i, state)
                require(same_bits(exact, again), "two exact runs of the first step differ: no scene")
            noisy = self.run_pass(i, state, noise=True)
            judged = i >= self.first
            report["steps"].append({
                "errors": errors(noisy, exact, getattr(self.scene, "COLUMNS", False)) if judged else None,
                "values": value_errors(noisy, exact) if judged else {},
                "norms": {name: norm(g) for name, g in exact["gradients"].items()},
            })  # fmt: skip
            if i == self.steps - 1 and self.with_bias:
                report["projections"] = self.projections(i, state, exact)
            else:
                self.go_on(i, state, exact)
        report["stats"] = stats()
        return report

    def projections(self, i, state, exact):
        """For each judged gradient: its projections on the exact one in PASSES passes, or in MORE_PASSES fresh ones if those
        look biased."""
        for passes in (PASSES, MORE_PASSES):
            found = {name: [] for name in judged_names(exact["gradients"])}
            for _ in range(passes):
                noisy = self.run_pass(i, state, noise=True)["gradients"]
                for name, projections in found.items():
                    projections.append(projection(noisy.get(name), exact["gradients"][name]))
            if not any(judge.is_biased(projections) for projections in found.values()):
                break
        return found

    def go_on(self, i, state, exact):
        """Goes on to the next step: restores the state after the exact pass, and steps the optimiser with its gradients."""
        for (owner, name, tensor), value in zip(state["buffers"], exact["buffers"], strict=True):
            tensor.data.copy_(value)
            owner._buffers[name] = tensor
        for name, parameter in self.parameters.items():
            parameter.data.copy_(exact["parameters"][name])
            gradient = exact["gradients"].get(name)
            parameter.grad = None if gradient is None else as_gradient_of(parameter, gradient)
        if self.optimiser:
            self.optimiser.step()

    def run_pass(self, i, state=None, noise=False):
        """One pass of step i from `state`, the present one if None: its loss, values, gradients and final state."""
        import torch

        if state:
            self.put_back(state)
        seed_everything(i)
        for parameter in self.parameters.values():
            parameter.grad = None
        if noise and self.bridge:
            self.bridge.enable(self.conf)
        try:
            loss, values = self.step(i), []
            if getattr(self.scene, "VALUES", False):
                loss, values = loss
            run_backward(self.scene, loss, i)
        finally:
            if noise and self.bridge:
                self.bridge.disable()
        with torch.no_grad():
            gradients = {n: plain(p.grad).clone() for n, p in self.parameters.items() if p.grad is not None}
            return {
                "gradients": gradients,
                "values": ([] if loss is None else [plain(loss).clone()]) + [plain(v).clone() for v in values],
                "has_loss": loss is not None,
                "buffers": [owner._buffers[name].clone() for owner, name in self.buffer_places()],
                "parameters": {name: p.detach().clone() for name, p in self.parameters.items()},
            }

    def buffer_places(self):
        for path, _ in self.buffers:
            module, _, name = path.rpartition(".")
            yield self.model.get_submodule(module), name

    def note_state(self):
        places = list(self.buffer_places())
        return {
            "buffers": [(owner, name, owner._buffers[name]) for owner, name in places],
            "buffer_values": [owner._buffers[name].clone() for owner, name in places],
            "parameters": {name: p.detach().clone() for name, p in self.parameters.items()},
        }

    def put_back(self, state):
        """Restores parameters and buffers. Other state that steps change is a fault of the scene."""
        for (owner, name, tensor), value in zip(state["buffers"], state["buffer_values"], strict=True):
            tensor.data.copy_(value)
            owner._buffers[name] = tensor
        for name, value in state["parameters"].items():
            self.parameters[name].data.copy_(value)


def list_of_leaves(model):
    return list(model.parameters()) if hasattr(model, "parameters") else list(model)


def optimiser_of(scene, parameters):
    """None for a scene without training."""
    import torch

    trained = [p for p in parameters if p.requires_grad]
    make = getattr(scene, "OPTIMISER", lambda parameters: torch.optim.Adam(parameters, 1e-3))
    return make(trained) if trained else None


def run_backward(scene, loss, i):
    """Runs the scene's backward; a loss of None is differentiated already, or needs no backward."""
    if loss is not None:
        backward = getattr(scene, "backward", None)
        loss.backward() if backward is None else backward(loss, i)


def plain(tensor):
    """Dense, real, detached."""
    import torch

    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def as_gradient_of(parameter, gradient):
    import torch

    return torch.view_as_complex(gradient) if parameter.is_complex() else gradient


def seed_everything(i):
    import random

    import torch

    torch.manual_seed(1000 + i)
    random.seed(1000 + i)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(1000 + i)


def norm(tensor):
    return float(tensor.double().norm())


def require(holds, why):
    if not holds:
        raise InvalidScene(why)


class InvalidScene(Exception):
    pass


def same_bits(a, b):
    import torch

    if a["gradients"].keys() != b["gradients"].keys() or len(a["values"]) != len(b["values"]):
        return False
    pairs = [(a["gradients"][name], b["gradients"][name]) for name in a["gradients"]]
    return all(torch.equal(x.cpu(), y.cpu()) for x, y in pairs + list(zip(a["values"], b["values"], strict=True)))


def check_exact(exact):
    for what in ("gradients", "values"):
        tensors = exact[what].values() if what == "gradients" else exact[what]
        require(all(bool(t.isfinite().all()) for t in tensors), f"{what} of the exact run are not finite: no scene")
    gradients = exact["gradients"].values()
    require(not gradients or any(map(norm, gradients)), "all gradients of the exact run are 0: no scene")
    require(gradients or exact["values"], "neither gradients nor values: no scene")


def judged_names(gradients):
    norms = {name: norm(g) for name, g in gradients.items()}
    largest = max(norms.values(), default=0.0)
    return [name for name, size in norms.items() if size > 0 and size >= SMALL * largest]


def errors(noisy, exact, by_column=False):
    """By parameter; infinite where the noisy run has no gradient."""
    found = {}
    for name in judged_names(exact["gradients"]):
        want, have = exact["gradients"][name], noisy["gradients"].get(name)
        if have is None:
            found[name] = math.inf
        elif by_column and want.dim() > 1:
            found[name] = error_of_columns(have, want)
        else:
            found[name] = norm(have.double() - want.double()) / norm(want)
    return found


def error_of_columns(have, want):
    """The root mean square of the columns' errors, each relative to its own norm. Columns of norm 0 do not count."""
    norms = want.double().flatten(1).norm(dim=0)
    apart = (have.double() - want.double()).flatten(1).norm(dim=0)
    return float((apart / norms)[norms > 0].square().mean().sqrt())


def projection(noisy, exact):
    if noisy is None:
        return math.nan
    exact = exact.double()
    return float((noisy.double() * exact).sum() / (exact * exact).sum())


def value_errors(noisy, exact):
    found = {}
    for n, (have, want) in enumerate(zip(noisy["values"], exact["values"], strict=True)):
        name = "loss" if n == 0 and exact["has_loss"] else f"value {n - exact['has_loss']}"
        found[name] = norm(have.double() - want.double()) / max(norm(want), 1e-30)
    return found


def import_scene(path):
    spec = importlib.util.spec_from_file_location("the_scene", path)
    scene = importlib.util.module_from_spec(spec)
    sys.modules["the_scene"] = scene  # pickling and compiling look the module up there
    spec.loader.exec_module(scene)
    return scene


# --- in the scene's process -----------------------------------------------------------------------


def run_legs(path, legs):
    """Reports by leg. {"problem": [kind, text]} in place of all of them, or of one of them: see scene.problem."""
    try:
        scene = import_scene(path)
    except ModuleNotFoundError as absent:
        if (absent.name or "").partition(".")[0] not in OPTIONAL:
            raise
        return {"problem": ["missing", absent.name.partition(".")[0]]}
    return {name: run_leg(scene, name, conf) for name, conf in (legs | getattr(scene, "LEGS", {})).items()}


def run_leg(scene, name, conf):
    """The report of a fork of its own."""
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if child == 0:
            try:
                report = {}
                variables = forked.variables_of(conf)
                forked.start_pleat(variables)
                report = Leg(scene, variables["PLEAT_CONF"], with_bias=name == "4").report()
            except InvalidScene as why:
                report = {"problem": ["invalid", str(why)]}
            except BaseException:
                report = {"problem": ["failed", traceback.format_exc()]}
            finally:
                json.dump(report, file)
                file.flush()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        return json.load(file) if code == 0 else {"problem": ["failed", f"the leg ended with exit code {code}"]}


def main(path, request):
    request = json.loads(request)
    report = run_legs(path, request["legs"])
    with open(request["report"], "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
