"""What labels and judgements need to know of trainings that the space has not drawn (`benchmarks.faults.wild`)."""

from typing import Any

from benchmarks.faults.space.faults.catalogue import FAULTS
from benchmarks.faults.space.recipe import from_json
from benchmarks.faults.wild import faults


def is_wild(family: str) -> bool:
    """Whether a family is not of the space."""
    return family.startswith(faults.WILD)


def goal(family: str) -> float:
    """The quality that a wild family's trainings are to reach."""
    return _kind(family).goal


def fault_named(family: str, name: str) -> Any:
    """A fault of the family's own catalogue; None for none."""
    return (faults.FAULTS if is_wild(family) else FAULTS).get(name)


def onset_step(family: str, name: str, recipe: dict[str, Any]) -> int:
    """The step at which a fault begins to act in the training of a recipe."""
    if is_wild(family):
        return faults.FAULTS[name].onset_step(_kind(family).steps)
    return FAULTS[name].onset(from_json(recipe))


def _kind(family: str) -> Any:
    import benchmarks.faults.wild.kinds  # noqa: F401
    from benchmarks.faults.wild.kind import KINDS

    return KINDS[family.removeprefix(faults.WILD)]
