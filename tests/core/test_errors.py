import inspect
import pickle
import re

import pytest

from sonde.core import errors
from sonde.core.errors import FormatError, MissingExtra, RunNotFound, SondeError, StoreError, TagNotFound

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


def drawn_tree() -> dict[str, str]:
    """Child → parent, as drawn at the top of the file."""
    parents: dict[str, str] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").split("```")[1].strip().splitlines():
        match = re.match(r"([│├└─ ]*)(\w+)", line)
        assert match
        depth = len(match[1]) // 4
        branch[depth:] = [match[2]]
        if depth:
            parents[match[2]] = branch[depth - 1]
    return parents


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn_tree() == {kind.__name__: kind.__bases__[0].__name__ for kind in ALL if kind is not SondeError}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_prints_its_message_as_it_is_and_survives_a_process_boundary(
    kind: type[SondeError],
) -> None:
    error = kind("no series 'loss'; did you mean 'loss/ema'?")
    assert str(error) == "no series 'loss'; did you mean 'loss/ema'?"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert issubclass(kind, SondeError)


@pytest.mark.parametrize(
    ("kind", "familiar"),
    [
        (TagNotFound, KeyError),
        (FormatError, ValueError),
        (MissingExtra, ImportError),
        (RunNotFound, StoreError),
    ],
)
def test_an_error_is_caught_by_whoever_expects_the_familiar_kind(
    kind: type[SondeError], familiar: type[Exception]
) -> None:
    with pytest.raises(familiar):
        raise kind("message")


def test_an_error_without_a_message_prints_nothing() -> None:
    assert str(TagNotFound()) == ""
