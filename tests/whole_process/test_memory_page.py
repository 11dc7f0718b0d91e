"""The page on stderr when memory runs out, or when a script asks."""

import re
import textwrap

import pytest

from conftest import STOCK_ONLY
from traced import TRACING, events  # noqa: F401  a fixture

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own files")

REFUSED = textwrap.dedent("""
    net = Net()
    x = torch.randn(4096, 160)
    loss = net(x).square().mean()  # holds
    def refused(times):
        texts = set()
        for _ in range(times):
            try:
                torch.empty(1 << 46)
            except RuntimeError as error:
                texts.add(str(error))
        return texts
""")


def test_a_refused_allocation_gets_a_page_of_classes(run_script):
    script = TRACING.replace("folder = sys.argv[1]", "") + REFUSED
    run = run_script(script + "t.emit(texts=sorted(refused(5)))\nprint('goes on')", conf="bits:4")
    stock = run_script("import torch\ntry:\n    torch.empty(1 << 46)\nexcept RuntimeError as error:\n    print(error)\n", preload=False)
    assert run.returncode == 0 and "goes on" in run.stdout
    assert run.json["texts"] == [stock.stdout.strip()]  # the error is stock's
    assert run.stderr.count("pleat: out of memory: 256.0 TiB were refused on the host") == 3
    assert run.stderr.count("(the last of these pages)") == 1
    assert re.search(r"^    live +\d+\.\d MiB +\d+\.\d MiB$", run.stderr, re.M), run.stderr
    assert re.search(r"^      payloads +\d", run.stderr, re.M)


def test_with_a_trace_the_page_has_lines(run_script, events, tmp_path):
    script = TRACING + REFUSED + textwrap.dedent("""
        refused(5)
        bridge.pleat_trace_dump.argtypes = [ctypes.c_char_p]
        bridge.pleat_trace_dump(b"a look")
        stop()
        t.emit(loss=loss.item())
    """)
    run = run_script(script, conf=f"bits:4,trace:{tmp_path / 'a.trace'}", args=[tmp_path])
    assert run.returncode == 0, run.stderr
    kinds = [row["kind"] for row in events(tmp_path / "a.trace")]
    assert kinds.count("out_of_memory") == 5 and kinds.count("dump") == 1
    pages = run.stderr.count("pleat: out of memory: 256.0 TiB were refused on the host")
    assert pages == 3 and run.stderr.count("a look") == 1
    assert "payloads" in run.stderr and re.search(r"\.py:\d+ Net\.forward", run.stderr), run.stderr


def test_a_size_below_zero_is_not_reported_as_a_shortage(run_script):
    run = run_script("import torch\ntry:\n    torch.empty(-5)\nexcept RuntimeError:\n    print('refused')\n", conf="bits:4")
    assert run.returncode == 0 and "refused" in run.stdout and "out of memory" not in run.stderr
