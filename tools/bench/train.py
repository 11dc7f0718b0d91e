#!/usr/bin/env python3
"""One plain training run of a benchmark model in this process, measured from inside.

The program every benchmark starts, in a fresh process per row. It does not import or configure Pleat; if
Pleat is in the process all the same (LD_PRELOAD), its counters are copied into the result at the end.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import pathlib
import resource
import signal
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from models import MODELS, build  # noqa: E402
from pleat_counters import StepCounters, of_this_process  # noqa: E402


def status_bytes(*names: str, pid: str = "self") -> int:
    """Sum of the named fields of /proc/PID/status; a field the kernel does not report counts as 0."""
    total = 0
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.partition(":")
        if name in names:
            total += int(value.split()[0]) * 1024
    return total


def resident_bytes() -> int:
    """What this process occupies now, swapped-out and huge pages included."""
    return status_bytes("VmRSS", "VmSwap", "HugetlbPages")


def children_peak_bytes() -> int:
    """Sum of the peaks of the living children, plus the largest one that has ended."""
    living = 0
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        living += sum(status_bytes("VmHWM", "VmSwap", "HugetlbPages", pid=child) for child in children)
    return living + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def weights_digest(model) -> str:
    """SHA-256 of all parameters and buffers, bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def step_digests(model) -> dict[str, str]:
    """SHA-256 of what a step leaves behind: gradients, weights, the state of torch's random generator."""
    import torch

    gradients = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if parameter.grad is not None:
            gradients.update(name.encode())
            gradients.update(parameter.grad.contiguous().view(-1).numpy().tobytes())
    return {
        "gradients": gradients.hexdigest(),
        "weights": weights_digest(model),
        "random state": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="models:\n" + "\n".join(f"  {name:10s}{entry.about} (batch {entry.batch})" for name, entry in MODELS.items())
        + "\n\nexamples:\n  python tools/bench/train.py --model bert --steps 4\n"
        "  build/bin/pleat run -- python tools/bench/train.py --model resnet50 --out result.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, choices=MODELS, metavar="NAME")
    parser.add_argument("--batch", type=int, help="per step; default: the model's own")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", action="store_true", help="wrap the blocks with torch.utils.checkpoint")
    parser.add_argument("--pause", action="store_true", help="stop this process (SIGSTOP) before each step until it is continued")
    parser.add_argument("--rss-every", type=int, default=0, metavar="N", help="note the resident size every N steps")
    parser.add_argument("--digest", action="store_true", help="note the SHA-256 of the final weights")
    parser.add_argument("--step-digests", action="store_true", help="note after each step the SHA-256 of gradients, weights and torch's random state")
    parser.add_argument("--step-counters", action="store_true", help="note what each step adds to Pleat's counters, and its peaks")
    parser.add_argument("--out", metavar="FILE", help="write the result as JSON; default: standard output")
    arguments = parser.parse_args()
    for name in ("batch", "steps", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    import torch

    torch.set_num_threads(arguments.threads)
    workload = build(arguments.model, arguments.batch, arguments.checkpoint, arguments.seed)
    torch.manual_seed(arguments.seed + 1)
    gc.collect()
    base = resident_bytes()
    peak_before = status_bytes("VmHWM")
    faults_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    wall, cpu, losses, rss, digests = [], [], [], [], []
    counters = StepCounters() if arguments.step_counters else None
    for step in range(1, arguments.steps + 1):
        if arguments.pause:
            os.kill(os.getpid(), signal.SIGSTOP)
        if counters is not None:
            counters.begin()
        start_wall, start_cpu = time.perf_counter(), time.process_time()
        loss = workload.loss(workload.batch(step))
        workload.optimizer.zero_grad()
        loss.backward()
        workload.optimizer.step()
        losses.append(loss.item())
        wall.append(time.perf_counter() - start_wall)
        cpu.append(time.process_time() - start_cpu)
        if counters is not None:
            counters.end()
        if arguments.step_digests:
            digests.append(step_digests(workload.model))
        if arguments.rss_every and step % arguments.rss_every == 0:
            rss.append([step, resident_bytes()])

    # VmHWM does not count what was swapped out or lies in huge pages; what of it is left is added.
    peak = status_bytes("VmHWM", "VmSwap", "HugetlbPages")
    result = {
        "model": arguments.model,
        "batch": arguments.batch or MODELS[arguments.model].batch,
        "unit": MODELS[arguments.model].unit,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "threads": arguments.threads,
        "checkpoint": arguments.checkpoint,
        "parameters": sum(p.numel() for p in workload.model.parameters()),
        "gradient_bytes": sum(p.nbytes for p in workload.model.parameters() if p.requires_grad),
        "torch": torch.__version__,
        "base_bytes": base,
        "peak_bytes": peak + children_peak_bytes(),
        "peak_before_training_bytes": peak_before,
        "children_peak_bytes": children_peak_bytes(),
        "minor_faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults_before,
        "median_step_seconds": statistics.median(wall[1:] or wall),
        "step_seconds": wall,
        "step_cpu_seconds": cpu,
        "losses": losses,
        "rss_bytes": rss,
        "step_digests": digests,
        "step_counters": counters.steps if counters is not None else [],
        "weights_sha256": weights_digest(workload.model) if arguments.digest else None,
        "pleat": of_this_process(),
    }
    text = json.dumps(result)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
