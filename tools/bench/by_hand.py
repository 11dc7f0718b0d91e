#!/usr/bin/env python3
"""train.py with Pleat switched on by hand: pleat.enable() before the model is built, no preload library.

Takes train.py's options. PLEAT_CONF has Pleat's options, PLEAT_LIB_DIR the folder of its libraries.
"""

import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parents[1] / "torch_bridge" / "python"))

import pleat  # noqa: E402

import train  # noqa: E402

if __name__ == "__main__":
    pleat.enable()  # with what PLEAT_CONF says
    sys.exit(train.main())
