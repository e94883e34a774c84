"""What a page does with a server: asks, and takes binary answers and streams of events apart."""

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import numpy as np
import numpy.typing as npt


class Ask:
    """A client of one server."""

    def __init__(self, client: httpx.Client, *, token: str = "") -> None:
        self.client, self.token = client, token

    @property
    def origin(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def json(self, path: str, **params: Any) -> Any:
        answer = self.client.get(f"/api/{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(self, run: str, path: str = "", **params: Any) -> Any:
        return self.json(f"runs/{quote(run, safe='')}{path}", **params)

    def binary(self, run: str, inside: str, /, **params: Any) -> "Binary":
        answer = self.client.get(f"/api/runs/{quote(run, safe='')}{inside}", params=params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/octet-stream"
        return unpacked(answer.content)

    def note(self, run: str, body: Any, **headers: str) -> httpx.Response:
        sent = {"origin": self.origin, **headers}
        return self.client.post(f"/api/runs/{quote(run, safe='')}/notes", json=body, headers=sent)


class Binary(NamedTuple):
    header: Any
    data: bytes

    def series(self, number: int = 0) -> dict[str, npt.NDArray[np.float64]]:
        about = self.header["series"][number]
        flat = np.frombuffer(self.data, "<f8", about["n"] * 4, about["offset"])
        return dict(zip(about["columns"], flat.reshape(4, -1), strict=True))

    @property
    def matrix(self) -> npt.NDArray[np.float32]:
        shape = self.header["rows"], self.header["columns"]
        return np.frombuffer(self.data, "<f4", shape[0] * shape[1], self.header["offset"]).reshape(shape)


def unpacked(content: bytes) -> Binary:
    (length,) = struct.unpack_from("<I", content)
    assert (4 + length) % 8 == 0
    return Binary(json.loads(content[4 : 4 + length]), content[4 + length :])


class Said(NamedTuple):
    kind: str
    data: Any
    place: str


def events(answer: httpx.Response) -> Iterator[Said]:
    """The events of a stream, as they come."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            fields[key] = value
        elif not line and "event" in fields:
            yield Said(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
            fields = {}
