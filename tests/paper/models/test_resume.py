from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.errors import InputError
from evenhand.paper.models import MLP
from evenhand.paper.models import _checkpoint as checkpoint_module
from evenhand.paper.models._checkpoint import Checkpoint
from evenhand.paper.models._data import Examples, Table
from evenhand.paper.models._net import Net, seeded

OPTIONS = {"max_epochs": 3, "batch_size": 16, "lr": 0.05, "validation": 0.25, "random_state": 0}
BATCHES = 9


class StoppedError(Exception):
    pass


def make_rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)


def state(model):
    return model.net_.module_.state_dict(), list(model.net_.history)


def assert_same_end(one, other):
    (parameters, history), (other_parameters, other_history) = state(one), state(other)
    for name, value in parameters.items():
        assert torch.equal(value, other_parameters[name]), name
    assert history == other_history


def interrupt_after(monkeypatch, method, count):
    original, calls = getattr(Net, method), [0]

    def wrapper(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] > count:
            raise StoppedError
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Net, method, wrapper)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_training_stopped_before_any_batch_ends_in_the_same_bits(tmp_path, monkeypatch, batch):
    X, y = make_rows()
    whole = MLP(**OPTIONS).fit(X, y)
    model = MLP(checkpoint=tmp_path, save_every=0.0, **OPTIONS)
    with monkeypatch.context() as patch:
        interrupt_after(patch, "train_step", batch)
        with pytest.raises(StoppedError):
            model.fit(X, y)
    assert_same_end(whole, MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y))


@pytest.mark.parametrize("step", range(3))
def test_a_training_stopped_while_validating_ends_in_the_same_bits(tmp_path, monkeypatch, step):
    X, y = make_rows()
    whole = MLP(**OPTIONS).fit(X, y)
    with monkeypatch.context() as patch:
        interrupt_after(patch, "validation_step", step)
        with pytest.raises(StoppedError):
            MLP(checkpoint=tmp_path, save_every=0.0, **OPTIONS).fit(X, y)
    assert_same_end(whole, MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y))


def test_early_stopping_is_the_same_after_a_stop(tmp_path, monkeypatch):
    X, y = make_rows()
    options = OPTIONS | {"max_epochs": 60, "patience": 3, "lr": 0.2}
    whole = MLP(**options).fit(X, y)
    assert 3 < len(whole.net_.history) < 60
    with monkeypatch.context() as patch:
        interrupt_after(patch, "train_step", 3 * (len(whole.net_.history) - 2) + 1)
        with pytest.raises(StoppedError):
            MLP(checkpoint=tmp_path, save_every=0.0, **options).fit(X, y)
    assert_same_end(whole, MLP(checkpoint=tmp_path, **options).fit(X, y))


def test_a_killed_process_is_continued_by_the_next(tmp_path):
    X, y = make_rows()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    script = f"""
import os, signal, sys
import numpy as np
from evenhand.paper.models import MLP
from evenhand.paper.models._net import Net
rows = np.load({str(tmp_path / "rows.npz")!r})
original, calls = Net.train_step, [0]
def train_step(self, *args, **kwargs):
    calls[0] += 1
    if calls[0] == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args, **kwargs)
Net.train_step = train_step
MLP(checkpoint={str(tmp_path / "states")!r}, save_every=0.0, **{OPTIONS!r}).fit(rows["X"], rows["y"])
"""
    paths = [str(Path(checkpoint_module.__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run([sys.executable, "-c", script], env=environment, timeout=900, check=False)
    assert run.returncode == -signal.SIGKILL
    (saved,) = (tmp_path / "states").glob("*.pt")
    assert not torch.load(saved, weights_only=True)["finished"]
    assert_same_end(MLP(**OPTIONS).fit(X, y), MLP(checkpoint=tmp_path / "states", **OPTIONS).fit(X, y))


def test_dying_while_saving_leaves_the_last_whole_state(tmp_path, monkeypatch):
    X, y = make_rows()
    calls = [0]

    def torn(state, file):
        calls[0] += 1
        if calls[0] == 5:
            file.write(b"half")
            raise StoppedError
        torch_save(state, file)

    torch_save = torch.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module.torch, "save", torn)
        with pytest.raises(StoppedError):
            MLP(checkpoint=tmp_path, save_every=0.0, **OPTIONS).fit(X, y)
    assert [path.suffix for path in tmp_path.iterdir()] == [".pt"]
    assert_same_end(MLP(**OPTIONS).fit(X, y), MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y))


def test_a_training_that_has_ended_is_read_back(tmp_path, monkeypatch):
    X, y = make_rows()
    first = MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)
    monkeypatch.setattr(Net, "train_step", None)
    again = MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)
    assert_same_end(first, again)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))


