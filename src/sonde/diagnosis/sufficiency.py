"""Whether a run holds enough for the absence of alarms to mean something."""

from collections.abc import Collection, Iterator, Sequence

_MOST_NAMED = 3


def lacking(num_steps: int, tags: Collection[str], unreadable: Sequence[str]) -> tuple[str, ...]:
    """Why there is not enough to judge, in words; nothing where there is.

    Args:
        num_steps: Steps that were judged.
        tags: Series of the run that have a value.
        unreadable: Tables, or pieces of them, that could not be read.

    Example:
        >>> lacking(500, ["loss", "lr"], [])
        ()
        >>> lacking(3, ["lr"], [])
        ('no loss was recorded',)
    """
    return tuple(_reasons(num_steps, tags, unreadable))


def _reasons(num_steps: int, tags: Collection[str], unreadable: Sequence[str]) -> Iterator[str]:
    if unreadable:
        more = f" and {len(unreadable) - _MOST_NAMED:,} more" if len(unreadable) > _MOST_NAMED else ""
        yield f"damaged tables: {', '.join(unreadable[:_MOST_NAMED])}{more}"
    if not tags:
        yield "nothing was recorded"
        return
    if not any(tag == "loss" or tag.startswith(("loss/part@", "loss@")) for tag in tags):
        yield "no loss was recorded"
    if not num_steps:
        yield "no step was recorded"
