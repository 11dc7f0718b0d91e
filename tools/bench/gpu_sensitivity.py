#!/usr/bin/env python3
"""Bits for each tensor on a GPU: what a burst of extra passes takes, and what noise its bits have beside one width for all.

Each model of gpu_training.py is trained for some steps. Then, on one batch, Pleat measures sensitivities at 4 bits, and
repeated passes show what noise the gradient has with one width and with the bits of that profile: the squared error of
all parameters' gradients against `bits:lossless`, over their squared norm, in the mean of a few draws. And a run in
which step 10 measures, without loss and deterministic, has to have the losses of one without.

Without a GPU: exit code 77. On the simulated CUDA of tests/ (with --small) times mean nothing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from gpu_training import BARS, Job, has_gpu, pleat_of_device
from harness import Problem, Row, environment, find_library, run_main, write_json

SETTLING = 2  # passes before draws count
BITS = (2, 3, 4, 8)


def energy(gradients, others=None):
    """The squared norm of all, or of the difference."""
    pairs = zip(gradients, others or gradients)
    return sum(float(((a - b) if others else a).double().square().sum()) for a, b in pairs)


def gradient(job, of_step):
    import torch

    x, targets = job.batch(of_step)
    torch.manual_seed(5)
    job.optimizer.zero_grad(set_to_none=True)
    job.loss(x, targets).backward()
    return [parameter.grad.detach().clone() for parameter in job.model.parameters()]


def payload_bytes():
    """Of all payloads on the device so far."""
    return (pleat_of_device() or {}).get("records", {}).get("payload_bytes", 0)


def train(job, steps):
    """Losses and seconds of the steps."""
    import torch

    losses, seconds = [], []
    for step in range(steps):
        batch = job.batch(step)
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(job.step(*batch))
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def measure(name, small, steps, draws, folder):
    import pleat
    import torch

    pleat.enable(bits="lossless", sensitivity="off", objective="gradient", profile="none")  # noise is that of the gradient
    job = Job(name, small)
    train(job, steps)
    exact = gradient(job, 777)
    norm = energy(exact)
    found = {"two_exact_passes_differ_by": energy(gradient(job, 777), exact) / norm, "noise": {}}
    profile = folder / "profile"
    pleat.enable(bits=4, sensitivity="on", refresh=0, profile=profile)
    seconds = []
    while pleat.stats()["sensitivity"]["bursts"] == 0 and len(seconds) < 12 or len(seconds) < 3:
        torch.cuda.synchronize()
        start = time.perf_counter()
        gradient(job, 777)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    gradient(job, 777)  # the check
    state = pleat.stats()["sensitivity"]
    found |= {"pass_seconds": sorted(seconds[:-1])[len(seconds) // 2], "burst": state}
    for bits in BITS:
        for way in ("uniform", "adaptive"):
            if way == "adaptive" and bits == 8:
                continue
            copy = folder / f"{way}{bits}"
            copy.write_bytes(profile.read_bytes())
            pleat.enable(bits=bits, sensitivity="off", profile=copy if way == "adaptive" else "none")
            for _ in range(SETTLING):
                gradient(job, 777)
            before = payload_bytes()
            noises = [energy(gradient(job, 777), exact) / norm for _ in range(draws)]
            found["noise"][f"{way} {bits}"] = {
                "draws": noises,
                "noise": sum(noises) / draws,
                "predicted": pleat.stats()["sensitivity"]["noise"] if way == "adaptive" else None,
                "payload_bytes": (payload_bytes() - before) / draws,
            }
    return found


def losses_only(name, small):
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    losses, seconds = train(Job(name, small), 13)
    found = {"losses": losses, "seconds": seconds, "bursts": 0}
    if os.environ.get("LD_PRELOAD"):
        import pleat

        found["bursts"] = pleat.stats()["sensitivity"]["bursts"] if pleat.is_enabled() else 0
    return found


def run(words, row, library):
    """What a process of its own has found."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "found.json"
        env = environment(row, library, len(os.sched_getaffinity(0))) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        done = subprocess.run(
            [sys.executable, *words, "--out", str(out)], env=env, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0 or not out.exists():
            raise Problem(f"row {row.name!r} ended with exit code {done.returncode}")
        return json.loads(out.read_text())


def compare(name, words, library):
    exact = "bits:lossless"
    stock = run([*words, "--task", "losses"], Row("stock"), library)
    burst = run([*words, "--task", "losses"], Row("burst", f"{exact},sensitivity:on,refresh:0"), library)
    return {
        "model": name,
        "losses_are_stocks": burst["bursts"] == 1 and burst["losses"] == stock["losses"],
        "runs": {"stock": stock, "burst": burst},
        **run([*words, "--task", "noise"], Row("noise", exact), library),
    }


def report(found):
    burst, step = found["burst"], found["pass_seconds"]
    seconds = burst["seconds"]
    lines = [
        f"{found['model']}: {burst['measured']} of {burst['units']} tensors measured in {burst['passes']} passes and"
        f" {seconds:.2f} s ({seconds / step:.1f} of its passes of {step:.3f} s); losses with a burst are"
        f" {'' if found['losses_are_stocks'] else 'NOT '}stock's"
    ]
    for bits in BITS[:-1]:
        uniform, adaptive = found["noise"][f"uniform {bits}"], found["noise"][f"adaptive {bits}"]
        lines.append(
            f"  {bits} bits: uniform {uniform['noise']:.3g}, adaptive {adaptive['noise']:.3g}"
            f" (ratio {adaptive['noise'] / max(uniform['noise'], 1e-300):.2f}, predicted {adaptive['predicted']:.3g}),"
            f" payloads {adaptive['payload_bytes'] / max(1, uniform['payload_bytes']):.3f} of uniform's"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so (default: the build's)")
    parser.add_argument("--models", nargs="+", choices=BARS, default=["resnet50", "gpt_bytes"], metavar="NAME")
    parser.add_argument("--steps", type=int, default=20, help="of training before noise is measured (default: 20)")
    parser.add_argument("--draws", type=int, default=4, help="passes that a noise is the mean of (default: 4)")
    parser.add_argument("--small", action="store_true", help="small models, to try the check itself")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--launcher", metavar="FILE", help="a script that runs scripts, as tests/simulated_cuda/simulate.py does")
    for hidden in ("--task", "--worker", "--out"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.steps, options.draws) < 1:
        raise Problem("--steps and --draws must be at least 1")
    if options.worker:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "torch_bridge" / "python"))
        if options.task == "losses":
            found = losses_only(options.worker, options.small)
        else:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(options.worker, options.small, options.steps, options.draws, pathlib.Path(folder))
        pathlib.Path(options.out).write_text(json.dumps(found))
        return 0
    library = find_library(options.lib)
    launcher = [options.launcher, "--shadow"] if options.launcher else []
    if not launcher and not has_gpu():
        print("no GPU here: not measured", file=sys.stderr)
        return 77
    words = [*launcher, str(pathlib.Path(__file__).resolve()), "--steps", str(options.steps), "--draws", str(options.draws)]
    words += ["--small"] if options.small else []
    results = []
    for name in options.models:
        results.append(compare(name, [*words, "--worker", name], library))
        print(report(results[-1]), flush=True)
        write_json(options.json, {"results": results})
    return 0 if all(result["losses_are_stocks"] for result in results) else 1


if __name__ == "__main__":
    run_main(main)
