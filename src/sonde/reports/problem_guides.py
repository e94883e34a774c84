"""A guide for each of six problems, and which rule's findings open which."""

from collections.abc import Mapping
from importlib.resources import files

from sonde.rules.catalogue import rule_of

_OPENED_BY: Mapping[str, tuple[str, ...]] = {
    "loss-not-falling": ("LOS", "DAT", "GRD", "LOP", "SCH", "UPD"),
    "loss-spike": ("OPT",),
    "validation-rising": ("GEN",),
    "layer-not-learning": (),
    "explosion": ("ACT", "ATT", "NUM", "WGT"),
    "vanishing": (),
}
"""Families of rules by guide; a rule may name another one, its `guide`."""

GUIDES = tuple(_OPENED_BY)
"""The names of all guides."""

WITHOUT = ("DST", "SYS")
"""Families that no guide is for: speed, memory and ranks are no faults of learning."""

_GUIDE_OF = {family: name for name, families in _OPENED_BY.items() for family in families}


def guide_of(code: str) -> str:
    """The guide that fits a rule's findings; "" where there is none.

    Example:
        >>> guide_of("GRD001"), guide_of("GRD003"), guide_of("SYS001")
        ('explosion', 'vanishing', '')
    """
    named = getattr(rule_of(code), "guide", "")
    return named if named in GUIDES else _GUIDE_OF.get(code[:3], "")


def text(name: str) -> str:
    """A guide as Markdown.

    Example:
        >>> text("vanishing").splitlines()[0]
        '# Gradients vanish'
    """
    return files("sonde.reports").joinpath("guides", f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    """What a guide is about.

    Example:
        >>> title("loss-spike")
        'The loss jumps'
    """
    return text(name).partition("\n")[0].removeprefix("# ")