def test_other_data_or_options_are_other_trainings_in_the_same_directory(tmp_path):
    X, y = make_rows()
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X, 1 - y)
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X + 1, y)
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y, sample_weight=1.0 + y)
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y, validation_data=(X, y))
    MLP(checkpoint=tmp_path, **OPTIONS | {"random_state": 1}).fit(X, y)
    MLP(checkpoint=tmp_path, **OPTIONS | {"hidden": 9}).fit(X, y)
    assert len(list(tmp_path.glob("*.pt"))) == 7
    MLP(checkpoint=tmp_path, verbose=0, save_every=9.0, **OPTIONS).fit(X, y)
    assert len(list(tmp_path.glob("*.pt"))) == 7


def test_without_a_seed_the_first_seed_is_kept(tmp_path, monkeypatch):
    X, y = make_rows()
    options = OPTIONS | {"random_state": None}
    with monkeypatch.context() as patch:
        interrupt_after(patch, "train_step", 4)
        with pytest.raises(StoppedError):
            MLP(checkpoint=tmp_path, save_every=0.0, **options).fit(X, y)
    (saved,) = tmp_path.glob("*.pt")
    seed = torch.load(saved, weights_only=True)["seed"]
    resumed = MLP(checkpoint=tmp_path, **options).fit(X, y)
    assert resumed.net_.seed == seed
    monkeypatch.setattr(MLP, "_draw_seed", lambda self: seed)
    assert_same_end(MLP(**options).fit(X, y), resumed)


class WithDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.5)
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, X):
        return (self.linear(self.dropout(X)),)


def test_randomness_inside_the_network_goes_on_where_it_was(tmp_path, monkeypatch):
    X, y = make_rows()
    rows = Examples(Table(X.astype(np.float32)), y[:, None])

    def net(**options):
        with seeded(1):
            module = WithDropout()
        return Net(module, seed=4, max_epochs=2, batch_size=16, lr=0.1, **options)

    whole = net().train(rows, None)
    torch.rand(3)
    checkpoint = Checkpoint(tmp_path, "0" * 64)
    with monkeypatch.context() as patch:
        interrupt_after(patch, "train_step", 6)
        with pytest.raises(StoppedError):
            net(checkpoint=checkpoint, save_every=0.0).train(rows, None)
    torch.rand(11)
    resumed = net(checkpoint=checkpoint).train(rows, None, checkpoint.load())
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name])


def test_a_damaged_checkpoint_is_named_and_nothing_in_it_runs(tmp_path):
    X, y = make_rows()
    MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)
    (saved,) = tmp_path.glob("*.pt")
    whole = saved.read_bytes()
    saved.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=f"{saved.name} cannot be read"):
        MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    saved.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="cannot be read"):
        MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)
    assert not (tmp_path / "sprung").exists()
    foreign = torch.load(_bytes(whole), weights_only=True) | {"key": "another"}
    torch.save(foreign, saved)
    with pytest.raises(InputError, match="belongs to another training"):
        MLP(checkpoint=tmp_path, **OPTIONS).fit(X, y)


def _bytes(content):
    import io

    return io.BytesIO(content)
