"""Hostile bodies against a server that runs: `python scripts/fuzz.py http://127.0.0.1:8000 --count 2000`.

Every answer must be a 4xx with a problem in it. With --pid the memory of the server is printed as it goes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hostile import bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pid", type=int, help="the server's process")
    arguments = parser.parse_args()
    seen: Counter[int] = Counter()
    wrong = 0
    with httpx.Client(base_url=arguments.url, timeout=60) as client:
        for number, (kind, body) in enumerate(islice(bodies(arguments.seed), arguments.count)):
            answer = client.post("/v1/recognize", content=body, headers={"content-type": kind} if kind else {})
            seen[answer.status_code] += 1
            if not (400 <= answer.status_code < 500 and answer.json().get("code")):
                wrong += 1
                print(f"{answer.status_code} for {kind} {body[:60]!r}: {answer.text[:200]}")
            if arguments.pid and number % max(1, arguments.count // 10) == 0:
                pages = int(Path(f"/proc/{arguments.pid}/statm").read_text().split()[1])
                print(f"{number:6d} bodies, {pages * os.sysconf('SC_PAGE_SIZE') / 2**20:.0f} MB")
    print(f"answers: {dict(sorted(seen.items()))}; wrong: {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
