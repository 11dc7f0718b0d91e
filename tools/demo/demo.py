#!/usr/bin/env python3
"""Shows Pleat on one training: the same unchanged script first stock, then under `pleat run`.

Watches the memory of each run from outside, prints one table, and draws a picture of both runs:
build/demo/demo.png and build/demo/demo.html (which needs no network).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR") or ROOT / "build")
SCRIPT = HERE / "train_chargpt.py"
SAMPLE_SECONDS = 0.05
# Default time limit of the stock run: with it both runs, their starts and the picture take less
# than five minutes on a slow machine, and on one whose speed halves after it.
STEPS, SECONDS = 120, 80


class Problem(Exception):
    """Something the user can mend; its text is the one line to print."""


@dataclass
class Run:
    """Measurements of one training."""

    name: str
    started: float = 0.0  # seconds since the epoch, like all times of the log
    memory: list[tuple[float, int, int]] = field(default_factory=list)  # (time, resident, highest so far)
    log: list[dict] = field(default_factory=list)  # lines of --log-jsonl; the first is from before step 1
    report: str = ""  # Pleat's report at the end

    @property
    def steps(self) -> list[dict]:
        return [line for line in self.log if "loss" in line]

    @property
    def peak_bytes(self) -> int:
        """The kernel's high-water mark at the end of the last step. Later growth is not training: at exit
        the destructors of torch's libraries read in some 100 MB of library pages, with Pleat and without."""
        end = self.steps[-1]["time"]
        return max((highest for when, _, highest in self.memory if when <= end), default=0)

    @property
    def base_bytes(self) -> int:
        """Resident size once model, optimizer and data exist."""
        return self.log[0]["rss"]

    @property
    def step_seconds(self) -> float:
        """Median step after the first."""
        seconds = [line["seconds"] for line in self.steps]
        return statistics.median(seconds[1:] or seconds)

    @property
    def final_loss(self) -> float:
        """Mean of the last ten steps: single batches scatter."""
        return statistics.fmean(line["loss"] for line in self.steps[-10:])

    def saved_and_payload(self) -> tuple[str, str, str] | None:
        """("92.1 GB", "12.2 GB", "7.54x") from Pleat's report, over the whole run."""
        found = re.search(r"compressed +([\d.]+) MB -> ([\d.]+) MB +\(([\d.]+)x", self.report)
        if not found:
            return None
        return size_words(float(found[1]) * 1e6), size_words(float(found[2]) * 1e6), found[3] + "x"


