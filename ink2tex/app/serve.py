"""`ink2tex serve`: the page and the API on this machine."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from ink2tex.app.server.settings import ENVIRONMENT, ServerSettings
from ink2tex.errors import Ink2TexError


def run(settings: ServerSettings, host: str, port: int, workers: int = 1) -> None:
    """Serve until the process is told to stop; then finish what was accepted."""
    try:
        import uvicorn

        from ink2tex.app.server.application import create_app, start_log
        from ink2tex.app.server.reading import Reader
    except ImportError as error:
        raise Ink2TexError(f"the server needs more packages ({error}); install ink2tex[serve]") from None
    Reader(settings)  # what is wrong with the model shows here, as one sentence
    _check_address(host, port)
    start_log()
    shown = f"[{host}]" if ":" in host else host
    print(f"Write on http://{shown}:{port}/ (Ctrl+C stops)", flush=True)
    common = {
        "host": host,
        "port": port,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 20,
        # Nothing that was accepted takes longer than its deadline.
        "timeout_graceful_shutdown": int(settings.deadline) + 10,
        "h11_max_incomplete_event_size": 64 * 1024,
    }
    if workers == 1:
        uvicorn.run(create_app(settings), **common)  # type: ignore[arg-type]
        return
    with tempfile.TemporaryDirectory(prefix="ink2tex-") as folder:
        counts = Path(folder) / "metrics"
        counts.touch()
        os.environ[ENVIRONMENT] = replace(settings, metrics_file=str(counts)).to_text()
        uvicorn.run(
            "ink2tex.app.server.application:create_app",
            factory=True,
            workers=workers,
            **common,  # type: ignore[arg-type]
        )


def _check_address(host: str, port: int) -> None:
    """Say in one sentence what is wrong with the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise Ink2TexError(
            f"{host}:{port} cannot be listened on ({error.strerror}); give another --host or --port"
        ) from None
