"""Load on a server: many clients at once, each with one request after the other, bounded in time.

    python benchmarks/load.py http://127.0.0.1:8000 --clients 200 --seconds 60

prints the throughput of one request at a time, then that of all clients, the waiting times and the statuses. A client
that is told to come back (429) does so when it is told to. Nothing but the standard library makes the load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Load:
    """What came of it."""

    seconds: float = 0.0
    #: Answers by status; 0 are requests without any answer (nobody listens any more).
    statuses: Counter[int] = field(default_factory=Counter)
    #: Answers that began and did not end.
    cut_off: int = 0
    #: Seconds to a 200.
    waits: list[float] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Requests that got no answer, a part of one, or a 5xx."""
        return self.cut_off + sum(n for status, n in self.statuses.items() if status == 0 or status >= 500)

    @property
    def rate(self) -> float:
        """Expressions read in a second."""
        return self.statuses[200] / self.seconds

    def __str__(self) -> str:
        waits = sorted(self.waits) or [0.0]
        middle, late = waits[len(waits) // 2], waits[int(0.99 * (len(waits) - 1))]
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return (
            f"{self.rate:7.1f} read/s over {self.seconds:.1f} s; median {1000 * middle:.0f} ms, "
            f"99 % {1000 * late:.0f} ms; answers {statuses}; cut off {self.cut_off}"
        )


def bodies_of(drawings: Sequence[Sequence[Sequence[Sequence[float]]]]) -> list[bytes]:
    """The bodies of requests for drawings of strokes."""
    return [json.dumps({"strokes": strokes}).encode() for strokes in drawings]


def run(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    seconds: float,
    query: str = "",
    after: tuple[float, Callable[[], None]] | None = None,
) -> Load:
    """Make `clients` ask for `seconds`. `after`: something to do after some seconds."""
    return asyncio.run(_run(url, bodies, clients, seconds, query, after))


async def _run(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    seconds: float,
    query: str,
    after: tuple[float, Callable[[], None]] | None,
) -> Load:
    parts = urlsplit(url)
    load = Load()
    start = time.monotonic()
    if after is not None:
        asyncio.get_running_loop().call_later(*after)

    async def client(number: int) -> None:
        turn = number
        while time.monotonic() - start < seconds:
            body = bodies[turn % len(bodies)]
            turn += 1
            asked = time.monotonic()
            status, pause = await _ask(parts.hostname or "127.0.0.1", parts.port or 80, query, body, load)
            load.statuses[status] += 1
            if status == 200:
                load.waits.append(time.monotonic() - asked)
            elif status == 0:
                return
            else:
                left = start + seconds - time.monotonic()
                await asyncio.sleep(max(0.0, min(pause, left)))

    await asyncio.gather(*(client(number) for number in range(clients)))
    load.seconds = time.monotonic() - start
    return load


async def _ask(host: str, port: int, query: str, body: bytes, load: Load) -> tuple[int, float]:
    """One request on a connection of its own; its status, 0 without an answer, and when to come back."""
    head = (
        f"POST /v1/recognize{query} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = b""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(head.encode() + body)
            await writer.drain()
            answer = await reader.read(-1)
        finally:
            writer.close()
    except OSError:
        pass
    top, _, rest = answer.partition(b"\r\n\r\n")
    if not top:
        return 0, 0.0
    status, *lines = top.split(b"\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(b":") for line in lines)}
    if len(rest) != int(headers.get(b"content-length", len(rest))):
        load.cut_off += 1
    return int(status.split()[1]), float(headers.get(b"retry-after", 0.2))


def main() -> None:
    from ink2tex.ink import read_inkml

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--ink", type=Path, default=Path(__file__).parents[1] / "examples", help="folder of InkML files"
    )
    parser.add_argument("--query", default="", help="options, such as '?beam=3&decode=l2r'")
    arguments = parser.parse_args()
    bodies = bodies_of(
        [[s.tolist() for s in read_inkml(path).strokes] for path in sorted(arguments.ink.glob("*.inkml"))]
    )
    one = run(arguments.url, bodies, 1, min(10.0, arguments.seconds), arguments.query)
    print(f"one at a time  {one}")
    many = run(arguments.url, bodies, arguments.clients, arguments.seconds, arguments.query)
    print(f"{arguments.clients:4d} clients   {many}")
    print(f"{many.rate / one.rate:.2f} times the throughput, {many.failed} failed")


if __name__ == "__main__":
    main()
