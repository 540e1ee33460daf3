"""Servers for tests: `ink2tex serve` in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    url: str
    port: int
    process: subprocess.Popen[str]
    log: IO[str]

    def stop(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code and the log."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=60), self.said()

    def said(self) -> str:
        """The log."""
        self.log.seek(0)
        return self.log.read()

    def memory(self) -> int:
        """Bytes of memory that the process holds."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(model: Path | None, *arguments: str, ready: float = 60) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "ink2tex.app.cli", "serve", "--port", str(port), *arguments]
    command += ["--model", str(model)] if model else []
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe that nobody reads would fill up)
    process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, text=True, start_new_session=True)
    server = Server(f"http://127.0.0.1:{port}", port, process, log)
    try:
        end = time.monotonic() + ready
        while True:
            try:
                if httpx.get(server.url + "/readyz").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL)
                raise RuntimeError(f"the server did not start: {server.said()}")
            time.sleep(0.05)
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with its workers
            process.wait()
