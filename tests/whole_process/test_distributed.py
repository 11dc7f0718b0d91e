"""Two gloo ranks under torchrun."""

import pytest

from conftest import LOSSLESS, LOSSY, STOCK_ONLY

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0")

DDP = """
    import torch, torch.distributed as dist, pleat_test_support as t
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), t.Gate(), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 256),
        torch.nn.Tanh(), torch.nn.Linear(256, 4))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = t.noise(128, 64, seed=rank), t.noise(128, 4, seed=10 + rank)
    losses, first = [], None
    for step in range(6):
        optimizer.zero_grad()
        if step == 4:
            with model.no_sync():
                (model(x * 2) - y).square().mean().backward()
        loss = (model(x) - y).square().mean()
        loss.backward()
        first = first or t.gradients(model)
        optimizer.step()
        losses.append(loss.item())
    t.emit(rank=rank, losses=losses, first=first, final=t.digest(*model.parameters()))
    dist.barrier()
    dist.destroy_process_group()
"""


def by_rank(result):
    result.check()
    assert len(result.all_json) == 2, result.stdout
    return sorted(result.all_json, key=lambda j: j["rank"])


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_data_parallel_training_on_two_ranks(run_pair, identical, close, conf):
    pair = run_pair(DDP, conf=conf, launcher=TORCHRUN, timeout=240)
    stock, pleat = by_rank(pair.stock), by_rank(pair.pleat.active(encoded=7 if conf == LOSSLESS else 10))
    for mine, theirs in zip(pleat, stock):
        assert mine["final"] == pleat[0]["final"], "the ranks have drifted apart"
        if conf == LOSSLESS:
            identical(mine, theirs)
        else:
            assert mine["losses"][0] == theirs["losses"][0]
            close(mine["first"], theirs["first"], relative=0.4)


FSDP = """
    import torch, torch.distributed as dist, pleat_test_support as t
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    x, y = t.noise(128, 64, seed=rank), t.noise(128, 64, seed=10 + rank)
    def train(reshard):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Sequential(
            torch.nn.Linear(64, 256), t.Gate(), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.Tanh()) for _ in range(3)])
        for block in model:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses, first = [], None
        for step in range(4):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            first = first or [p.grad.full_tensor() for p in model.parameters()]
            optimizer.step()
            losses.append(loss.item())
        encoded["resharded" if reshard else "whole"] = t.count("encoded")
        return {"losses": losses, "first": first}
    encoded = {}
    t.emit(rank=rank, resharded=train(True), whole=train(False), encoded=encoded)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_fully_sharded_training_on_two_ranks(run_pair, identical, close, conf):
    pair = run_pair(FSDP, conf=conf, launcher=TORCHRUN, timeout=240)
    for theirs, mine in zip(by_rank(pair.stock), by_rank(pair.pleat)):
        encoded = 0  # by the trainings so far
        for training in ("resharded", "whole"):  # parameters after their forward pass
            stock, pleat = theirs[training], mine[training]
            assert STOCK_ONLY or mine["encoded"][training] >= encoded + 6
            encoded = mine["encoded"][training]
            if conf == LOSSLESS:
                identical(pleat, stock)
            else:
                assert pleat["losses"][0] == stock["losses"][0]
                close(pleat["first"], stock["first"], relative=0.5)
