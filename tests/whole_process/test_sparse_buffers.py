"""Large tensors of which little is ever written: a cache made for the longest text, a table with room."""

SPARSE = """
    import torch, pleat_test_support as t
    torch.set_num_threads(1)
    def resident():
        return t.status_kib("RssAnon")
    def dense():  # what it leaves behind a buffer may get
        torch.ones(3 << 20)
    before = resident()
    cache = torch.empty(64, 8, 2048, 128)
    cache[:, :, :16] = 1
    of_cache = resident() - before
    dense()
    before = resident()
    table = torch.empty(512 << 20, dtype=torch.uint8)
    table[torch.arange(2000) * 268_433] = 1
    of_table = resident() - before
    for _ in range(200):  # what is joined or given back by the way is, by now
        dense()
    t.emit(cache=of_cache, table=of_table, both=resident() - before + of_cache)
"""


def test_sparsely_written_buffers_take_as_much_as_in_stock(run_pair):
    pair = run_pair(SPARSE, fresh=True)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert stock["both"] > 10 << 10
    for name in ("cache", "table", "both"):
        assert pleat[name] <= 1.5 * stock[name] + (4 << 10), name
