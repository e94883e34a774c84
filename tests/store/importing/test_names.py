from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.tags import check_tag
from sonde.store.importing.names import assign, meaning, safe


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("loss", "loss train_loss Loss/train train/loss training_loss trainLoss loss/total train_loss_step epoch_loss"),
        ("loss", "train/step_loss Train/Step_Loss train/loss_step"),
        ("val/loss", "val_loss Loss/validation eval/loss eval_loss valid_loss test_loss validation/epoch_loss valLoss"),
        (
            "lr",
            "lr learning_rate Optimization/lr train/learning_rate lr-AdamW lr-SGD/pg1 optimizer/lr lr/0 learningRate",
        ),
        ("grad/norm", "grad_norm Gradients/norm_global train/grad_norm grad_2.0_norm_total gnorm gradient_norm"),
        ("val/accuracy", "val_acc val/accuracy eval_accuracy Accuracy/validation test_accuracy validation/acc"),
        ("epoch", "epoch Epoch train/epoch"),
        ("loss/ema", "Loss/train_ema loss/ema train/step_loss_ema Train/Step_Loss_EMA"),
        (
            "grad/norm",
            "gradients/norm gradients/global/norm gradients/global_norm gradients/total/norm Grad/Norm/Total",
        ),
        ("update/ratio", "Optimization/update_ratio update/ratio updates/ratio"),
        ("throughput/tokens_per_s", "Performance/tokens_per_sec tokens_per_second"),
        ("val/bleu", "eval_bleu val/bleu bleu/test"),
    ],
)
def test_what_others_call_a_quantity_is_known(tag: str, names: str) -> None:
    assert {name: meaning(name) for name in names.split()} == dict.fromkeys(names.split(), tag)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("grad_2.0_norm/blocks.0.weight", "grad/norm@blocks.0.weight"),
        ("Gradients/per_layer/module.fc.weight/std", "grad/std@fc.weight"),
        ("Updates/per_layer/fc.weight/ratio", "update/ratio@fc.weight"),
        ("Updates/per_layer/fc.weight/update_norm", "update/norm@fc.weight"),
        ("Gradients/per_layer/a/b/norm", "grad/norm@a/b"),
        ("gradients/fc1/norm", "grad/norm@fc1"),
        ("gradients/blocks.0.attn.qkv.weight/norm", "grad/norm@blocks.0.attn.qkv.weight"),
        ("gradients/module/blocks/0/attn/weight/std", "grad/std@blocks.0.attn.weight"),
        ("Gradients/FC.weight/L2_Norm", "grad/norm@FC.weight"),
        ("train/grad/fc.bias/mean", "grad/mean@fc.bias"),
        ("gradients/norm/fc.weight", "grad/norm@fc.weight"),
        ("grad_norm/encoder/0/weight", "grad/norm@encoder.0.weight"),
        ("updates/fc.weight/ratio", "update/ratio@fc.weight"),
        ("Updates/net/0/weight/Ratio", "update/ratio@net.0.weight"),
        ("update/fc.weight/norm", "update/norm@fc.weight"),
        ("weights/fc/weight/norm", "weight/norm@fc.weight"),
        ("grad/norm@fc.weight", "grad/norm@fc.weight"),
        ("lr@1", "lr@1"),
    ],
)
def test_layers_keep_their_names(name: str, tag: str) -> None:
    assert meaning(name) == tag


@pytest.mark.parametrize(
    "name",
    [
        "kl_loss",
        "lr-SGD-momentum",
        "train_accuracy",
        "lr/1",
        "mood",
        "evaluation/gap",
        "test",
        "gradients/fc/cosine",
    ],
)
def test_what_only_looks_alike_is_not_taken_for_it(name: str) -> None:
    assert meaning(name) is None


def test_averages_do_not_take_the_place_of_the_series_itself() -> None:
    names = assign({"train_loss_epoch": 3, "train_loss_step": 90, "val_loss_step": 30, "val_loss_epoch": 3})
    assert names.tags == {
        "train_loss_step": "loss",
        "val_loss_epoch": "val/loss",
        "train_loss_epoch": "train_loss_epoch",
        "val_loss_step": "val_loss_step",
    }
    assert names.known == {"train_loss_step", "val_loss_epoch"}


def test_validation_comes_before_test_however_many_numbers_there_are() -> None:
    assert assign({"test_loss": 9, "val_loss": 2}).tags["val_loss"] == "val/loss"


def test_what_the_caller_says_comes_first() -> None:
    tags = assign({"loss": 10, "my": 10}, {"my": "loss"}).tags
    assert tags == {"my": "loss", "loss": "loss_2"}


@pytest.mark.parametrize("wrong", [{"nothing": "loss"}, {"a": "no tag"}, {"a": "loss", "b": "loss"}])
def test_a_wrong_map_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(FormatError):
        assign({"a": 1, "b": 1}, wrong)


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 9), max_size=20))
def test_every_name_becomes_a_tag_of_its_own(counts: dict[str, int]) -> None:
    tags: Any = assign(counts).tags
    assert set(tags) == set(counts)
    assert len(set(tags.values())) == len(tags)
    for tag in tags.values():
        check_tag(tag)


@pytest.mark.parametrize("tag", ["loss", "grad/norm_applied", "time/data_wait", "epoch/time", "a.b+c-d/e_2"])
def test_what_is_a_tag_stays_as_it_is(tag: str) -> None:
    assert safe(tag) == tag
