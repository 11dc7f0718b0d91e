"""Starts train.py for the rows, each run in a process of its own, and keeps what it has found: rows that need the same
run share it. Profiles lie in a folder that goes when the runs end."""

from __future__ import annotations

import os
import pathlib
import shutil
from dataclasses import dataclass

import harness
from harness import QUIET, Row


@dataclass(frozen=True)
class Case:
    """A model of `models`, and how large a batch; None: its own."""

    model: str
    batch: int | None = None

    def __str__(self) -> str:
        return self.model if self.batch is None else f"{self.model}, batch {self.batch}"


class Runs:
    def __init__(self, library: pathlib.Path, folder: pathlib.Path, threads: int, seed: int) -> None:
        os.environ.update(QUIET)
        self.folder = folder
        self._library, self._threads, self._seed = library, threads, seed
        self._found: dict[tuple, dict] = {}
        self._copies = 0

    def train(self, case: Case, conf: str | None, steps: int, digests: bool = False) -> dict:
        """The result of train.py under Pleat with that PLEAT_CONF (None: stock)."""
        key = (case, conf, steps, digests)
        if key not in self._found:
            harness.progress(f"{case}: {steps} steps, {conf or 'stock'}")
            more = ["--step-digests"] if digests else []
            options = [*self._options(case, steps), *more]
            self._found[key] = harness.train(Row(conf or "stock", conf), options, self._library, self._threads)
            harness.progress("")
        return self._found[key]

    def side_by_side(self, case: Case, confs: list[str], steps: int, turned: bool) -> list[dict]:
        """Runs that take turns step by step, with one thread each: then time in the codec is processor time unless
        another process takes the core. `turned`: the last one begins. Results in the order of `confs`."""
        harness.progress(f"{case}: {steps} steps side by side")
        rows = [Row(conf, conf) for conf in confs]
        order = rows[::-1] if turned else rows
        results = harness.train_side_by_side(order, self._options(case, steps), self._library, 1)
        harness.progress("")
        return results[::-1] if turned else results

    def _options(self, case: Case, steps: int) -> list[str]:
        options = ["--model", case.model, "--steps", str(steps), "--seed", str(self._seed), "--step-counters"]
        return options + (["--batch", str(case.batch)] if case.batch else [])

    def profile_of(self, case: Case, name: str) -> pathlib.Path:
        """Where the run of that name writes its profile."""
        return self.folder / f"{case.model}-{case.batch or 'own'}-{name}.pleat"

    def copy_of(self, profile: pathlib.Path) -> pathlib.Path:
        """Pleat writes into the file that a run names: each run has its own."""
        self._copies += 1
        return pathlib.Path(shutil.copy(profile, self.folder / f"copy{self._copies}.pleat"))


def with_profile(conf: str, path: pathlib.Path) -> str:
    """The PLEAT_CONF with a profile beside; any path will do."""
    return conf + ',profile:"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
