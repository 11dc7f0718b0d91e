"""What the benchmark programs share: rows, fresh processes, paired figures, tables, and the machine.

A row is one way to run the same training script: stock, under Pleat with some PLEAT_CONF, with activation
checkpointing. Every figure comes from a fresh process per row and repeat; rows alternate within a repeat, mostly
step by step, and every second one goes backwards, so that a slow drift of the machine falls on all rows alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
REMEDY = "build it with `bash tools/setup.sh`, or name the library with --lib"


class Problem(Exception):
    """Something the user can mend; its text is the one line to print."""


# Threads that wait for work do not spin: others use these cores, too.
QUIET = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}

# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """`conf` is PLEAT_CONF, or None for a process without Pleat. `by_hand`: pleat.enable() in place of LD_PRELOAD."""

    name: str
    conf: str | None = None
    checkpoint: bool = False
    by_hand: bool = False


# Short spellings of --rows. `{bits}` is --bits.
ROWS = {
    "stock": Row("stock"),
    "pleat": Row("pleat bits:{bits}", "bits:{bits}"),
    "off": Row("pleat bits:off", "bits:off"),
    "lossless": Row("pleat lossless", "bits:lossless"),
    "forward_end": Row("pleat inplace, forward_end", "bits:{bits},place:inplace,when:forward_end"),
    "by_hand": Row("pleat by hand bits:{bits}", "bits:{bits}", by_hand=True),
    "checkpoint": Row("checkpoint", None, True),
    "pleat+checkpoint": Row("pleat + checkpoint", "bits:{bits}", True),
}


def parse_rows(text: str, bits: str) -> list[Row]:
    """Rows of a comma list of ROWS' names; "stock" is put first if it is missing. A name may also be
    `conf=KEY:VALUE[;KEY:VALUE]`, any PLEAT_CONF with ; for its commas."""
    rows = []
    for name in (part.strip() for part in text.split(",")):
        if not name:
            continue
        if name.startswith("conf="):
            conf = name[len("conf=") :].replace(";", ",")
            rows.append(Row(f"pleat {conf}", conf))
        elif name in ROWS:
            row = ROWS[name]
            conf = row.conf.format(bits=bits) if row.conf is not None else None
            rows.append(dataclasses.replace(row, name=row.name.format(bits=bits), conf=conf))
        else:
            raise Problem(f"--rows: no row named {name!r}; there are {', '.join(ROWS)} and conf=KEY:VALUE")
    stock = Row("stock")
    return [stock] + [row for row in dict.fromkeys(rows) if row != stock]


def check_bits(text: str) -> str:
    """--bits as PLEAT_CONF takes it."""
    if text in ("off", "lossless"):
        return text
    try:
        if 1 <= float(text) <= 8:
            return text
    except ValueError:
        pass
    raise Problem(f"--bits {text!r}: off, lossless, or a number from 1 to 8")


def find_library(given: str | None) -> pathlib.Path | None:
    """libpleat.so: the one given (which must exist), else the build folder's (PLEAT_BUILD_DIR or build/), else None."""
    if given:
        path = pathlib.Path(given).resolve()
        if not path.is_file():
            raise Problem(f"--lib {given}: no such file")
        return path
    path = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR") or ROOT / "build") / "lib" / "libpleat.so"
    return path if path.is_file() else None


def runnable_rows(rows: list[Row], library: pathlib.Path | None) -> list[Row]:
    """Drops the rows that need Pleat where there is none, and says so."""
    if library is not None:
        return rows
    kept = [row for row in rows if row.conf is None]
    if len(kept) < len(rows):
        print(f"no libpleat.so: rows with Pleat left out ({REMEDY})", file=sys.stderr)
    return kept


def in_turn(rows: list[Row], repeat: int) -> list[Row]:
    """The order of the rows in repeat number `repeat`, counted from 0."""
    return rows if repeat % 2 == 0 else rows[::-1]


# --- fresh processes ------------------------------------------------------------------------------


class OverCap(Exception):
    """The run was stopped because its memory passed the cap."""


def environment(row: Row, library: pathlib.Path | None, threads: int) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PLEAT_CONF")}
    env.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS=str(threads), PYTHONHASHSEED="0")
    if row.conf is not None:
        if library is None:
            raise Problem(f"row {row.name!r} needs libpleat.so: {REMEDY}")
        others = os.environ.get("LD_PRELOAD", "").split(":")
        kept = [part for part in others if part and os.path.basename(part) != library.name]
        if row.by_hand:
            env["PLEAT_LIB_DIR"] = str(library.parent)
        else:
            kept = [str(library)] + kept
        if kept:
            env["LD_PRELOAD"] = ":".join(kept)
        env["PLEAT_CONF"] = row.conf
    return env


