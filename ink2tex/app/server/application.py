"""The application: routes, and what they share."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

from ink2tex import __version__
from ink2tex.app.server import describe
from ink2tex.app.server.batching import BatchQueue, FullError, Places
from ink2tex.app.server.guard import Guard
from ink2tex.app.server.inputs import (
    FORM_TYPE,
    JSON_TYPE,
    BodyReader,
    ClientGoneError,
    Inputs,
    Prepare,
    media_type,
    unsupported,
    wait_for_hang_up,
)
from ink2tex.app.server.metrics import Metrics
from ink2tex.app.server.problems import Problem, install, internal, problem_of
from ink2tex.app.server.reading import Answer, Key, Reader, typeset
from ink2tex.app.server.schemas import Answer as AnswerBody
from ink2tex.app.server.schemas import BatchAnswer, Health, MathmlAnswer, ModelAnswer, Options
from ink2tex.app.server.settings import ENVIRONMENT, ServerSettings
from ink2tex.errors import Ink2TexError
from ink2tex.runtime.recognizer import Ready

STATIC: Final = Path(__file__).parent / "static"
log = logging.getLogger("ink2tex.server")
T = TypeVar("T")


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """The server as an ASGI application. Without settings, they come from the environment (see `serve`)."""
    if settings is None:
        settings = ServerSettings.from_text(os.environ.get(ENVIRONMENT, "{}"))
        start_log()  # this is a process of its own
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="ink2tex",
        version=__version__,
        summary="Handwritten mathematics to LaTeX.",
        description=describe.TEXT,
        lifespan=lifespan,
        docs_url=None,  # these pages fetch scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        license_info={"name": "MIT", "identifier": "MIT"},
    )
    app.state.service = service
    install(app)
    _routes(app, service)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(Guard, metrics=service.metrics, token=settings.token)
    describe.complete(app, settings)
    return app


def start_log() -> None:
    """Write what the server has to say to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


class Service:
    """What the routes share: the reader, the queue, the counts."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.metrics_file)
        self.inputs = Inputs(settings)
        self.bodies = BodyReader(settings)
        self._reader: Reader | None = None
        self._queue: BatchQueue[Ready, Answer] | None = None

    @property
    def ready(self) -> bool:
        """Whether requests are read."""
        return self._queue is not None and self._queue.alive

    @property
    def reader(self) -> Reader:
        """The reader; a problem while there is none."""
        if self._reader is None:
            raise Problem("not_ready", "The server is starting; try again.", headers={"Retry-After": "1"})
        return self._reader

    @property
    def queue(self) -> BatchQueue[Ready, Answer]:
        """The queue; a problem while there is none."""
        if self._queue is None:
            raise Problem("not_ready", "The server is starting; try again.", headers={"Retry-After": "1"})
        return self._queue

    async def start(self) -> None:
        """Load the model and begin to read."""
        settings = self.settings
        reader = await asyncio.to_thread(Reader, settings)
        await asyncio.to_thread(reader.warm_up)
        self._reader = reader
        self._queue = BatchQueue(
            reader.read,
            self.metrics,
            places=settings.queue,
            batch=settings.batch,
            gather=settings.gather_ms / 1000,
            readers=settings.threads,
        )
        self._queue.start()

    async def stop(self) -> None:
        """Finish what was accepted."""
        if self._queue is not None:
            await self._queue.close()
        counts = (self.metrics.get(f"ink2tex_inputs_{what}total") for what in ("", "answered_", "abandoned_"))
        log.info("stopped: %d inputs accepted, %d answered, %d abandoned by their clients", *counts)

    async def recognize(self, request: Request, options: Options) -> Response:
        """Answer one input."""

        async def work() -> Response:
            key = self._admit(options)
            kind = media_type(request)
            if kind != FORM_TYPE:
                self.inputs.single(kind, b"")  # what cannot be read is not received
            body = await self._receive(request)
            if kind == FORM_TYPE:
                prepares = await self.inputs.form(request, body, 1)
                if len(prepares) > 1:
                    raise Problem("invalid_request", "Send one file, or several to /v1/recognize/batch.")
                prepare = prepares[0]
            else:
                prepare = self.inputs.single(kind, body)
            places = self._reserve(1)
            try:
                answer = await self._while_connected(request, self._answer(prepare, key, places))
            finally:
                places.release(all_of_them=True)
            return JSONResponse(_chosen(answer, options))

        return await self._in_time(work())

    async def recognize_batch(self, request: Request, options: Options) -> Response:
        """Answer several inputs, each with a result or a problem."""

        async def work() -> Response:
            key = self._admit(options)
            kind = media_type(request)
            if kind not in (FORM_TYPE, JSON_TYPE):
                raise unsupported(kind, (JSON_TYPE, FORM_TYPE))
            body = await self._receive(request)
            prepares: Sequence[Prepare]
            if kind == FORM_TYPE:
                prepares = await self.inputs.form(request, body, self.settings.max_items)
                self.inputs.check_count(len(prepares))
            else:
                prepares = await asyncio.to_thread(self.inputs.several, body)
            places = self._reserve(len(prepares))

            async def one(prepare: Prepare) -> dict[str, Any]:
                try:
                    return {"result": _chosen(await self._answer(prepare, key, places), options), "problem": None}
                except Problem as problem:
                    return {"result": None, "problem": problem.body()}
                except Ink2TexError as error:
                    return {"result": None, "problem": problem_of(error).body()}
                except Exception as error:
                    return {"result": None, "problem": internal(error).body()}

            try:
                answers = await self._while_connected(request, asyncio.gather(*map(one, prepares)))
            finally:
                places.release(all_of_them=True)
            return JSONResponse({"items": answers})

        return await self._in_time(work())

    async def typeset(self, request: Request) -> Response:
        """Answer LaTeX with MathML."""

        async def work() -> Response:
            if (kind := media_type(request)) != JSON_TYPE:
                raise unsupported(kind, (JSON_TYPE,))
            latex = self.inputs.latex(await self._receive(request))
            return JSONResponse({"mathml": await asyncio.to_thread(typeset, latex)})

        return await self._in_time(work())

    def _admit(self, options: Options) -> Key:
        """Refuse early: what the model cannot do, and everything while the queue is full."""
        try:
            key = self.reader.key(options)
        except (Ink2TexError, ValueError) as error:
            raise Problem("invalid_request", f"The model cannot be used that way: {error}.") from None
        try:
            self.queue.check()
        except FullError as error:
            raise _busy(error) from None
        return key

    async def _receive(self, request: Request) -> bytes:
        """The body, which has half of the deadline to arrive."""
        try:
            async with asyncio.timeout(self.settings.deadline / 2):
                return await self.bodies.read(request)
        except TimeoutError:
            raise Problem(
                "slow_request", "The body did not arrive in time; send it again.", headers={"Connection": "close"}
            ) from None

    def _reserve(self, count: int) -> Places:
        if count > self.settings.queue:
            raise Problem("too_many_items", f"The queue of this server has {self.settings.queue} places.")
        try:
            return self.queue.reserve(count)
        except FullError as error:
            raise _busy(error) from None

    async def _answer(self, prepare: Prepare, key: Key, places: Places) -> Answer:
        answered = True
        try:
            return await self.queue.answer(prepare, key)
        except MemoryError:
            raise Problem("unreadable", "There is not enough memory to read this; send something smaller.") from None
        except asyncio.CancelledError:
            answered = False
            raise
        finally:
            places.release(answered)

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await work
        except TimeoutError:
            raise Problem(
                "deadline_exceeded",
                f"This took more than {self.settings.deadline:g} s; try again, or send something smaller.",
                headers={"Retry-After": "5"},
            ) from None

    async def _while_connected(self, request: Request, work: Awaitable[T]) -> T:
        """The answer; given up when the client hangs up."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(wait_for_hang_up(request.receive))
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGoneError
            return task.result()
        finally:
            for one in (task, gone):
                one.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)


