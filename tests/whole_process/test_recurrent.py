"""Recurrent layers of torch, whose fused kernels ask for far more memory than they write."""

LSTM = """
    import pathlib, torch, pleat_test_support as t
    layers = torch.nn.LSTM(256, 512, 2, bidirectional=True)
    x = t.noise(40, 32, 256, seed=1)
    def step():
        layers.zero_grad()
        layers(x)[0].square().mean().backward()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    for _ in range(3):
        step()
    t.emit(anonymous=t.status_kib("VmHWM") - t.status_kib("RssFile"))
"""


def test_an_lstm_needs_no_more_memory_than_in_stock(run_pair):
    pair = run_pair(LSTM, conf="bits:4", fresh=True)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert pleat["anonymous"] <= 1.03 * stock["anonymous"]
