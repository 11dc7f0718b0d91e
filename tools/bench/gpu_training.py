#!/usr/bin/env python3
"""Trainings on a GPU, stock beside Pleat: ResNet-50 and two GPTs in plain torch. Needs nothing but torch and a build.

Each model is trained by processes of its own, which take their steps in turns on the same device, so that both meet the
same clocks. Reported: losses without loss and deterministic (equal to stock's to the last bit), losses at 4 bits, the
peak of torch.cuda.max_memory_allocated() above what is there between two steps, active and reserved bytes, the
median step time, what a release and a restore take on the host, and the bytes that were coded.

Without a GPU: exit code 77. On the simulated CUDA of tests/ (with --small) all runs but times mean nothing there.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from harness import Problem, Row, environment, find_library, in_turn, run_main, write_json
from pleat_counters import of_this_process

# ---- models ----


def resnet50(small):
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            outputs = 4 * width
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            self.skip = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(self.body(x) + self.skip(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(1 if small else blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def gpt(small, words):
    """Of GPT-2's vocabulary, or of bytes: what the loss takes for 8192 tokens differs by 2 GB."""
    import torch
    from torch import nn
    from torch.nn import functional

    layers, width, length, vocabulary = (2, 64, 32, 211) if small else (24, 1024, 1024, 50257 if words else 256)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.queries_keys_values, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch = x.shape[0]
            heads = self.queries_keys_values(self.before(x)).view(batch, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.between(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
            return self.head(self.blocks(x)).view(-1, vocabulary)

    model = GPT()
    model.length, model.vocabulary = length, vocabulary
    return model


class Job:
    """A model, its data and a step; batches follow from the step's number."""

    def __init__(self, name, small):
        import torch

        torch.manual_seed(0)
        self.name, self.small = name, small
        self.model = (resnet50(small) if name == "resnet50" else gpt(small, words=name == "gpt")).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def batch(self, step):
        """Input and targets, on the device."""
        import torch

        rng = torch.Generator().manual_seed(step)
        if self.name == "resnet50":
            batch, size = (4, 32) if self.small else (128, 224)
            return torch.randn(batch, 3, size, size, generator=rng).cuda(), torch.randint(0, 1000, (batch,), generator=rng).cuda()
        tokens = torch.randint(0, self.model.vocabulary, (2 if self.small else 8, self.model.length), generator=rng).cuda()
        return tokens, tokens.view(-1)

    def loss(self, x, targets):
        import torch
        from torch.nn import functional

        with torch.autocast("cuda", torch.bfloat16, enabled=self.name != "resnet50" and not self.small):
            return functional.cross_entropy(self.model(x), targets)

    def step(self, x, targets):
        loss = self.loss(x, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def has_gpu():
    """Asked of a process of its own: this one has no torch."""
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 77)"
    return subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def pleat_of_device():
    """Pleat's counters for the first device; None where it has none."""
    devices = (of_this_process() or {}).get("devices", [])
    return next((device for device in devices if device["name"] == "cuda:0"), None)


def work(name, small, deterministic):
    """Reads `step N` and `end` from stdin, answers each with a line of JSON."""
    import torch

    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    job = Job(name, small)
    base = 0
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "end":
            statistic = torch.cuda.memory_stats()
            print(json.dumps({
                "peak_above_base": torch.cuda.max_memory_allocated() - base,
                "active_at_peak": statistic.get("active_bytes.all.peak", 0),
                "reserved_at_peak": torch.cuda.max_memory_reserved(),
                "pleat": pleat_of_device(),
            }), flush=True)  # fmt: skip
            return
        if word == "reset":  # what is there between two steps is the base
            torch.cuda.synchronize()
            base = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            print("{}", flush=True)
            continue
        batch = job.batch(int(rest[0]))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = job.step(*batch)
        torch.cuda.synchronize()
        print(json.dumps({"loss": loss, "seconds": time.perf_counter() - begin}), flush=True)


# ---- the comparison ----


class Worker:
    def __init__(self, words, row, library):
        self.row = row
        env = environment(row, library, len(os.sched_getaffinity(0))) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        self.process = subprocess.Popen(
            [sys.executable, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Problem(f"row {self.row.name!r} ended with exit code {self.process.wait()}")
        return json.loads(line)

    def end(self):
        result = self.ask("end")
        self.process.stdin.close()
        self.process.wait()
        return result


def train(words, rows, steps, warm, library):
    """One worker for each row, in turns; by name: losses, the median of the steps after `warm`, memory."""
    workers = [Worker(words, row, library) for row in rows]
    results = {row.name: {"losses": [], "seconds": []} for row in rows}
    for step in range(steps):
        for worker in in_turn(workers, step):
            if step == warm:
                worker.ask("reset")
            answer = worker.ask("step", step)
            results[worker.row.name]["losses"].append(answer["loss"])
            results[worker.row.name]["seconds"].append(answer["seconds"])
    for worker in workers:
        result = results[worker.row.name]
        times = result.pop("seconds")[warm:]
        result |= {"median_step_seconds": statistics.median(times)} | worker.end()
    return results


def compare(name, steps, words, library):
    stock, lossless, bits4 = Row("stock"), Row("lossless", "bits:lossless"), Row("bits4", "bits:4")
    exact = train([*words, "--deterministic"], [stock, lossless], 5, 3, library)
    lossy = train(words, [stock, bits4], 3 + steps, 3, library)
    stock, mine = lossy["stock"], lossy["bits4"]
    pleat = mine["pleat"] or {}
    records, spent = pleat.get("records", {}), pleat.get("time", {})
    return {
        "model": name,
        "lossless_losses_are_stocks": exact["stock"]["losses"] == exact["lossless"]["losses"],
        "peak_stock_over_4_bits": stock["peak_above_base"] / max(1, mine["peak_above_base"]),
        "step_time_change": mine["median_step_seconds"] / stock["median_step_seconds"] - 1,
        "last_loss_stock": stock["losses"][-1],
        "last_loss_4_bits": mine["losses"][-1],
        "active_over_reserved": mine["active_at_peak"] / max(1, mine["reserved_at_peak"]),
        "host_us_a_release": spent.get("encode_ns", 0) / 1000 / max(1, records.get("encoded", 0)),
        "host_us_a_restore": spent.get("decode_ns", 0) / 1000 / max(1, records.get("restored", 0)),
        "runs": {"exact": exact, "lossy": lossy},
    }


BARS = {"resnet50": (4.0, 0.15), "gpt": (3.0, 0.13), "gpt_bytes": (3.0, 0.13)}


def peaks(result):
    return " and ".join(f"{result['runs']['lossy'][row]['peak_above_base'] / 1e9:.2f}" for row in ("stock", "bits4"))


def page(results, device):
    lines = [
        f"# Trainings on {device}, stock beside Pleat", "",
        "Written by `tools/bench/gpu_training.py`. Peaks are bytes allocated above what is there between two steps.", "",
        "| model | lossless losses are stock's | peak, stock and 4 bits | ratio | bar | step time | bar | active / reserved | release, host | restore, host |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in results:
        ratio, slower = BARS[r["model"]]
        lines.append(
            f"| {r['model']} | {'yes' if r['lossless_losses_are_stocks'] else 'NO'} | {peaks(r)} GB "
            f"| {r['peak_stock_over_4_bits']:.2f} | > {ratio:.1f} "
            f"| {100 * r['step_time_change']:+.1f} % | <= +{100 * slower:.0f} % | {r['active_over_reserved']:.2f} "
            f"| {r['host_us_a_release']:.1f} us | {r['host_us_a_restore']:.1f} us |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so (default: the build's)")
    parser.add_argument("--models", nargs="+", choices=BARS, default=list(BARS), metavar="NAME")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each (default: 8)")
    parser.add_argument("--small", action="store_true", help="small models, to try the check itself")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--launcher", metavar="FILE", help="a script that runs scripts, as tests/simulated_cuda/simulate.py does")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--deterministic", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker, options.small, options.deterministic)
    library = find_library(options.lib)
    launcher = [options.launcher, "--shadow"] if options.launcher else []
    if not launcher and not has_gpu():
        print("no GPU here: not measured", file=sys.stderr)
        return 77
    small = ["--small"] if options.small else []
    results = [
        compare(name, options.steps, [*launcher, str(pathlib.Path(__file__).resolve()), "--worker", name, *small], library)
        for name in options.models
    ]
    probe = "import torch; print(torch.cuda.get_device_name())"
    name = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout.strip() if not launcher else ""
    device = name or "a simulated device"
    text = page(results, device)
    print(text)
    write_json(options.json, {"device": device, "results": results})
    if options.page:
        options.page.write_text(text)
    return 0 if all(r["lossless_losses_are_stocks"] for r in results) else 1


if __name__ == "__main__":
    run_main(main)