class Training:
    """train.py in a fresh process; a context manager that ends what still runs."""

    def __init__(self, row: Row, options: list[str], library: pathlib.Path | None, threads: int) -> None:
        self.row = row
        self._paused = False
        self._folder = tempfile.TemporaryDirectory()
        self._out = pathlib.Path(self._folder.name) / "result.json"
        self._log = pathlib.Path(self._folder.name) / "log"
        program = BENCH / ("by_hand.py" if row.by_hand else "train.py")
        command = [sys.executable, str(program), *options, "--threads", str(threads), "--out", str(self._out)]
        if row.checkpoint:
            command.append("--checkpoint")
        try:
            with open(self._log, "wb") as sink:
                self.process = subprocess.Popen(
                    command, env=environment(row, library, threads), stdout=sink, stderr=sink, start_new_session=True
                )
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            _stop(self.process)
        self._folder.cleanup()

    def run_to_pause(self) -> bool:
        """Goes on until the program stops itself (--pause) or ends. False: it has ended."""
        if self.process.poll() is not None:
            return False
        if self._paused:  # a fresh process goes on by itself: told to, it might run past a pause that nobody has seen
            self.process.send_signal(signal.SIGCONT)
            self._paused = False
        seen = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if seen.si_code != os.CLD_STOPPED:
            return False  # subprocess asks for the exit code itself
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        self._paused = True
        return True

    def result(self) -> dict:
        """Waits for the end. Raises Problem with the end of its output if it failed."""
        self.process.wait()
        log = self._log.read_text(errors="replace").strip().splitlines()
        code = self.process.returncode
        if code != 0:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise Problem(f"row {self.row.name!r} failed ({ended}): " + " | ".join(log[-5:]))
        result = json.loads(self._out.read_text())
        result["row"] = self.row.name
        result["conf"] = self.row.conf
        if self.row.conf is not None and result["pleat"] is None:
            words = [line for line in log if line.startswith("pleat")]
            why = f" ({words[0]})" if words else ""
            print(f"warning: row {self.row.name!r} ran, but Pleat was not active in it{why}", file=sys.stderr)
        return result


def train(row: Row, options: list[str], library: pathlib.Path | None, threads: int = 2, cap_bytes: int = 0) -> dict:
    """Runs train.py once in a fresh process and returns its result. `cap_bytes`: stop the run as soon as its
    resident size passes it and raise OverCap; 0: none. Raises Problem with the end of its output if it fails."""
    with Training(row, options, library, threads) as training:
        if _wait(training.process, cap_bytes):
            raise OverCap
        result = training.result()
    if cap_bytes and result["peak_bytes"] > cap_bytes:
        raise OverCap
    return result


def traced(conf: str, stacks: str, options: list[str], library: pathlib.Path, threads: int, binaries: pathlib.Path,
           asked: tuple[str, ...] = ()) -> dict:
    """A run with a trace, its own figures, and the summary of its file. `asked`: options of the summary."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "bench.trace"
        row = Row(f"{conf} stacks:{stacks}", f"{conf},trace:{file},stacks:{stacks}")
        result = train(row, options, library, threads)
        summary = json.loads(subprocess.run([binaries / "pleat", "trace", "summary", "--json", *asked, file], check=True,
                                            capture_output=True, text=True).stdout)
        result["summary"], result["file_bytes"] = summary, file.stat().st_size
    return result


def train_side_by_side(rows: list[Row], options: list[str], library: pathlib.Path | None, threads: int = 2) -> list[dict]:
    """Runs train.py once per row, all at a time, of which one moves: they take turns step by step, every second
    step backwards, and the others are stopped (SIGSTOP). So what disturbs the machine for more than a step falls on
    all rows alike. Returns the results in the order of the rows."""
    results: dict[str, dict] = {}
    with contextlib.ExitStack() as stack:
        running = []
        for row in rows:
            training = stack.enter_context(Training(row, [*options, "--pause"], library, threads))
            if not training.run_to_pause():  # else model, optimizer and data exist
                results[row.name] = training.result()
            running.append(training)
        step = 0
        while len(results) < len(rows):
            for training in in_turn(running, step):
                if training.row.name not in results and not training.run_to_pause():
                    results[training.row.name] = training.result()
            step += 1
    return [results[row.name] for row in rows]


def _wait(process: subprocess.Popen, cap_bytes: int) -> bool:
    """Waits for the end; True if the cap stopped it. Polls every 20 ms while there is a cap."""
    if not cap_bytes:
        process.wait()
        return False
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            peak = field_bytes(status.read_text(), "VmHWM")
        except OSError:
            peak = 0
        if peak > cap_bytes:
            _stop(process)
            return True
        time.sleep(0.02)
    return False


def _stop(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def field_bytes(status: str, name: str) -> int:
    """A field of /proc/PID/status in bytes; 0 if it is not there."""
    for line in status.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


# --- figures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paired:
    """One row against stock over the repeats; every field is a median over pairs but the two spreads."""

    peak_bytes: float  # above stock's base
    peak_ratio: float  # stock's peak above base / this row's; > 1 is less memory
    peak_ratio_spread: float  # largest minus smallest over the pairs
    step_seconds: float
    step_loss_percent: float  # > 0 is slower than stock
    step_loss_spread: float
    step_cpu_loss_percent: float  # the same in processor time, which other processes disturb less
    faults_per_step: float
    last_loss: float


def paired(stock: list[dict], row: list[dict]) -> Paired:
    """Compares the n-th run of a row with the n-th run of stock. The base is stock's in each pair."""
    if not stock or len(stock) != len(row):
        raise ValueError(f"{len(stock)} runs of stock, {len(row)} of the row")
    ratios, peaks, slower, slower_cpu = [], [], [], []
    for one, other in zip(stock, row):
        base = one["base_bytes"]
        above = max(other["peak_bytes"] - base, 1)
        peaks.append(above)
        ratios.append((one["peak_bytes"] - base) / above)
        slower.append((other["median_step_seconds"] / one["median_step_seconds"] - 1) * 100)
        slower_cpu.append((_median_cpu(other) / _median_cpu(one) - 1) * 100)
    return Paired(
        peak_bytes=statistics.median(peaks),
        peak_ratio=statistics.median(ratios),
        peak_ratio_spread=max(ratios) - min(ratios),
        step_seconds=statistics.median(r["median_step_seconds"] for r in row),
        step_loss_percent=statistics.median(slower),
        step_loss_spread=max(slower) - min(slower),
        step_cpu_loss_percent=statistics.median(slower_cpu),
        faults_per_step=statistics.median(r["minor_faults"] / r["steps"] for r in row),
        last_loss=statistics.median(r["losses"][-1] for r in row),
    )


