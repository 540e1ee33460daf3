"""A bounded queue in front of the recogniser that gathers requests into batches.

All bookkeeping happens on the event loop; preparing inputs (decoding pictures, drawing ink) and reading them happen
in threads. Whoever waits for an answer may be cancelled at any time and frees its place at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ink2tex.app.server.metrics import Metrics
from ink2tex.errors import Ink2TexError

In = TypeVar("In")
Out = TypeVar("Out")
log = logging.getLogger("ink2tex.server")


class FullError(Exception):
    """No place is free; `seconds` tells when to come back."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"come back in {seconds} s")
        self.seconds = seconds


@dataclass(eq=False)
class _Job(Generic[In, Out]):
    key: Hashable
    value: In
    answer: asyncio.Future[Out | Ink2TexError]
    since: float = field(default_factory=time.monotonic)


class BatchQueue(Generic[In, Out]):
    """Takes inputs one by one and hands them in batches to `read`, which answers all inputs of one key together."""

    def __init__(
        self,
        read: Callable[[Hashable, Sequence[In]], Sequence[Out | Ink2TexError]],
        metrics: Metrics,
        *,
        places: int = 64,
        batch: int = 16,
        gather: float = 0.004,
        readers: int = 1,
    ) -> None:
        self._read, self._metrics = read, metrics
        self._places, self._batch, self._gather = places, batch, gather
        self._taken = 0
        self._pace = 0.2  # seconds an input takes, a running mean
        self._waiting: deque[_Job[In, Out]] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._readers = readers
        self._preparing_pool = ThreadPoolExecutor(readers, "prepare")
        self._reading_pool = ThreadPoolExecutor(readers, "read")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to read; needs a running event loop."""
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._readers)]

    @property
    def alive(self) -> bool:
        """Whether it reads."""
        return bool(self._tasks) and not self._closing and not any(task.done() for task in self._tasks)

    def check(self, count: int = 1) -> None:
        """Raise `FullError` if there are not `count` free places."""
        if self._taken + count > self._places:
            raise FullError(max(1, min(30, round(self._taken * self._pace))))

    def reserve(self, count: int = 1) -> Places:
        """Take places, or raise `FullError`. They are given back by `Places.release`."""
        self.check(count)
        self._taken += count
        self._metrics.add("ink2tex_inputs_total", count)
        self._metrics.add("ink2tex_queue", count)
        return Places(self._release, count)

    def _release(self, answered: bool) -> None:
        self._taken -= 1
        self._metrics.add("ink2tex_queue", -1)
        self._metrics.add("ink2tex_inputs_answered_total" if answered else "ink2tex_inputs_abandoned_total")

    async def answer(self, prepare: Callable[[], In], key: Hashable) -> Out:
        """What `read` makes of the prepared input. The caller has a place. Raises what either raises."""
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._preparing_pool, prepare)
        job: _Job[In, Out] = _Job(key, value, loop.create_future())
        self._waiting.append(job)
        self._wake.set()
        try:
            answer = await job.answer
        finally:
            if not job.answer.done() or job.answer.cancelled():
                with contextlib.suppress(ValueError):  # a reader has it already
                    self._waiting.remove(job)
        if isinstance(answer, Ink2TexError):
            raise answer
        return answer

    async def in_thread(self, work: Callable[[], Out]) -> Out:
        """Do something of which the event loop should not wait for the end."""
        return await asyncio.get_running_loop().run_in_executor(self._preparing_pool, work)

    async def close(self) -> None:
        """Read what was accepted, then stop."""
        self._closing = True
        self._wake.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in (self._preparing_pool, self._reading_pool):
            pool.shutdown(wait=True, cancel_futures=True)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            left = self._waiting[0].since + self._gather - time.monotonic()
            if left > 0 and len(self._waiting) < self._batch:
                await asyncio.sleep(left)
            jobs = self._take()
            if not jobs:
                continue
            start = time.monotonic()
            for job in jobs:
                self._metrics.observe("ink2tex_wait_seconds", start - job.since)
            self._metrics.observe("ink2tex_batch_size", len(jobs))
            values = [job.value for job in jobs]
            answers = await loop.run_in_executor(self._reading_pool, self._safely, jobs[0].key, values)
            self._pace += 0.1 * ((time.monotonic() - start) / len(jobs) / self._readers - self._pace)
            for job, answer in zip(jobs, answers, strict=True):
                if job.answer.done():
                    continue  # nobody waits any more
                if isinstance(answer, Exception) and not isinstance(answer, Ink2TexError):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)

    def _take(self) -> list[_Job[In, Out]]:
        """The first job and others of its key: a fair share of what waits, so that all readers have work."""
        share = max(1, min(self._batch, -(-len(self._waiting) // self._readers)))
        taken: list[_Job[In, Out]] = []
        kept: list[_Job[In, Out]] = []
        while self._waiting and len(taken) < share:
            job = self._waiting.popleft()
            if not job.answer.done():
                (taken if not taken or job.key == taken[0].key else kept).append(job)
        self._waiting.extendleft(reversed(kept))
        return taken

    def _safely(self, key: Hashable, values: Sequence[In]) -> Sequence[Out | Exception]:
        """`read`; if a batch fails, each of its inputs by itself, so that one cannot spoil the others."""
        try:
            return self._read(key, values)
        except Exception as error:
            if len(values) == 1:
                return [error]
            log.warning("a batch of %d failed (%r), reading one by one", len(values), error)
        return [answer for value in values for answer in self._safely(key, [value])]


class Places:
    """Places in the queue that belong to a request."""

    def __init__(self, release: Callable[[bool], None], count: int) -> None:
        self._release, self._count = release, count

    def release(self, answered: bool = False, all_of_them: bool = False) -> None:
        """Give one place back, or all that are left."""
        while self._count:
            self._count -= 1
            self._release(answered)
            if not all_of_them:
                break