def _busy(error: FullError) -> Problem:
    return Problem(
        "busy",
        f"Too many requests are waiting; try again in {error.seconds} s.",
        headers={"Retry-After": str(error.seconds)},
    )


def _chosen(answer: Answer, options: Options) -> Answer:
    return answer if options.boxes else {**answer, "boxes": None}


def _routes(app: FastAPI, service: Service) -> None:
    refusals = describe.problems(400, 401, 408, 413, 415, 422, 429, 503)  # of whatever takes a body

    @app.exception_handler(ClientGoneError)
    async def _gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=499)  # nobody reads it; the counts show it

    @app.post(
        "/v1/recognize",
        response_model=AnswerBody,
        operation_id="recognize",
        tags=["recognition"],
        openapi_extra=describe.RECOGNIZE_BODY,
        responses=refusals,
    )
    async def recognize(request: Request, options: Annotated[Options, Query()]) -> Response:
        """Read one input: a picture, InkML, or strokes."""
        return await service.recognize(request, options)

    @app.post(
        "/v1/recognize/batch",
        response_model=BatchAnswer,
        operation_id="recognizeBatch",
        tags=["recognition"],
        openapi_extra=describe.BATCH_BODY,
        responses=refusals,
    )
    async def recognize_batch(request: Request, options: Annotated[Options, Query()]) -> Response:
        """Read several inputs; each is answered by a result or by a problem of its own."""
        return await service.recognize_batch(request, options)

    @app.post(
        "/v1/mathml",
        response_model=MathmlAnswer,
        operation_id="typeset",
        tags=["recognition"],
        openapi_extra=describe.LATEX_BODY,
        responses=refusals,
    )
    async def mathml(request: Request) -> Response:
        """Typeset LaTeX: what a person has corrected."""
        return await service.typeset(request)

    @app.get(
        "/v1/model",
        response_model=ModelAnswer,
        operation_id="model",
        tags=["recognition"],
        responses=describe.problems(401, 503),
    )
    async def model() -> Any:
        """What reads here, and what it can write."""
        return service.reader.describe()

    @app.get("/healthz", response_model=Health, operation_id="health", tags=["operation"])
    async def healthz() -> Any:
        """Whether the process lives."""
        return Health()

    @app.get(
        "/readyz", response_model=Health, operation_id="ready", tags=["operation"], responses=describe.problems(503)
    )
    async def readyz() -> Any:
        """Whether requests are read."""
        if not service.ready:
            raise Problem("not_ready", "The server is starting or stopping; try again.", headers={"Retry-After": "1"})
        return Health()

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        operation_id="metrics",
        tags=["operation"],
        responses=describe.problems(401),
    )
    async def metrics() -> Response:
        """Counts in the text format of Prometheus."""
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")
