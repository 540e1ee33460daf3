"""What the server may be told. Every limit is on by default."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from ink2tex.errors import RecipeError
from ink2tex.settings import from_mapping, to_mapping

#: The environment variable that hands the settings to worker processes.
ENVIRONMENT: Final = "INK2TEX_SERVER"


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server; plain values, so that they can be handed to other processes."""

    #: A model folder or a checkpoint; the weights of the package when left out.
    model: str | None = None
    decode: str | None = None
    beam: int | None = None
    #: Cores that recognising may use in this process.
    threads: int = 1

    #: Requests (or items of a batch) that are accepted and not yet answered; more are told to come back.
    queue: int = 64
    #: The most inputs that are read together.
    batch: int = 16
    #: How long the first request of a batch waits for others.
    gather_ms: float = 4.0
    #: A request that takes longer is given up.
    deadline: float = 30.0

    max_body: int = 10 * 2**20
    #: Bytes of all bodies together that are being received.
    max_bodies: int = 256 * 2**20
    max_pixels: int = 40_000_000
    max_strokes: int = 2_000
    max_points: int = 100_000
    #: Items of one call of `/v1/recognize/batch`.
    max_items: int = 32

    #: Whoever calls `/v1` and `/metrics` has to know it.
    token: str | None = None
    #: Origins of other pages that may call the API; `*` is all of them.
    cors: tuple[str, ...] = ()
    #: The file through which several workers count together.
    metrics_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "queue", "batch", "max_body", "max_pixels", "max_strokes", "max_points", "max_items"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} is {getattr(self, name)}; give a number above 0")
        if not 0 <= self.gather_ms <= 1000:
            raise RecipeError(f"gather_ms is {self.gather_ms}; give 0 to 1000 milliseconds")
        if not self.deadline > 0:
            raise RecipeError(f"deadline is {self.deadline}; give a number of seconds above 0")
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii() or " " in self.token):
            raise RecipeError("the token needs at least 8 ASCII characters and no space; make a longer one")

    def to_text(self) -> str:
        """For an environment variable."""
        return json.dumps(to_mapping(self))

    @classmethod
    def from_text(cls, text: str) -> ServerSettings:
        """The inverse of `to_text`."""
        return from_mapping(cls, json.loads(text), "server")
