"""What a person sees of a run: a progress bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

#: Seconds between two lines when nobody watches.
INTERVAL = 60.0


class Console:
    """Progress with the parts of the loss, images a second and the time left."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._rich = RichConsole(stderr=True, quiet=quiet, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: Any = None
        self._began = time.monotonic()
        self._first = 0
        self._steps = 0
        self._minutes: float | None = None
        self._spoke = 0.0

    def say(self, line: str) -> None:
        """A line for the log."""
        if not self.quiet:
            (self._bar.console if self._bar else self._rich).print(line, highlight=False, markup=False)

    def begin(self, step: int, steps: int, minutes: float | None) -> None:
        """The run starts (or goes on) at `step` of `steps` (0: open end), for at most `minutes` this time."""
        self._began = self._spoke = time.monotonic()
        self._first, self._steps, self._minutes = step, steps, minutes
        if step:
            self.say(f"going on from step {step}")
        if sys.stderr.isatty() and not self.quiet:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("step {task.completed:.0f}"),
                BarColumn(),
                TextColumn("{task.fields[status]}"),
                TimeRemainingColumn(),
                console=self._rich,
            )
            self._task = self._bar.add_task("train", total=steps or None, completed=step, status="")
            self._bar.start()

    def step(self, step: int, epoch: float, parts: dict[str, float], rate: float, speed: float) -> None:
        """One step is done."""
        if self.quiet:
            return
        now = time.monotonic()
        if self._bar is None and now - self._spoke < INTERVAL:
            return
        loss = " ".join(f"{name} {value:.3f}" for name, value in parts.items())
        status = f"epoch {epoch:.2f}  {loss}  rate {rate:.2g}  {speed:.1f} images/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, status=status)
            return
        self._spoke = now
        self.say(f"step {step}  {status}  {self._left(step, now)}")

    def validated(self, step: int, values: dict[str, Any]) -> None:
        """A validation is done."""
        self.say(
            f"step {step}  validation: ExpRate {values['exprate']:.2f}  ≤1 {values['le1']:.2f}  "
            f"≤2 {values['le2']:.2f}  WER {values['wer']:.2f}  after {values['hours']:.2f} h, {values['images']} images"
        )

    def end(self) -> None:
        """The run has ended."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self, step: int, now: float) -> str:
        passed = now - self._began
        ends = []
        if self._steps and step > self._first:
            ends.append((self._steps - step) * passed / (step - self._first))
        if self._minutes is not None:
            ends.append(60 * self._minutes - passed)
        if not ends:
            return f"{passed / 60:.0f} min so far"
        hours, minutes = divmod(round(max(0.0, min(ends)) / 60), 60)
        return f"{hours} h {minutes:02} min left"
