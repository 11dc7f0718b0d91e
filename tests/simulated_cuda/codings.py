"""Options of Pleat that tests of saved CUDA tensors run with. With `bits:4` values are those of stock within noise."""

import pytest

OFF = "cuda:1,bits:off,min_bytes:0"
LOSSLESS = "cuda:1,bits:lossless,min_bytes:0"
CODINGS = [pytest.param(OFF, id="off"), pytest.param(LOSSLESS, id="lossless")]
NOISE = 0.3  # of a gradient's norm
