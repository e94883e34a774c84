"""The document about series has every tag that may be recorded."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sonde
import sonde.probes
from sonde.probes.activations import Activations
from sonde.probes.allocators import Allocators
from sonde.probes.attention import Attention
from sonde.probes.batches import Batches
from sonde.probes.devices import Devices
from sonde.probes.features import Features
from sonde.probes.flops import Flops
from sonde.probes.gains import Gains
from sonde.probes.hosts import Hosts
from sonde.probes.logits import OutputLogits
from sonde.probes.memory import Memory
from sonde.probes.operators import Operators
from sonde.probes.phases import Phases
from sonde.probes.predictiveness import Predictiveness
from sonde.probes.probe import Probe
from sonde.probes.reductions import Reductions
from sonde.probes.second_moments import SecondMoments
from sonde.probes.settings import Settings
from sonde.probes.spectra import Spectra
from sonde.probes.trivial_loss import TrivialLoss

from . import loops

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-series.md"
# `grad/norm` and `grad/norm@` are two: of all parameters, and of each.
DOCUMENTED = set(re.findall(r"`([a-z]+(?:/[a-z0-9_]+)?@?)[A-Z]*`", PAGE.read_text(encoding="utf-8")))


@pytest.fixture
def probes() -> Iterator[list[Any]]:
    net = loops.model()
    models, optimizers = {"": net}, {"": torch.optim.Adam(net.parameters())}
    made: list[Any] = [
        Activations(models),
        Allocators(list),
        Attention(models),
        Batches(models),
        Devices([]),
        Features(models),
        Flops(models),
        Gains(models),
        Hosts(),
        Operators(torch.device("cpu"), lambda _kind, _data: None),
        OutputLogits(models),
        Memory(models, optimizers),
        Phases(models, torch.device("cpu")),
        Reductions(models),
        Predictiveness(models),
        SecondMoments(optimizers, dict),
        Settings(optimizers, lambda _kind, _data: None),
        Spectra(list),
        TrivialLoss(models),
    ]
    yield made
    for probe in made:
        probe.close()


def without_place(tag: str) -> str:
    path, at, _ = tag.partition("@")
    return path + at


def test_every_tag_that_a_probe_yields_is_documented(probes: list[Any]) -> None:
    for probe in probes:
        assert set(probe.yields) <= DOCUMENTED, type(probe).__name__


def test_no_probe_is_left_out_of_these_tests(probes: list[Any]) -> None:
    modules = [
        importlib.import_module(f"sonde.probes.{info.name}") for info in pkgutil.iter_modules(sonde.probes.__path__)
    ]
    found = {
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing is not Probe and hasattr(thing, "yields")
    }
    assert found == {type(probe) for probe in probes}


def test_every_tag_of_a_watched_training_is_documented(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.AdamW(net.parameters())
    with loops.watching(net, optimizer, tmp_path) as watch:
        for i, batch in enumerate(watch.data(loops.batches(8))):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 2:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            watch.step(loss, parts={"all": loss})
        watch.evaluate(loss=1.0)
        watch.epoch()
    run = sonde.load(tmp_path)
    recorded = {without_place(tag) for tag in (*run.tags(), *run.histogram_tags())}
    assert {"loss/part@", "optimizer/beta2@", "clip/factor", "epoch/time", "act/rms@", "grad/histogram@"} <= recorded
    assert recorded <= DOCUMENTED
