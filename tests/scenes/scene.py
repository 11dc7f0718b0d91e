"""Runs scenes: small programs whose gradients under Pleat are compared with the exact ones (docs/testing.md).

    python tests/scenes/scene.py NAME... [--all] [--conf CONF] [--table] [--stock] [--no-yardstick] [--jobs N]

prints a line for each scene. NAME is GROUP/NAME, NAME, GROUP or a path; PLEAT_BUILD_DIR and PLEAT_TEST_PYTHON are those of
the tests. Exit code 1 if a scene fails.

A scene runs in a fork of an interpreter that has imported torch (tests/forked.py). That process imports the scene, then
forks once for each leg, and each leg starts Pleat (leg.py). So the learning of one leg helps no other, and imports run only
once. A leg goes through the scene's steps. Each step runs exactly first, with tagging off, then with noise, both from the
same weights, buffers and seeds. The optimiser steps with the exact gradients.

A scene has `make(rng)`. It returns the owner of the parameters (a module, or a list of leaves) and `step(i)`, which builds
its data from i and returns the loss. A scene with VALUES = True returns (loss, values): tensors that must agree with the
exact ones. The loss may be None if the step itself ran backward, or if only values count. A step must only change parameters
or buffers of the module, or the next pass does not start from the same state. Settings of a scene:

    OPTIMISER = lambda parameters: ...   default Adam(1e-3)
    backward = lambda loss, i: ...       in place of loss.backward()
    STEPS = 6
    FIRST = 0                            errors of steps before this one are not judged
    SLOW = True                          drawn only in full runs
    BAR = 0.2                            at 4 bits, in place of the yardstick's; at 8 bits a tenth
    COLUMNS = True                       a matrix's error is the root mean square of its columns' (input channels, of which
                                         Adam makes steps of the same size)
    LEGS = {"2": "bits:2,min_bytes:0"}   more legs; only their losses and values are judged
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile

SCENES = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(SCENES), str(SCENES.parent)]

import as_shipped  # noqa: E402
import judge  # noqa: E402

COMMON = "min_bytes:0"
LEGS = {"4": f"bits:4,{COMMON}", "8": f"bits:8,{COMMON}", "yardstick": f"bits:4,{COMMON},rule:operands"}
SECONDS = 300  # for one scene


def all_scenes():
    """Paths in order."""
    return sorted(path for path in SCENES.glob("*/*.py") if not path.parent.name.startswith("_"))


def scene_name(path):
    return f"{path.parent.name}/{path.stem}"


def is_slow(path):
    return "\nSLOW = True" in path.read_text()


@dataclasses.dataclass
class Outcome:
    legs: dict  # reports by leg
    cpu_seconds: float
    stderr: str


def chosen_legs():
    """PLEAT_SCENES_YARDSTICK=0: without the yardstick, and then the bar at 4 bits is 0.1 of the norm everywhere."""
    without = os.environ.get("PLEAT_SCENES_YARDSTICK") == "0"
    return {name: conf for name, conf in LEGS.items() if not (without and name == "yardstick")}


def run_scene(server, path, legs, seconds=SECONDS):
    """The Outcome of a scene in a fork of `server`, a ForkServer."""
    for name, conf in legs.items():
        if name != "yardstick":  # which is no leg under test, but what they are held against
            as_shipped.variables_of(conf)
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        request = json.dumps({"legs": legs, "report": str(report)})
        _, err, code, cpu = server.run(SCENES / "leg.py", [path, request], {}, seconds, wind_down=False, start=False)
        err = err.decode(errors="replace")
        if code == 0 and report.exists():
            return Outcome(json.loads(report.read_text()), cpu, err)
        how = f"killed after {seconds} s" if code is None else f"exit code {code}"
        return Outcome({"problem": ["failed", f"{err[-3000:]}\n{how}"]}, cpu, err)


def problem(legs):
    """(kind, text) of the reason that prevents judging a scene: "missing" (a package that set-up does not install for the
    tests), "invalid" (a faulty scene), "failed". None if there is no reason."""
    if "problem" in legs:
        return tuple(legs["problem"])
    for name, leg in legs.items():
        if "problem" in leg:
            kind, text = leg["problem"]
            return kind, f"leg {name}: {text}"
    return None


def kept_share(leg):
    """Payload bytes relative to released bytes, exact ones included; None without a release."""
    stats = (leg or {}).get("stats") or {}
    records, raw = stats.get("records") or {}, (stats.get("codec") or {}).get("kept_raw_bytes", 0)
    saved = records.get("source_bytes", 0) + raw
    return (records["payload_bytes"] + raw) / saved if saved else None


def column(value, width=9):
    return f"{'-' if value is None else f'{value:.3g}':>{width}}"


HEADING = (
    f"{'scene':34} {'worst parameter':>26} {'step':>4} {'error4':>9} {'yardstick':>9} {'error8':>9} {'bias':>9} "
    f"{'kept':>9} {'CPU s':>6}  verdict"
)


def line_of(name, outcome):
    """A line of the table: the value nearest to its bar, or farthest beyond it, column by column."""
    legs, cpu = outcome.legs, outcome.cpu_seconds
    why = problem(legs)
    if why:
        return f"{name:34} {'':83} {cpu:6.1f}  {why[0]}: {why[1].strip().splitlines()[-1]}"
    missed = judge.misses(legs)
    at_4 = judge.worst(judge.error_at_4(legs["4"], legs.get("yardstick")))
    at_8 = judge.worst(judge.error_at_8(legs["8"], legs["4"])) if "8" in legs else None
    bias = judge.worst(judge.biases(legs["4"]))
    verdict = " + ".join(dict.fromkeys(miss.what for miss in missed)) or "ok"
    return (
        f"{name:34} {at_4.name[-26:] if at_4 else '-':>26} {at_4.step if at_4 else '-':>4} "
        f"{column(at_4 and at_4.found)} {column(at_4 and at_4.yardstick)} {column(at_8 and at_8.found)} "
        f"{column(bias and bias.found)} {column(kept_share(legs['4']))} {cpu:6.1f}  {verdict}"
    )


def table_of(legs):
    """Everything measured, a line for each parameter and step."""
    rows = [f"    {'step':>4} {'':8} {'found':>9} {'yardstick':>9} {'bar':>9}  name"]
    for one in judge.all_measured(legs):
        mark = " " if one.found <= one.bar else "*"
        rows.append(
            f"   {mark}{one.step:4} {one.what:8} {column(one.found)} {column(one.yardstick)} {column(one.bar)}  {one.name}"
        )
    return "\n".join(rows)


def chosen_scenes(names, everything):
    if everything:
        return all_scenes()
    chosen = []
    for name in names:
        found = [
            path for path in all_scenes()
            if name in (path.stem, path.parent.name, scene_name(path)) or pathlib.Path(name).resolve() == path
        ]  # fmt: skip
        if not found:
            sys.exit(f"no scene is called {name}")
        chosen += found
    return list(dict.fromkeys(chosen))


def main():
    from concurrent.futures import ThreadPoolExecutor

    import conftest
    import cpu_seconds

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="GROUP/NAME, NAME, GROUP or a path")
    parser.add_argument("--all", action="store_true", help="every scene")
    parser.add_argument("--conf", help="options added to those of each leg")
    parser.add_argument("--table", action="store_true", help="and every error with its bar")
    parser.add_argument("--stock", action="store_true", help="without Pleat: checks the scenes themselves")
    parser.add_argument("--no-yardstick", action="store_true", help="the bar at 4 bits is 0.1 of the norm")
    parser.add_argument("--jobs", type=int, default=1, help="scenes at a time")
    options = parser.parse_args()
    scenes = chosen_scenes(options.names, options.all)
    if not scenes:
        parser.error("which scenes? NAME... or --all")
    build = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", conftest.REPOSITORY / "build")).resolve()
    python = pathlib.Path(os.environ.get("PLEAT_TEST_PYTHON", build / "venv" / "bin" / "python")).absolute()
    legs = chosen_legs()
    if options.no_yardstick or options.stock:
        legs.pop("yardstick", None)
    if options.conf:
        legs = {name: f"{conf},{options.conf}" for name, conf in legs.items()}
    failures, total = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        runner = conftest.Runner(python, lambda: build / "lib" / "libpleat.so", folder, folder, None, cpu_seconds)
        try:
            server = runner.fork_server(preload=not options.stock)
            print(HEADING, flush=True)
            with ThreadPoolExecutor(options.jobs) as pool:
                outcomes = pool.map(lambda path: run_scene(server, path, legs), scenes)
                for path, outcome in zip(scenes, outcomes, strict=True):
                    print(line_of(scene_name(path), outcome), flush=True)
                    why = problem(outcome.legs)
                    if options.table:
                        print(f"{why[1]}\n{outcome.stderr}" if why else table_of(outcome.legs), flush=True)
                    failures += bool(why and why[0] != "missing" or not why and judge.misses(outcome.legs))
                    total += outcome.cpu_seconds
        finally:
            runner.close()
    print(f"{failures} of {len(scenes)} scenes fail; {total:.0f} CPU seconds")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
