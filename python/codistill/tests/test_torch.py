"""Groups of PyTorch modules."""

import copy
import time

import pytest

import codistill

torch = pytest.importorskip("torch")

FAST = dict(groups=2, period=4, codec="f32", min_interval_ms=0)


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def fill(module, value):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
        module[1].running_mean.fill_(10 * value)
    return module


def until(done, *groups):
    while not done():
        for group in groups:
            group.step()
        time.sleep(0.001)


def pair(folder, first, second, **settings):
    return (codistill.join(first, folder, group=0, **{**FAST, **settings}),
            codistill.join(second, folder, group=1, **{**FAST, **settings}))


def test_a_module_merges_in_place(tmp_path):
    own = fill(net(), 1)
    addresses = [p.data_ptr() for p in own.parameters()]
    left, right = pair(tmp_path, own, fill(net(), 3), merge_alpha=1)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
    assert all((p == 2).all() for p in own.parameters()), "half of the difference"
    assert (own[1].running_mean == 20).all() and addresses == [p.data_ptr() for p in own.parameters()]
    assert own[1].num_batches_tracked == 0


def test_only_what_trains_travels(tmp_path):
    """A frozen network with an adapter publishes the adapter alone."""
    own = torch.nn.Sequential(torch.nn.Linear(64, 64).requires_grad_(False), torch.nn.Linear(64, 2, bias=False))
    with codistill.join(own, tmp_path, group=0, **FAST) as left:
        until(lambda: left.figures.published >= 1, left)
        assert left.figures.published_bytes < left.figures.published * 1000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types(tmp_path, dtype):
    own = torch.nn.Linear(4, 4).to(dtype)
    other = copy.deepcopy(own)
    with torch.no_grad():
        [p.fill_(1) for p in own.parameters()], [p.fill_(3) for p in other.parameters()]
    left, right = pair(tmp_path, own, other, merge_alpha=1)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
    assert all(p.dtype == dtype and (p == 2).all() for p in own.parameters())


def test_a_merge_goes_into_the_masters(tmp_path):
    """f32 masters that an optimiser moves, and bf16 parameters that are copies of them."""
    own, other = torch.nn.Linear(4, 4, bias=False).bfloat16(), torch.nn.Linear(4, 4, bias=False).bfloat16()
    masters = {"weight": torch.full((4, 4), 1.0)}
    left = codistill.join(own, tmp_path, group=0, masters=masters, merge_alpha=1, **FAST)
    right = codistill.join(other, tmp_path, group=1, masters={"weight": torch.full((4, 4), 1.0 + 2 ** -10)}, merge_alpha=1, **FAST)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
    assert (masters["weight"] == 1 + 2 ** -11).all() and (own.weight == 1).all(), "bf16 has no such number, the master has"
    with pytest.raises(codistill.ArgumentError, match="no parameter 'heavy'"):
        codistill.join(own, tmp_path, group=0, masters={"heavy": masters["weight"]}, **FAST)


def test_distils_toward_a_peer(tmp_path):
    own, other = net(), net()
    with torch.no_grad():
        other[3].bias.add_(torch.tensor([5.0, 0, 0]))
    left, right = pair(tmp_path, own, other, merge="none")
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))
    with left, right:
        assert left.distill(inputs, own(inputs)) == 0
        until(lambda: left.peers[0].step > 0, left, right)
        other.eval()
        outputs = own(inputs)
        loss = left.distill(inputs, outputs, temperature=2.0)
        wanted = 4 * torch.nn.functional.kl_div((outputs / 2).log_softmax(1), (other(inputs) / 2).log_softmax(1),
                                                reduction="batchmean", log_target=True)
        assert torch.allclose(loss, wanted, rtol=1e-5), (loss, wanted)
        loss.backward()
        assert own[3].bias.grad[0] < 0 and other[3].bias.grad is None
        assert torch.allclose(left.distill(inputs, outputs, loss="mse", weight=2),
                              2 * torch.nn.functional.mse_loss(outputs, other(inputs)), rtol=1e-5)
        with pytest.raises(codistill.ArgumentError, match="none of auto, kl, mse"):
            left.distill(inputs, outputs, loss="huber")


def test_attached_to_an_optimiser(tmp_path):
    own, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.0) for m in (own, other)]
    for module, value in ((own, 1), (other, 3)):
        with torch.no_grad():
            [p.fill_(value) for p in module.parameters()]
    groups = [codistill.attach(o, tmp_path, group=g, merge_alpha=1, **FAST) for g, o in enumerate(optimisers)]
    while groups[0].peers[0].merged == 0:
        for module, optimiser in zip((own, other), optimisers):
            module(torch.ones(1, 4)).sum().backward()
            optimiser.step()
        time.sleep(0.001)
    assert (own.weight == 2).all()
    for group in groups:
        group.leave()


def test_a_changed_module_is_named(tmp_path):
    own = net()
    with codistill.join(own, tmp_path, group=0, **FAST) as left:
        own[3] = torch.nn.Linear(8, 4)
        with pytest.raises(codistill.ArgumentError, match=r"'3.weight' was torch.float32 of shape \(3, 8\) and is now"):
            for _ in range(4):
                left.step()
        own[3] = torch.nn.Linear(8, 3)  # other storage, but alike
        for _ in range(4):
            left.step()


def test_state_travels_through_torch_save(tmp_path):
    own = net()
    left, right = pair(tmp_path / "folder", own, net())
    with right:
        until(lambda: left.peers[0].merged == 1, left, right)
        torch.save({"model": own.state_dict(), "peers": {k: torch.as_tensor(v) for k, v in left.state_dict().items()}}, tmp_path / "saved")
        held = left.peers[0].step
        left.leave()
        saved = torch.load(tmp_path / "saved")
        own.load_state_dict(saved["model"])
        with codistill.join(own, tmp_path / "folder", group=0, **FAST) as left:
            left.load_state_dict(saved["peers"])
            assert left.peers[0].step == held
            until(lambda: left.peers[0].step > held, left, right)


def test_a_compiled_module_stays_compiled(tmp_path):
    own = fill(net(), 1)
    compiled = torch.compile(own, backend="eager")
    inputs = torch.ones(2, 4)
    own.eval()
    compiled(inputs)
    left, right = pair(tmp_path, own, fill(net(), 3), merge_alpha=1)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
    assert torch.equal(compiled(inputs), own(inputs))
