"""Predicted and real changes of a batch's loss against those of a plain float64 training."""

import copy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sonde

from . import loops

NUM_STEPS = 14


class Trained(NamedTuple):
    run: Path
    tensors: list[Tensor]
    changes: list[tuple[float, float]]
    """What each step should have been predicted to do, and did."""


def trained(run: Path, *, asks: bool) -> Trained:
    """A training with dropout, running statistics, momentum and clipping."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses, changes = [], []
    with loops.watching(net, optimizer, run, settings={"doctor": "off"}, console="quiet") as watch:
        for batch in watch.data(loops.batches(NUM_STEPS)):
            state = torch.get_rng_state()
            loss = loops.loss_of(net, batch)
            loss.backward()
            gradients, before = loops.gradients(net), [p.detach().clone() for p in net.parameters()]
            nn.utils.clip_grad_norm_(net.parameters(), 0.3)
            optimizer.step()
            losses.append(loss.detach())
            after = copy.deepcopy(net)
            now = torch.get_rng_state()
            torch.set_rng_state(state)
            with torch.no_grad():
                made = loops.loss_of(after, batch).double() - loss.detach().double()
            torch.set_rng_state(now)
            moves = [p.detach().double() - q.double() for p, q in zip(net.parameters(), before, strict=True)]
            predicted = sum(float((g.double() * m).sum()) for g, m in zip(gradients, moves, strict=True))
            changes.append((predicted, float(made)))
            again: dict[str, Any] = {"again": partial(loops.loss_of, net, batch)} if asks else {}
            watch.step(loss, **again)
            optimizer.zero_grad()
    return Trained(run, [*losses, *(tensor.clone() for tensor in net.state_dict().values())], changes)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("asked") / "run", asks=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("plain") / "run", asks=False)


def test_changes_and_their_r_squared_are_those_of_the_reference(asked: Trained) -> None:
    run = sonde.load(asked.run)
    predicted, made = run.series("grad/predicted_change"), run.series("grad/loss_change")
    steps = predicted.step.tolist()
    assert steps == list(range(2, NUM_STEPS + 1))  # the first one says how
    wanted = np.array([asked.changes[step - 1] for step in steps])
    np.testing.assert_allclose(predicted.value, wanted[:, 0], rtol=1e-5)
    np.testing.assert_allclose(made.value, wanted[:, 1], rtol=1e-4, atol=1e-6)
    found = run.series("grad/predictiveness")
    assert found.step.tolist() == steps[7:]
    for step, value in zip(found.step.tolist(), found.value.tolist(), strict=True):
        guesses, changes = wanted[: steps.index(step) + 1].T
        r_squared = 1 - np.sum((changes - guesses) ** 2) / np.sum((changes - changes.mean()) ** 2)
        assert value == pytest.approx(r_squared, rel=1e-3, abs=1e-3)


def test_the_training_is_bit_identical(asked: Trained, plain: Trained) -> None:
    for one, other in zip(asked.tensors, plain.tensors, strict=True):
        assert torch.equal(one, other)


def test_no_other_series_notices_the_extra_forwards(asked: Trained, plain: Trained) -> None:
    found, wanted = sonde.load(asked.run), sonde.load(plain.run)
    shared = [tag for tag in wanted.tags() if tag.startswith(("act/", "batch/", "logits/", "grad/", "gain/", "label/"))]
    assert {"act/mean@0", "logits/norm", "grad/norm"} & set(shared) >= {"act/mean@0", "grad/norm"}
    for tag in shared:
        np.testing.assert_array_equal(found.series(tag).value, wanted.series(tag).value, err_msg=tag)
    kinds = [[event.kind for event in run.events()] for run in (found, wanted)]
    assert kinds[0] == kinds[1]


def test_accumulated_gradients_are_not_measured(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run", settings={"doctor": "off"}, console="quiet") as watch:
        for i, batch in enumerate(loops.batches(8)):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
            watch.step(loss, again=partial(loops.loss_of, net, batch))
    run = sonde.load(tmp_path / "run")
    assert not run.tags("grad/pred*")
    said = {event.data["tag"]: event.data["reason"] for event in run.events("not-measured")}
    assert said["grad/predictiveness"] == "gradients are accumulated over several batches"
