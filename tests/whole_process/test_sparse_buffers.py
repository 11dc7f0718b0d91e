"""Large tensors of which little is ever written: a cache made for the longest text, a table with room."""

import pytest

SPARSE = """
    import torch, pleat_test_support as t
    def resident():
        return t.status_kib("RssAnon")
    def dense():   # leaves pages behind that a buffer may get
        for size in (1 << 20, 3 << 20):
            a = torch.ones(size)
            del a
    before = resident()
    if {other_first}:
        dense()
    {make}
    written = resident() - before
    dense()
    stays = resident() - before
    t.emit(written=written, stays=stays)
"""

CACHE = """cache = torch.empty(64, 8, 2048, 128)
    cache[:, :, :16] = 1"""
TABLE = """table = torch.empty(512 << 20, dtype=torch.uint8)
    table[torch.arange(2000) * 268_433] = 1"""


@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize("make", [CACHE, TABLE], ids=["cache", "table"])
def test_a_buffer_that_is_written_sparsely_takes_what_it_takes_in_stock(run_pair, make, other_first):
    pair = run_pair(SPARSE.format(make=make, other_first=other_first), fresh=True)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    free = 16 << 10  # KiB that dense() leaves to the pool, which stock gives back
    assert pleat["written"] <= 2 * stock["written"] + (8 << 10) + (free if other_first else 0)
    assert pleat["stays"] <= 2 * stock["stays"] + (8 << 10) + free
