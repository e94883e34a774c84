"""Unmodified scripts in the style of public ones: the right numbers, nothing printed otherwise, no false finding."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from .bench import Bench

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)


def run(bench: Bench, name: str, *args: object, launcher: Sequence[object] = ()) -> str:
    """Run a script both ways, judged; what it printed."""
    shutil.copy(SCRIPTS / name, bench.folder)
    bare = bench.call(*launcher, name, *args)
    watched = bench.call(*launcher, "-m", "sonde", "run", "--run-dir", "run", name, *args, SONDE_DOCTOR="process")
    assert bare.status == 0, bare.err
    assert (watched.status, watched.out) == (0, bare.out), watched.err
    assert "has failed" not in watched.err
    assert re.search(r"^Sonde: healthy(, with notes,)? after", watched.err, re.MULTILINE), watched.err
    return watched.out


def numbers(pattern: str, text: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


def values(bench: Bench, tag: str) -> list[float]:
    return [float(value) for value in bench.run.series(tag).value]


def test_word_lstm(bench: Bench) -> None:
    out = run(bench, "word_lstm.py", "--words", 4000, "--log-interval", 1, "--hidden", 32)
    assert values(bench, "loss") == pytest.approx(numbers(r"\| loss ([\d.]+)", out), abs=1e-6)
    evaluations = numbers(r"valid loss ([\d.]+)", out) + numbers(r"test loss ([\d.]+)", out)
    assert values(bench, "val/loss") + values(bench, "val/loss_2") == pytest.approx(evaluations, abs=2e-6)
    lr = values(bench, "lr")
    assert lr[:: len(lr) // 3][:3] == pytest.approx([20.0, *numbers(r"lr ([\d.]+)", out)[:2]])
    # What the LSTM remembers from batch to batch is none of the data.
    assert not bench.run.tags("batch/*@1.*")


def test_word_rnn_that_updates_its_weights_by_hand(bench: Bench) -> None:
    out = run(bench, "word_rnn_by_hand.py", "--words", 4000, "--log-interval", 1, "--hidden", 32, "--epochs", 3)
    assert values(bench, "loss") == pytest.approx(numbers(r"\| loss ([\d.]+)", out), abs=1e-6)
    norms = numbers(r"norm ([\d.]+)", out)
    assert values(bench, "grad/norm") == pytest.approx(norms, rel=1e-5, abs=1e-6)
    assert values(bench, "grad/norm_applied") == pytest.approx([min(norm, 0.25) for norm in norms], rel=1e-4)
    rates = numbers(r"lr ([\d.]+)", out)
    assert rates[-1] == rates[0] / 4
    assert values(bench, "lr") == pytest.approx(rates, rel=1e-6)
    evaluations = numbers(r"valid loss ([\d.]+)", out) + numbers(r"test loss ([\d.]+)", out)
    assert values(bench, "val/loss") + values(bench, "val/loss_2") == pytest.approx(evaluations, abs=2e-6)


def test_char_transformer_with_mixed_precision_and_accumulation(bench: Bench) -> None:
    small = ("--width", 32, "--layers", 1, "--context", 16, "--eval-interval", 4, "--eval-batches", 2)
    out = run(bench, "char_transformer.py", "--dtype", "float16", "--steps", 12, "--log-interval", 1, *small)
    num_skipped = len(bench.run.events("skipped-step"))
    printed = numbers(r"iter \d+: loss ([\d.]+)", out)
    assert len(printed) == 12
    assert values(bench, "loss") == pytest.approx(printed[num_skipped:], abs=2e-6)
    assert values(bench, "loss/num_micro") == [2] * (12 - num_skipped)
    assert values(bench, "lr") == pytest.approx(numbers(r"lr ([\d.e+-]+)", out)[num_skipped:], rel=1e-5)
    assert values(bench, "val/loss") == pytest.approx(numbers(r"val loss ([\d.]+)", out), abs=2e-5)
    assert [int(step) for step in bench.run.series("val/loss").step] == [n - num_skipped for n in (4, 8, 12)]


def test_cnn_with_step_lr(bench: Bench) -> None:
    out = run(bench, "cnn_steplr.py", "--log-interval", 1, "--samples", 320, "--batch-size", 32)
    assert values(bench, "loss") == pytest.approx(numbers(r"Loss: ([\d.]+)", out), abs=1e-6)
    assert values(bench, "val/loss") == pytest.approx(numbers(r"Average loss: ([\d.]+)", out), abs=2e-6)
    assert list(bench.run.series("val/loss").step) == [10, 20, 30]
    assert values(bench, "epoch") == [1, 2, 3]
    assert values(bench, "lr")[::10] == pytest.approx([1.0, 0.7, 0.49])


def test_vae_has_a_loss_of_two_terms_and_so_no_validation_loss(bench: Bench) -> None:
    out = run(bench, "vae.py", "--epochs", 2, "--samples", 640, "--batch-size", 128, "--log-interval", 1)
    assert values(bench, "loss") == pytest.approx(numbers(r"\tLoss: ([\d.]+)", out), rel=1e-6)
    assert values(bench, "epoch") == [1, 2]
    assert values(bench, "lr") == pytest.approx([1e-3] * 10)
    assert "val/loss" not in bench.run.tags()
    assert "several parts" in bench.not_measured()["val/loss"]


def test_gan_lists_its_losses_and_sums_those_of_each_optimiser(bench: Bench) -> None:
    out = run(bench, "dcgan.py", "--epochs", 2, "--samples", 160, "--batch-size", 32, "--log-interval", 1)
    assert values(bench, "loss/part@netD") == pytest.approx(numbers(r"Loss_D: ([\d.]+)", out), abs=1e-6)
    assert values(bench, "loss/part@netG") == pytest.approx(numbers(r"Loss_G: ([\d.]+)", out), abs=1e-6)
    real, fake = values(bench, "loss/part@errD_real"), values(bench, "loss/part@errD_fake")
    assert [a + b for a, b in zip(real, fake, strict=True)] == pytest.approx(values(bench, "loss/part@netD"), rel=1e-6)
    both = [d + g for d, g in zip(numbers(r"Loss_D: ([\d.]+)", out), numbers(r"Loss_G: ([\d.]+)", out), strict=True)]
    assert values(bench, "loss") == pytest.approx(both, abs=2e-6)
    assert values(bench, "lr@netD") == values(bench, "lr@netG") == pytest.approx([2e-4] * 10)
    assert values(bench, "epoch") == [1, 2]


def test_ddp_under_torchrun(bench: Bench) -> None:
    out = run(bench, "ddp.py", "--epochs", 2, "--samples", 640, "--log-interval", 1, launcher=TORCHRUN)
    assert values(bench, "loss") == pytest.approx(numbers(r"step \d+: loss ([\d.]+)", out), abs=1e-6)
    assert values(bench, "lr") == pytest.approx(numbers(r"lr ([\d.e+-]+)", out), rel=1e-5)
    assert values(bench, "val/loss") == pytest.approx(numbers(r"test loss ([\d.]+)", out), abs=2e-6)
    assert values(bench, "epoch") == [1, 2]
    ranks = bench.run.ranks()
    assert [len(found.series("loss").step) for found in ranks.values()] == [20, 20]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_lightning_script(bench: Bench, accumulate: int) -> None:
    pytest.importorskip("lightning")
    args = ("--epochs", 2, "--samples", 192, "--log-interval", 1, "--accumulate", accumulate)
    out = run(bench, "lightning_script.py", *args)
    printed = numbers(r"batch \d+ loss ([\d.]+)", out)
    means = [sum(printed[i : i + accumulate]) / accumulate for i in range(0, 12, accumulate)]
    assert values(bench, "loss") == pytest.approx(means, abs=2e-6)
    # The library asks for no batch more than there are, and tries the validation before it trains.
    num = 6 // accumulate
    assert list(bench.run.series("epoch").step) == list(bench.run.series("val/loss").step) == [num, 2 * num]
    assert values(bench, "val/loss") == pytest.approx(numbers(r"val_loss ([\d.]+)", out), abs=2e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_hugging_face_trainer(bench: Bench, accumulate: int) -> None:
    pytest.importorskip("transformers")
    args = ("--sentences", 64, "--batch-size", 8, "--log-interval", 1, "--accumulate", accumulate)
    out = run(bench, "hf_trainer.py", *args)
    assert values(bench, "loss") == pytest.approx(numbers(r" loss ([\d.]+)", out), abs=2e-6)
    assert values(bench, "lr") == pytest.approx(numbers(r"lr ([\d.e+-]+)", out), rel=1e-3)
    assert values(bench, "val/loss") == pytest.approx(numbers(r"eval_loss ([\d.]+)", out), abs=2e-6)
    assert values(bench, "epoch") == [1, 2]
