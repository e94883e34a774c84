"""Requests that are not answered: what is wrong, what is allowed, and what to do."""

from sonde.core.strict_json import Json


class Refusal(Exception):
    """Ends a request.

    Args:
        status: The HTTP status: 400, 401, 403, 404, 405, 413, 429 or 503.
        what: What is wrong.
        allowed: What is allowed.
        do: What to do.
    """

    def __init__(self, status: int, what: str, *, allowed: str = "", do: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.allowed, self.do = status, what, allowed, do

    def to_json(self) -> dict[str, Json]:
        """The body of the answer."""
        return {"schema": 1, "error": {"what": self.what, "allowed": self.allowed, "do": self.do}}
