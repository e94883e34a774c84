"""What a channel is: settings, and one way to send a bulletin."""

from typing import NamedTuple, Protocol

from sonde.alerts.notices import Bulletin


class Delivered(NamedTuple):
    """The bulletin has arrived."""

    remark: str = ""
    """What the user should know all the same, such as a receiver who was refused."""


class TryAgain(NamedTuple):
    """It did not arrive, and may later: nobody answers, or the other side has trouble or too much to do."""

    reason: str
    after_s: float = 0.0
    """Not sooner than this: the other side's wish."""


class Refused(NamedTuple):
    """It did not arrive, and the same again would not: the address, the login or the message is wrong."""

    reason: str


Outcome = Delivered | TryAgain | Refused


class Channel(Protocol):
    """A frozen dataclass whose fields are its settings, by their names and types in `[alerts.<channel>]`.

    Fields are of type `str`, `float`, `int`, `bool`, `tuple[str, ...]`, `Secret` or `tuple[Secret, ...]`; what must
    not be shown is a `Secret`. What is wrong with them is a `ValueError` at construction.
    """

    def send(self, bulletin: Bulletin) -> Outcome:
        """Send it now, on the calling thread, in a bounded time; what goes wrong is an outcome, not an exception.

        Reasons are logged: they must hold no secret.
        """


def attempt(channel: Channel, bulletin: Bulletin) -> Outcome:
    """What comes of sending it once, whatever the channel does."""
    try:
        return channel.send(bulletin)
    except Exception as error:  # a plug-in's fault, or ours; its message may hold a secret
        return Refused(f"it fails with {type(error).__name__}")


def wait_at_most(timeout_s: float) -> None:
    """Refuse a time-out that is none."""
    if not 0 < timeout_s <= 600:
        raise ValueError(f"`timeout_s` must be above 0 and at most 600 seconds, got {timeout_s}.")