def size_words(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def status_bytes(pid: int) -> tuple[int, int]:
    """(resident now, highest so far) of a process; swapped-out pages count as resident."""
    values = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM", "VmSwap"):
            values[name] = int(value.split()[0]) * 1024
    swapped = values.get("VmSwap", 0)
    return values.get("VmRSS", 0) + swapped, values.get("VmHWM", 0) + swapped


class Screen:
    """Progress on one line that overwrites itself; on no terminal, a line now and then."""

    def __init__(self):
        self.live = sys.stderr.isatty()
        self.last = 0.0

    def show(self, text: str, end: bool = False) -> None:
        if self.live:
            print(f"\r\033[K{text}", end="\n" if end else "", file=sys.stderr, flush=True)
        elif end or time.monotonic() - self.last > 15:
            self.last = time.monotonic()
            print(text, file=sys.stderr, flush=True)


def bar(part: float, width: int = 24) -> str:
    filled = round(min(max(part, 0.0), 1.0) * width)
    return "━" * filled + "╌" * (width - filled)


def train(name: str, prefix: list[str], environment: dict[str, str], options: list[str], steps: int, screen: Screen,
          seconds: float = math.inf) -> Run:
    """Runs the script and watches it, for `steps` steps or until `seconds` have passed. `prefix` goes before the
    command; `pleat run` replaces itself by the script, so the process started here is the one to watch in both cases."""
    run = Run(name)
    with tempfile.TemporaryDirectory() as folder:
        log, errors = pathlib.Path(folder) / "log.jsonl", pathlib.Path(folder) / "stderr"
        command = [*prefix, sys.executable, str(SCRIPT), *options, "--steps", str(steps), "--seconds", str(seconds),
                   "--print-every", "1"]
        run.started = time.time()
        with open(errors, "wb") as sink:
            process = subprocess.Popen(
                [*command, "--log-jsonl", str(log)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                start_new_session=True,
            )
            try:
                _watch(process, run, steps, seconds, screen)
            except BaseException:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
                raise
        run.report = errors.read_text(errors="replace")
        if process.returncode != 0:
            screen.show("", end=screen.live)
            tail = " | ".join(run.report.strip().splitlines()[-3:])
            raise Problem(f"the {name} run ended with exit code {process.returncode}: {tail}")
        run.log = [json.loads(line) for line in log.read_text().splitlines()]
    if not run.steps:
        raise Problem(f"the {name} run logged no step")
    screen.show(
        f"  {name:6s} {bar(1)} {len(run.steps)} steps in {time.time() - run.started:.0f} s, peak {size_words(run.peak_bytes)}", end=True
    )
    return run


def _watch(process: subprocess.Popen, run: Run, steps: int, seconds: float, screen: Screen) -> None:
    latest = {"step": 0, "loss": "", "ms": ""}
    begun = 0.0  # when the first step was seen

    def read_lines() -> None:
        for line in process.stdout:
            found = re.match(r"step +(\d+) +loss ([\d.nainf]+) +(\d+) ms", line)
            if found:
                latest.update(step=int(found[1]), loss=found[2], ms=found[3])

    reader = threading.Thread(target=read_lines, daemon=True)
    reader.start()
    shown = 0.0
    while process.poll() is None:
        try:
            resident, highest = status_bytes(process.pid)
        except (OSError, ValueError):
            resident = 0
        if resident:  # a process that is ending has no memory any more
            run.memory.append((time.time(), resident, highest))
        if time.monotonic() - shown > 0.2:
            shown = time.monotonic()
            if latest["step"]:
                begun = begun or shown
                words = f"step {latest['step']}/{steps}, loss {latest['loss']}, {latest['ms']} ms"
            else:
                words = "starting"
            done = max(latest["step"] / steps, (shown - begun) / seconds if begun else 0)
            screen.show(f"  {run.name:6s} {bar(done)} {words}, {size_words(resident)} now")
        time.sleep(SAMPLE_SECONDS)
    reader.join(timeout=5)


def table(stock: Run, pleat: Run) -> str:
    """The figures of both runs, side by side. Memory is above what the process held before step 1 (stock's)."""
    base = stock.base_bytes
    peaks = [max(run.peak_bytes - base, 1) for run in (stock, pleat)]
    lines = [
        ("", "stock", "pleat", ""),
        ("peak memory above the model", *map(size_words, peaks), f"{peaks[0] / peaks[1]:.1f}x less"),
        (
            "step time",
            *(f"{run.step_seconds * 1000:.0f} ms" for run in (stock, pleat)),
            f"{(pleat.step_seconds / stock.step_seconds - 1) * 100:+.0f} %",
        ),
        (
            f"loss, mean of last {len(stock.steps[-10:])} steps",
            *(f"{run.final_loss:.4f}" for run in (stock, pleat)),
            f"{(pleat.final_loss / stock.final_loss - 1) * 100:+.2f} %",
        ),
    ]
    moved = pleat.saved_and_payload()
    if moved:
        lines.append(("saved for backward, all steps", moved[0], moved[1], f"{moved[2]} smaller"))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    out = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in lines]
    out.insert(1, "-" * (sum(widths) + 6))
    return "\n".join(out)


def find_pleat() -> pathlib.Path:
    command = BUILD / "bin" / "pleat"
    if not command.is_file() or not (BUILD / "lib" / "libpleat.so").is_file():
        raise Problem("Pleat is not built yet; run: bash tools/setup.sh")
    return command


def check_active(pleat: Run, command: pathlib.Path) -> None:
    """A run that Pleat stayed out of must not pass for a result."""
    if "pleat: report" not in pleat.report:
        why = next((line for line in pleat.report.splitlines() if line.startswith("pleat")), "no word from it")
        raise Problem(f"Pleat was not active in its run ({why}); see: {command} doctor")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n  build/venv/bin/python tools/demo/demo.py\n  build/venv/bin/python tools/demo/demo.py --steps 40 --bits 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int,
                        help=f"of each of the two runs (default: as many as stock does in --seconds, at most {STEPS})")
    parser.add_argument("--seconds", type=float, help=f"limit of the stock run (default {SECONDS}; none if --steps is given)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--bits", default="4", help="for PLEAT_CONF (default 4)")
    parser.add_argument("--threads", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--out", default=str(BUILD / "demo"), metavar="FOLDER", help="default: build/demo")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = SECONDS if arguments.steps is None else math.inf
    if arguments.steps is None:
        arguments.steps = STEPS
    if not arguments.seconds > 0:
        parser.error("--seconds must be above 0")
    for name in ("steps", "batch", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not re.fullmatch(r"off|lossless|[1-8](\.\d+)?", arguments.bits):
        parser.error("--bits is off, lossless, or a number from 1 to 8")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    pleat_command = find_pleat()
    try:
        import picture
    except ImportError as error:
        raise Problem(f"the picture needs {error.name}; run: bash tools/setup.sh demo") from None
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)

    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PLEAT_CONF")}
    environment["OMP_NUM_THREADS"] = str(arguments.threads)
    conf = f"bits:{arguments.bits},verbose:1"
    options = ["--batch", str(arguments.batch)]
    screen = Screen()
    length = f"{arguments.steps} steps each"
    if arguments.seconds < math.inf:
        length += f" at most, as many as stock does in {arguments.seconds:g} seconds"
    print(f"Training a small GPT twice, {length}, with the same unchanged script:")
    print("  stock  python tools/demo/train_chargpt.py")
    print(f"  pleat  PLEAT_CONF={conf} pleat run -- python tools/demo/train_chargpt.py\n", flush=True)
    stock = train("stock", [], environment, options, arguments.steps, screen, arguments.seconds)
    pleat = train(
        "pleat", [str(pleat_command), "run", "--"], environment | {"PLEAT_CONF": conf}, options, len(stock.steps), screen
    )
    check_active(pleat, pleat_command)

    print("\n" + table(stock, pleat) + "\n")
    print("\n".join(line for line in pleat.report.splitlines() if not line.startswith("[")) + "\n")
    for file in picture.draw(stock, pleat, arguments.bits, out):
        print(f"picture: {os.path.relpath(file)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        print(f"demo: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
