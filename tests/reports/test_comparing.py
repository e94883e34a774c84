"""Runs on disk held against each other."""

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import sonde
from sonde.core import strict_json
from sonde.core.errors import TagNotFound
from sonde.diagnosis.divergence import Agreement
from sonde.reports.comparison import ABSENT, verdict
from sonde.reports.html import html, svg
from sonde.reports.markdown import markdown
from sonde.reports.sections.comparison import charts, compared


def _curve(folder: Path, *, seed: int = 0, shift: float = 0.0, num: int = 400, config: Any = None) -> Path:
    random = np.random.default_rng(seed)
    with sonde.record(folder, config=config) as writer:
        for step in range(1, num + 1):
            loss = 2 / (1 + step / 50) + 0.05 * random.normal() + shift * (step > num // 2)
            writer.log({"loss": loss}, step=step)
    return folder


def _train(folder: Path, *, width: int = 8, kick_at: int = 0, num: int = 40) -> Path:
    """A real training; at one step the gradient of a layer is changed by a hair."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sonde.watch(model, optimizer, run=folder, config={"width": width}, console="quiet", strict=True) as watch:
        watch.burst(num)
        for step in range(1, num + 1):
            loss = model(torch.randn(16, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if step == kick_at:
                assert isinstance(model[2].weight.grad, torch.Tensor)
                model[2].weight.grad.mul_(1.0001)
            optimizer.step()
            watch.step(loss, samples=16)
    return folder


def test_a_run_that_goes_apart_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    paths = [_curve(tmp_path / "a"), _curve(tmp_path / "b", seed=1), _curve(tmp_path / "c", seed=2, shift=-0.5)]
    found = sonde.compare(*paths)
    same, apart = found.against
    assert same.contrast.separation is None
    assert apart.contrast.separation is not None
    assert abs(apart.contrast.separation.since - 201) < 15
    assert apart.contrast.separation.difference == pytest.approx(-0.5, abs=0.05)
    assert "c  separates at step" in str(found)
    assert "b  no lasting separation beyond noise" in str(found)


def test_only_settings_that_differ_are_listed_and_what_is_absent_is_not_null(tmp_path: Path) -> None:
    first = {"lr": 0.1, "model": {"width": 8, "bias": None}, "seed": 0, "betas": [0.9, 0.99]}
    second = {"lr": 0.1, "model": {"width": 16}, "betas": [0.9, 0.95], "note": math.nan}
    found = sonde.compare(_curve(tmp_path / "a", config=first), _curve(tmp_path / "b", config=second))
    listed = {setting.key: setting.values for setting in found.settings if setting.key.startswith("config.")}
    assert listed == {
        "config.model.width": (8, 16),
        "config.seed": (0, ABSENT),
        "config.betas": ([0.9, 0.99], [0.9, 0.95]),
        "config.note": (ABSENT, "NaN"),
    }
    shown = {setting["key"]: setting for setting in found.to_json()["settings"]}
    assert shown["config.seed"] == {"key": "config.seed", "values": [0, None], "present": [True, False]}


def test_a_rerun_with_the_same_seed_is_identical_to_the_bit(tmp_path: Path) -> None:
    (other,) = sonde.compare(_train(tmp_path / "a"), _train(tmp_path / "b")).against
    assert (other.whole.course, other.layers.course) == (Agreement.IDENTICAL, Agreement.IDENTICAL)
    assert other.layers.num_values > 1000
    assert other.parameters == ()


def test_a_hair_in_one_gradient_is_found_at_its_step_and_tensor(tmp_path: Path) -> None:
    found = sonde.compare(_train(tmp_path / "a"), _train(tmp_path / "b", kick_at=25), tolerance=0.01)
    (other,) = found.against
    assert other.layers.course is Agreement.IDENTICAL_UNTIL
    assert other.layers.exact is not None
    assert (other.layers.exact.step, other.layers.exact.tag) == (25, "grad/norm@2.weight")
    assert other.layers.exact.second == pytest.approx(other.layers.exact.first * 1.0001, rel=1e-5)
    assert other.layers.beyond is None  # a hair stays a hair in forty steps of this model
    assert "identical to the bit before step 25; first grad/norm@2.weight" in str(found)


def test_another_width_is_a_changed_model_and_differs_from_the_start(tmp_path: Path) -> None:
    found = sonde.compare(_train(tmp_path / "a"), _train(tmp_path / "b", width=16))
    (other,) = found.against
    assert {change.name for change in other.parameters} == {"0.weight", "0.bias", "2.weight"}
    assert "model of b\n  0.weight  8×4 → 16×4\n  0.bias  8 → 16\n  2.weight  2×8 → 2×16\n" in str(found)
    assert "<li>0.weight  8×4 → 16×4</li>" in html(compared(found))
    told = found.to_json()["against"][0]["parameters"][0]
    assert told == {
        "name": "0.weight",
        "change": "changed",
        "shapes": [[8, 4], [16, 4]],
        "dtypes": ["float32", "float32"],
        "trainable": [True, True],
    }
    assert other.layers.course is Agreement.FROM_START


def test_the_figures_are_those_of_the_series(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "a") as writer:
        for step in range(1, 101):
            values = {"loss": float(101 - step), "grad/norm": float(step), "lr": 0.1 if step < 50 else 0.01}
            writer.log(values, step=step)
            if step % 10 == 0:
                values = {"val/loss": abs(step - 70.0), "gain/mean": 1.0 + step / 100}
                writer.log(values, step=step, table="evaluation")
    found = sonde.compare(tmp_path / "a", tmp_path / "a").variants[0].health
    assert (found.steps, found.ending, found.lost_step) == (100, "finished", None)
    assert (found.final, found.best, found.gradient_norm) == (3.0, 3.0, 50.5)
    assert (found.validation, found.validation_best, found.validation_best_step) == (30.0, 0.0, 70)
    assert found.lr_highest == pytest.approx(0.1)
    assert found.gain_mean == pytest.approx(1.55)
    assert found.gain_sd == pytest.approx(np.std(np.arange(1, 11) / 10, ddof=1))
    assert (found.update_ratio, found.tokens_per_s) == (None, None)


def test_alarms_are_those_of_the_diagnosis(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "b") as writer:
        for step in range(1, 301):
            writer.log({"loss": math.nan if step > 200 else 2 / (1 + step / 50)}, step=step)
    found = sonde.compare(_curve(tmp_path / "a"), tmp_path / "b")
    alarms = {finding.code for finding in sonde.diagnose(tmp_path / "b") if finding.severity.is_alarm}
    assert alarms
    assert set(found.variants[1].health.alarms) == alarms
    assert found.variants[1].health.lost_step == 201


def test_curves_are_aligned_by_samples_and_time_on_request(tmp_path: Path) -> None:
    for name, samples in (("small", 8.0), ("large", 32.0)):
        with sonde.record(tmp_path / name) as writer:
            for step in range(1, 201):
                values = {"loss": 100 / (100 + samples * step), "batch/samples": samples}
                writer.log(values, step=step, time=1e9 + samples * step)
    small, large = tmp_path / "small", tmp_path / "large"
    by_samples = sonde.compare(small, large, by="samples")
    np.testing.assert_allclose(by_samples.against[0].contrast.difference, 0, atol=0.02)  # a line between points
    assert by_samples.variants[1].curve.x[-1] == 32 * 200
    by_step = sonde.compare(small, large)
    assert by_step.against[0].contrast.separation is not None
    assert np.diff(sonde.compare(small, large, by="time").variants[0].curve.x) == pytest.approx(8.0)


def test_what_cannot_be_aligned_or_compared_is_said(tmp_path: Path) -> None:
    a, b = _curve(tmp_path / "a"), _curve(tmp_path / "b")
    with pytest.raises(TagNotFound, match="does not say how many tokens"):
        sonde.compare(a, b, by="tokens")
    with pytest.raises(TagNotFound, match="'loss'"):
        sonde.compare(a, b, tag="lsos")
    with pytest.raises(ValueError, match="by"):
        sonde.compare(a, b, by="epochs")
    with pytest.raises(ValueError, match="tolerance"):
        sonde.compare(a, b, tolerance=-1.0)


def test_runs_with_nothing_in_common_and_empty_ones_are_compared_all_the_same(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "empty"):
        pass
    with sonde.record(tmp_path / "other") as writer:
        writer.log({"accuracy": 0.5}, step=7)
    found = sonde.compare(_curve(tmp_path / "a", num=10), tmp_path / "empty", tmp_path / "other")
    assert [other.contrast.num_points for other in found.against] == [0, 0]
    assert str(found).count("the runs have no common points") == 2
    ElementTree.fromstring(svg(*charts(found)))


def test_a_live_run_is_compared_as_far_as_it_got(tmp_path: Path) -> None:
    done = _curve(tmp_path / "done")
    with sonde.record(tmp_path / "live") as writer:
        for step in range(1, 101):
            writer.log({"loss": 1.0}, step=step)
        writer.flush()
        found = sonde.compare(done, tmp_path / "live")
    assert found.variants[1].health.ending == "live"
    assert found.against[0].contrast.num_points == 100


def test_the_windows_of_a_long_run_miss_no_step(tmp_path: Path) -> None:
    for name, odd in (("a", 0.0), ("b", 1.0)):
        with sonde.record(tmp_path / name) as writer:
            for step in range(1, 1501):
                writer.log({"loss": 1.0, "grad/norm@w": 2.0 + odd * (step == 1024)}, step=step)
    (other,) = sonde.compare(tmp_path / "a", tmp_path / "b").against
    assert other.whole.course is Agreement.IDENTICAL
    assert other.layers.exact is not None
    assert other.layers.exact.step == 1024  # where the second window begins
    assert other.whole.num_values == 1500


def test_json_is_strict_and_holds_everything(tmp_path: Path) -> None:
    found = sonde.compare(_curve(tmp_path / "a"), _curve(tmp_path / "b", shift=1.0))
    shown = strict_json.loads(strict_json.dumps(found.to_json()))
    assert (shown["schema"], shown["tag"], shown["by"]) == (1, "loss", "step")
    assert [run["label"] for run in shown["runs"]] == ["a", "b"]
    (other,) = shown["against"]
    assert other["curves"]["separation"]["difference"] == pytest.approx(1.0, abs=0.1)
    assert len(other["curves"]["at"]) == len(other["curves"]["scatter"])
    assert other["divergence"]["whole"]["course"] == "identical-until"
    assert other["divergence"]["whole"]["exact"]["step"] == 201


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    found = sonde.compare(_curve(tmp_path / "x" / "run"), _curve(tmp_path / "y" / "run"))
    assert [variant.label for variant in found.variants] == [str(tmp_path / "x/run"), str(tmp_path / "y/run")]


def test_names_in_a_run_neither_steer_the_terminal_nor_the_page(tmp_path: Path) -> None:
    config = {"<script>alert(1)</script>": "\x1b[31m\nred"}
    renamed = _curve(tmp_path / "a").rename(tmp_path / "a\x1b")
    found = sonde.compare(renamed, _curve(tmp_path / "<b>&", config=config))
    assert "\x1b" not in str(found)
    ElementTree.fromstring(svg(*charts(found)))
    page = html(compared(found))
    assert page.count("<script") == 1  # ours
    assert "&lt;b&gt;&amp;" in page


def test_the_picture_has_a_curve_for_each_run_and_marks_the_separation(tmp_path: Path) -> None:
    paths = [_curve(tmp_path / "a"), _curve(tmp_path / "b", seed=1), _curve(tmp_path / "c", seed=2, shift=-0.5)]
    picture = svg(*charts(sonde.compare(*paths)))
    root = ElementTree.fromstring(picture)
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a (reference)", "b", "c", "loss"} <= set(texts)
    assert "c apart since 201" in texts
    assert "nan" not in picture


def test_both_forms_of_the_document_have_everything_that_is_printed(tmp_path: Path) -> None:
    lost = _curve(tmp_path / "lost")
    with sonde.record(tmp_path / "lost2", config={"lr": 0.1}) as writer:
        for step in range(1, 401):
            writer.log({"loss": 1.0 if step < 300 else math.nan, "grad/norm": 2.0}, step=step)
    found = sonde.compare(lost, tmp_path / "lost2")
    page, text = html(compared(found)), markdown(compared(found))
    for said in (verdict(found, found.against[0]), "gradient norm", "config.lr", "First difference"):
        assert said in page
        assert said in text
    assert re.search(r"×{10,}  lost2", text)
    assert '<strong class="named edge-series-1">lost2</strong>' in page
    assert charts(found)[0].curves[1].lost.tolist() == list(range(300, 401))
