"""One training in this process: started by tools/bench/accuracy.py, which reads its JSON.

It does not import or configure Pleat. If Pleat is in the process all the same (LD_PRELOAD), its counters are copied
into the result.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402

from accuracy_parts import census, tasks  # noqa: E402
from pleat_counters import of_this_process  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--task", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = tasks.build(options.task, options.seed)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=task.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, task.steps)
    losses = []
    start = time.process_time()
    task.model.train()
    for step in range(task.steps):
        loss = task.loss(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    seconds = time.process_time() - start
    trained = of_this_process()
    task.model.eval()
    with torch.no_grad():
        accuracy, test_loss = task.test()
    task.model.train()
    result = {
        "task": options.task,
        "seed": options.seed,
        "steps": task.steps,
        "parameters": sum(p.numel() for p in task.model.parameters()),
        **task.facts,
        "first_loss": losses[0],
        "last_loss": sum(losses[-20:]) / 20,
        "accuracy": accuracy,
        "test_loss": test_loss,
        "training_cpu_seconds": seconds,
        "pleat": trained,
        # Under Pleat these hooks would take the tensors from it; training is over.
        "saved": census.saved_floats(task.model, lambda: task.loss(task.steps)),
    }
    options.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
