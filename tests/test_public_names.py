"""What is public, and nothing else."""

import inspect

import pytest

import sonde

PUBLIC = [
    "Run",
    "Watch",
    "Writer",
    "__version__",
    "calibrate",
    "compare",
    "diagnose",
    "explain",
    "export",
    "import_csv",
    "import_mlflow",
    "import_tensorboard",
    "import_wandb",
    "load",
    "record",
    "report",
    "runs",
    "watch",
]


def test_the_public_names_are_these() -> None:
    assert sorted(sonde.__all__) == PUBLIC
    assert dir(sonde) == sonde.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sonde, name) is not None


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="record"):
        sonde.recrod  # noqa: B018


@pytest.mark.parametrize("thing", [sonde.Run, sonde.Watch, sonde.Writer], ids=lambda thing: thing.__name__)
def test_public_classes_are_typed(thing: type) -> None:
    for name, member in inspect.getmembers(thing, inspect.isfunction):
        if not name.startswith("_"):
            signature = inspect.signature(member)
            assert signature.return_annotation is not inspect.Signature.empty, name
            untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
            assert not untyped, f"{name}: {untyped}"
