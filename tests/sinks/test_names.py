import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.tags import check_tag
from sonde.sinks.names import portable_name, tensorboard_name
from sonde.store.importing.names import meaning

PATHS = st.one_of(
    st.sampled_from(
        (
            "loss",
            "loss/ema",
            "loss/part",
            "val/loss",
            "lr",
            "grad/norm",
            "grad/mean",
            "weight/norm",
            "update/ratio",
            "update/norm",
            "memory/allocated",
            "device/utilisation",
            "grad/histogram",
            "Loss/train",
            "own",
            "own/own",
            "Loss/train/a",
            "Gradients/norm_global",
            "Gradients/per_layer/a/norm",
            "own/Loss/train",
            "_step",
            "act/rms",
            "global_step",
            "Optimization/lr/a",
            "Config",
            "Findings/GRD001",
            "a+b",
            "a-2b",
        )
    ),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*", fullmatch=True),
)
PLACES = st.one_of(
    st.sampled_from(["a", "a/norm", "..", ".", "a 2f.", "/", "a//b", "cuda:0", "é", "blocks.0.weight", "norm", " "]),
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=400),
)
TAGS = st.one_of(PATHS, st.builds(lambda path, place: f"{path}@{place}", PATHS, PLACES)).filter(lambda t: len(t) < 1000)


@given(st.lists(TAGS, unique=True, max_size=30))
def test_no_two_tags_get_the_same_name(tags: list[str]) -> None:
    for tag in tags:
        check_tag(tag)
    for naming in (tensorboard_name, portable_name):
        assert len({naming(tag).text for tag in tags}) == len(tags)


@given(TAGS)
def test_portable_names_are_what_mlflow_takes_and_not_what_wandb_keeps_for_itself(tag: str) -> None:
    name = portable_name(tag).text
    assert re.fullmatch(r"[A-Za-z0-9_./ :-]+", name)  # mlflow.utils.validation
    assert posixpath.normpath(name) == name
    assert not name.startswith(("/", "..", "_"))
    assert 1 <= len(name) <= 250
    assert name != "global_step"


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("loss", "Loss/train"),
        ("loss/ema", "Loss/train_ema"),
        ("val/loss", "Loss/validation"),
        ("grad/norm", "Gradients/norm_global"),
        ("grad/norm@fc.weight", "Gradients/per_layer/fc.weight/norm"),
        ("grad/mean@fc.weight", "Gradients/per_layer/fc.weight/mean"),
        ("grad/std@fc.weight", "Gradients/per_layer/fc.weight/std"),
        ("update/ratio@fc.weight", "Updates/per_layer/fc.weight/ratio"),
        ("update/norm@fc.weight", "Updates/per_layer/fc.weight/update_norm"),
        ("weight/norm@fc.weight", "Updates/per_layer/fc.weight/weight_norm"),
        ("lr", "Optimization/lr"),
        ("update/ratio", "Optimization/update_ratio"),
        ("throughput/tokens_per_s", "Performance/tokens_per_sec"),
        ("weight/norm", "Parameters/norm_global"),
    ],
)
def test_the_layout_is_the_one_that_people_know_and_that_our_own_import_reads_back(tag: str, name: str) -> None:
    assert tensorboard_name(tag).text == portable_name(tag).text == name
    assert meaning(name) == tag


def test_the_rest_of_the_layout_is_there() -> None:
    names = [
        tensorboard_name(tag)
        for tag in ("grad/histogram@a", "device/utilisation", "memory/allocated", "evaluation/train_val_gap")
    ]
    assert [name.text for name in names] == [
        "Gradients_Hist/per_layer/a",
        "Performance/gpu_utilization",
        "Performance/memory_mb",
        "evaluation/train_val_gap",
    ]
    assert [name.factor for name in names] == [1, 1, 1e-6, 1]
    assert tensorboard_name("gradient_monitor/mean_gain").text == "gradient_monitor/mean_gain"
