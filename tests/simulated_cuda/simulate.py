#!/usr/bin/env python3
"""Runs a Python script on a simulated CUDA: torch's own CUDA code on stand-in libraries, without a GPU.

Exit code: the script's; 3 if the oracle objects, after a report of two accesses and their streams on stderr.
Below `pleat run`, or with LD_PRELOAD=libpleat.so, Pleat is loaded as in any other process."""

import argparse
import os
import runpy
import sys

import simulation


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shadow", action="store_true", help="true values: each operator's CPU kernel on the same memory")
    parser.add_argument("--devices", type=int, default=1, metavar="N")
    parser.add_argument("--memory", type=int, default=16384, metavar="MIB", help="of each device (default: 16384)")
    parser.add_argument("--lag", type=int, default=0, metavar="N", help="calls by which the host sees things late, at most")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the lag")
    parser.add_argument("--json", metavar="FILE", help="reports of the oracle, calls, launches and peaks")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS")
    return parser.parse_args()


def run(script, args):
    """Runs the script as __main__; returns its exit code."""
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def main():
    options = arguments()
    simulation.place()
    simulation.configure(devices=options.devices, memory_mib=options.memory, lag=options.lag, seed=options.seed,
                         true_values=options.shadow)  # fmt: skip
    if options.shadow:
        simulation.give_true_values()
    try:
        code = run(options.script, options.args)
    finally:
        if options.json:
            simulation.write_json(options.json)
    if simulation.objections():
        code = 3
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