def _median_cpu(run: dict) -> float:
    return statistics.median(run["step_cpu_seconds"][1:] or run["step_cpu_seconds"])


def slope(points: list[tuple[float, float]]) -> float:
    """Least-squares slope of (x, y) points; 0 for fewer than two distinct x."""
    if len(points) < 2:
        return 0.0
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def parse_bytes(text: str) -> int:
    """"4GiB", "512 MB", "3.5g", "1000000" -> bytes. Units of 1024 unless spelt kB, MB, GB."""
    units = {"": 1, "b": 1}
    for power, letter in enumerate("kmgt", start=1):
        units |= {letter: 1024**power, letter + "ib": 1024**power, letter + "b": 1000**power}
    stripped = text.strip().lower()
    number = stripped.rstrip("kmgtib ")
    try:
        value = float(number) * units[stripped[len(number) :].strip()]
    except (ValueError, KeyError):
        raise Problem(f"{text!r} is no size; write for example 4GiB or 800MB") from None
    if not 0 < value < 2**60:
        raise Problem(f"{text!r} is no size that a process can have")
    return int(value)


# --- output -------------------------------------------------------------------------------------------


def table(headers: list[str], rows: list[list[str]]) -> str:
    """A plain text table; the first column is aligned left, the others right."""
    widths = [max(len(line[i]) for line in [headers, *rows]) for i in range(len(headers))]

    def line(cells: list[str]) -> str:
        first, *others = cells
        return "  ".join([first.ljust(widths[0])] + [c.rjust(w) for c, w in zip(others, widths[1:])]).rstrip()

    return "\n".join([line(headers), "  ".join("-" * w for w in widths), *(line(row) for row in rows)])


def megabytes(count: float) -> str:
    return f"{count / 1e6:.0f}"


def described(arguments) -> dict:
    """The arguments of a run as they go into its JSON: without the paths of this machine."""
    return {name: value for name, value in vars(arguments).items() if name not in ("json", "lib")}


def machine() -> dict:
    """What the figures were taken on."""

    def read(path: str) -> str:
        try:
            return pathlib.Path(path).read_text().strip()
        except OSError:
            return ""

    model = next((l.split(":", 1)[1].strip() for l in read("/proc/cpuinfo").splitlines() if l.startswith("model name")), platform.machine())
    from importlib import metadata

    versions = {}
    for name in ("torch", "torchvision", "transformers", "torch_geometric"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": field_bytes(read("/proc/meminfo"), "MemTotal"),
        "kernel": platform.release(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),  # stock's heap depends on it
        "transparent_hugepage": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def write_json(path: str | None, content: dict) -> None:
    if not path:
        return
    try:
        pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise Problem(f"cannot write {path}: {error.strerror}") from None


def progress(text: str) -> None:
    """A note on stderr that the next one overwrites; nothing when stderr is no terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run_main(main) -> None:
    """Calls main(); a Problem is one line and exit code 2, Ctrl-C exit code 130."""
    try:
        sys.exit(main())
    except Problem as problem:
        progress("")
        print(f"{os.path.basename(sys.argv[0])}: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        progress("")
        print("stopped", file=sys.stderr)
        sys.exit(130)
