"""Every probe can be switched off by its name: it measures nothing, the run says so, and the others go on."""

import dataclasses
import fnmatch
from pathlib import Path

import pytest
import torch

import sonde
from sonde.config import Probes, effective

from . import loops

NAMES = [item.name for item in dataclasses.fields(Probes) if item.default]
# On a CPU nothing comes of these.
SILENT = {"allocators", "devices", "attention", "second_moments", "preflight", "reductions", "predictiveness"}


def recorded(run: Path, **probes: bool) -> tuple[set[str], dict[str, str]]:
    """The tags of a training with these switches, and what it says is not measured."""
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    settings = effective(folder=run, environment={}).over({"probes": probes, "console": "quiet", "doctor": "off"})
    with loops.watching(net, optimizer, run, settings=settings) as watch:
        for batch in watch.data(loops.batches(4)):
            loss = loops.loss_of(net, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
    found = sonde.load(run)
    said = {event.data["tag"]: event.data["reason"] for event in found.events("not-measured")}
    return {*found.tags(), *found.histogram_tags()}, said


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return recorded(tmp_path_factory.mktemp("switches") / "run")[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_that_is_switched_off_leaves_out_its_own_series_and_says_so(
    name: str, everything: set[str], tmp_path: Path
) -> None:
    tags, said = recorded(tmp_path / "run", **{name: False})
    patterns = [tag for tag, reason in said.items() if reason == f"switched off: `probes.{name}` is false"]
    assert bool(patterns) == (name != "devices")  # which is there with a GPU alone
    gone = {tag for tag in everything if any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns)}
    assert bool(gone) == (name not in SILENT) or name == "spectra"  # which may come after the last step
    assert not tags & gone
    # An effective rate needs a gradient as well.
    others = {tag for tag in everything if not tag.startswith(("spectrum/", "update/effective_lr"))}
    assert others - gone <= tags


def test_a_training_with_every_probe_off_still_has_its_loss(tmp_path: Path) -> None:
    tags, _ = recorded(tmp_path / "run", **dict.fromkeys(NAMES, False))
    assert {"loss", "loss/ema", "time/step"} <= tags
    tags -= {"batch/effective"}  # from the samples that the loop says
    assert not [tag for tag in tags if tag.partition("/")[0] not in ("loss", "time", "throughput", "monitor")]
