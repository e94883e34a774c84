"""A guide for each of six problems, and which rule's findings open which."""

from collections.abc import Mapping
from importlib.resources import files

_OPENED_BY: Mapping[str, tuple[str, ...]] = {
    "loss-not-falling": (
        "LOS",
        "DAT",
        "GRD",
        "LOP",
        "SCH",
        "OPT001",
        "UPD",
        "ACT006",
        "GEN002",
        "GEN005",
        "GEN006",
        "WGT004",
    ),
    "loss-spike": (
        *("LOS002", "LOS010", "LOS012", "GRD002", "DAT002", "DAT004", "SCH001", "SCH004", "SCH006", "SCH009"),
        *("OPT", "UPD004", "WGT002", "WGT008"),
    ),
    "validation-rising": ("GEN", "LOP005", "LOP006", "LOP013"),
    "layer-not-learning": (
        *("ACT001", "GRD006", "GRD007", "GRD014", "LOP003", "LOP004", "LOP011", "LOP012", "UPD003", "UPD005", "WGT005"),
    ),
    "explosion": (
        *("ACT", "ATT", "NUM", "WGT", "DAT001", "GRD001", "GRD005", "GRD008", "LOS001", "LOS003", "LOS013"),
        *("OPT003", "SCH007", "UPD001"),
    ),
    "vanishing": ("ACT002", "ACT005", "GRD003", "GRD004", "NUM001"),
}
"""Codes of rules and families of codes by guide: a whole code goes before its family."""

GUIDES = tuple(_OPENED_BY)
"""The names of all guides."""

WITHOUT = ("DST", "SYS")
"""Families that no guide is for: speed, memory and ranks are no faults of learning."""

_GUIDE_OF = {code: name for name, codes in _OPENED_BY.items() for code in codes}


def guide_of(code: str) -> str:
    """The guide that fits a rule's findings; "" where there is none.

    Example:
        >>> guide_of("GRD001"), guide_of("GRD003"), guide_of("SYS001")
        ('explosion', 'vanishing', '')
    """
    return _GUIDE_OF.get(code) or _GUIDE_OF.get(code[:3], "")


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
