"""Groups in one process, of NumPy arrays: python -m pytest --pyargs codistill."""

import itertools
import os
import time

import numpy
import pytest

import codistill

FAST = dict(groups=2, period=4, codec="f32", min_interval_ms=0)


def pair(folder, first, second, **settings):
    return (codistill.join(first, folder, group=0, **{**FAST, **settings}),
            codistill.join(second, folder, group=1, **{**FAST, **settings}))


def until(done, *groups):
    """Steps of all groups, at the pace of their threads and of storage."""
    while not done():
        for group in groups:
            group.step()
        time.sleep(0.001)


def arrays(value):
    return {"wide": numpy.full((2, 3), value, numpy.float32), "half": numpy.full(5, value, numpy.float16),
            "double": numpy.full(4, float(value)), "turned": numpy.full((3, 2), value, numpy.float32).T}


def test_merges_in_place(tmp_path):
    own = arrays(1)
    kept = dict(own)
    left, right = pair(tmp_path, own, arrays(3), merge_alpha=1)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
        assert all(own[name] is kept[name] and (own[name] == 2).all() for name in own), own
        assert left.figures.published >= 1 and left.peers[0].group == 1 and left.peers[0].step % 4 == 0


def test_doubles_keep_what_singles_have_not(tmp_path):
    own = [numpy.full(3, 1 + 1e-12)]
    left, right = pair(tmp_path, own, [numpy.full(3, 1.0)], merge_alpha=1)
    with left, right:
        until(lambda: left.peers[0].merged == 1, left, right)
        assert (own[0] == 1 + 1e-12).all()


def test_weights_are_copies(tmp_path):
    left, right = pair(tmp_path, arrays(1), arrays(3), merge="none")
    with left, right:
        assert left.weights(0) == ({}, 0)
        until(lambda: left.weights(0)[1] > 0, left, right)
        weights, step = left.weights(0)
        assert step % 4 == 0 and (weights["wide"] == 3).all() and weights["turned"].shape == (2, 3)


def test_a_tree_is_given_back(tmp_path):
    def tree(value):
        leaf = numpy.full((2, 2), value, numpy.float32)
        leaf.flags.writeable = False
        return {"layers": [{"w": leaf, "b": numpy.zeros(2, numpy.float32)}, (leaf, leaf)]}

    left, right = tree(1), tree(3)
    with codistill.join(left, tmp_path, group=0, merge_alpha=1, **FAST) as first, \
            codistill.join(right, tmp_path, group=1, merge_alpha=1, **FAST) as second:
        with pytest.raises(codistill.ArgumentError, match="params = peers.step"):
            first.step()
        while first.peers[0].merged == 0:
            left, right = first.step(left), second.step(right)
            time.sleep(0.001)
        assert (left["layers"][0]["w"] == 2).all() and (left["layers"][1][1] == 2).all() and isinstance(left["layers"][1], tuple)


def test_a_restarted_group_goes_on(tmp_path):
    own, other = arrays(1), arrays(3)
    left, right = pair(tmp_path, own, other, merge_alpha=1)
    with right:
        until(lambda: left.peers[0].merged == 1, left, right)
        state, held = left.state_dict(), left.peers[0].step
        left.leave()
        with codistill.join(own, tmp_path, group=0, merge_alpha=1, **FAST) as left:
            left.load_state_dict(state)
            assert left.peers[0].step == held and left.peers[0].merged == 0
            until(lambda: left.peers[0].merged == 1, left, right)
            assert left.peers[0].step > held


def test_a_killed_process_comes_back(tmp_path):
    """Killed at any instant, also between a file and its name; the others lose no step, and hear of it again."""
    own = arrays(1)
    with codistill.join(own, tmp_path, group=0, **FAST) as left:
        for life in range(3):
            child = os.fork()
            if child == 0:  # a process of its own: it joins after the fork
                with codistill.join(arrays(3), tmp_path, group=1, **FAST) as right:
                    for step in itertools.count():
                        right.step()
                        time.sleep(0.0002)
            before = left.peers[0].pulled
            until(lambda: left.peers[0].pulled > before, left)
            os.kill(child, 9)
            os.waitpid(child, 0)


def test_a_fork_is_refused(tmp_path):
    with codistill.join(arrays(1), tmp_path, group=0, **FAST) as left:
        child = os.fork()
        if child == 0:
            try:
                left.step()
            except codistill.ArgumentError as refused:
                os._exit(0 if "fork" in str(refused) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        left.step()


def test_an_exception_leaves(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with codistill.join(arrays(1), tmp_path, group=0, **FAST) as left:
            left.step()
            1 / 0
    with pytest.raises(codistill.ArgumentError, match="has left"):
        left.step()


def test_a_changed_array_is_named(tmp_path):
    own = arrays(1)
    with codistill.join(own, tmp_path, group=0, **FAST) as left:
        own["wide"] = numpy.ones((2, 4), numpy.float32)
        with pytest.raises(codistill.ArgumentError, match=r"'wide' was float32 of shape \(2, 3\) and is now float32 of shape \(2, 4\)"):
            for _ in range(4):
                left.step()
        own["wide"] = numpy.ones((2, 3), numpy.float32)  # elsewhere, but alike
        for _ in range(4):
            left.step()
        del own["wide"]
        with pytest.raises(codistill.ArgumentError, match="other arrays"):
            for _ in range(4):
                left.step()


@pytest.mark.parametrize("change, part", [
    (dict(period=0), "setting period: '0' is not a whole number from 1"),
    (dict(perod=1), "did you mean 'period'"),
    (dict(groups=1), "setting groups"),
    (dict(group=2), "2 is not one of 2 groups"),
    (dict(codec="zip"), "'zip' is not one of"),
])
def test_bad_settings_are_named(tmp_path, change, part):
    with pytest.raises(ValueError, match=part):
        codistill.join(arrays(1), tmp_path, **{**dict(group=0, **FAST), **change})


@pytest.mark.parametrize("weights, part", [
    ([numpy.zeros(3, numpy.int64)], "'0' has values of type int64"),
    ({}, "neither a torch.nn.Module"),
    (3, "neither a torch.nn.Module"),
    ([numpy.zeros((1,) * 9)], "9 dimensions"),
])
def test_bad_weights_are_named(tmp_path, weights, part):
    with pytest.raises(codistill.ArgumentError, match=part):
        codistill.join(weights, tmp_path, group=0, **FAST)
