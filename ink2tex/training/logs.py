"""What a run writes down: CSV and TensorBoard files that go on where a resumed run goes on."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class Table:
    """A CSV file with a column `step`. Rows behind the step that a run resumes from are dropped."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
            self.rows = [row for row in self.rows if int(row["step"]) <= step]
            self._rewrite()

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; new columns are added to the file."""
        text = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in row.items()}
        fresh = not self.rows or set(text) - set(self.rows[0])
        self.rows.append(text)
        if fresh:
            self._rewrite()
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, list(self.rows[0])).writerow(text)

    def _rewrite(self) -> None:
        columns: dict[str, None] = {}
        for row in self.rows:
            columns |= dict.fromkeys(row)
        self.rows = [{key: row.get(key, "") for key in columns} for row in self.rows]
        temporary = self.path.with_name(self.path.name + ".part")
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(temporary, self.path)


class Logs:
    """Training and validation rows of a run folder, in `train.csv`, `valid.csv` and TensorBoard's event files."""

    def __init__(self, folder: Path, step: int) -> None:
        self.train = Table(folder / "train.csv", step)
        self.valid = Table(folder / "valid.csv", step)
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def add(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Write `values` of a step to the table `kind` (train or valid) and to TensorBoard."""
        getattr(self, kind).add({"step": step, **values})
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{kind}/{name}", value, step)
        self._board.flush()
