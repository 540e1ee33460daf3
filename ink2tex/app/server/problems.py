"""Errors as `application/problem+json` (RFC 9457): a sentence for people, a stable `code` for programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from ink2tex.errors import ImageError, Ink2TexError, InkError, LatexError

MEDIA_TYPE: Final = "application/problem+json"
log = logging.getLogger("ink2tex.server")

#: Every code there is: its HTTP status and what it means.
CODES: Final[Mapping[str, tuple[int, str]]] = {
    "bad_request": (400, "The request cannot be understood"),
    "bad_json": (400, "The body is not JSON"),
    "bad_multipart": (400, "The body is not a multipart form"),
    "unauthorized": (401, "A token is needed"),
    "not_found": (404, "There is no such page"),
    "method_not_allowed": (405, "This page does not take that method"),
    "slow_request": (408, "The request took too long to arrive"),
    "body_too_large": (413, "The body is too large"),
    "picture_too_large": (413, "The picture has too many pixels"),
    "too_many_points": (413, "The drawing has too many strokes or points"),
    "too_many_items": (413, "The batch has too many items"),
    "unsupported_media_type": (415, "This kind of content cannot be read"),
    "invalid_request": (422, "The request has a part that is not as described"),
    "invalid_ink": (422, "The ink cannot be read"),
    "invalid_picture": (422, "The picture cannot be read"),
    "invalid_latex": (422, "The LaTeX cannot be typeset"),
    "unreadable": (422, "The input cannot be read"),
    "busy": (429, "The server is busy"),
    "internal_error": (500, "The server has made a mistake"),
    "deadline_exceeded": (503, "Reading took too long"),
    "not_ready": (503, "The server is not ready"),
}


class ProblemBody(BaseModel):
    """What went wrong. `code` never changes its meaning; `detail` is a sentence that says what to do."""

    type: str = Field("about:blank", description="Always `about:blank`; see `code`.")
    title: str = Field(description="What the code means.")
    status: int = Field(description="The HTTP status.", ge=400, le=599)
    code: str = Field(description="A stable name of the problem.", json_schema_extra={"enum": [*sorted(CODES)]})
    detail: str = Field(description="One sentence about this case.")
    errors: list[str] | None = Field(None, description="The parts that are wrong, when there are several.")


class Problem(Exception):  # noqa: N818  (what RFC 9457 calls it)
    """An answer that is an error."""

    def __init__(
        self,
        code: str,
        detail: str,
        errors: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status or CODES[code][0]
        self.detail, self.errors = detail, list(errors)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """As the answer says it."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": CODES[self.code][1],
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        return {**body, "errors": self.errors} if self.errors else body

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(), self.status, self.headers, MEDIA_TYPE)


def problem_of(error: Ink2TexError) -> Problem:
    """An error about the input of a client."""
    kinds = {InkError: "invalid_ink", ImageError: "invalid_picture", LatexError: "invalid_latex"}
    code = next((code for kind, code in kinds.items() if isinstance(error, kind)), "unreadable")
    return Problem(code, _sentence(str(error)))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def install(app: FastAPI) -> None:
    """Make every error of the application a problem."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> JSONResponse:
        return error.response()

    @app.exception_handler(Ink2TexError)
    async def _ours(request: Request, error: Ink2TexError) -> JSONResponse:
        return problem_of(error).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid(error.errors()).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        detail = {
            "not_found": "There is nothing at this address; /openapi.json lists what there is.",
            "method_not_allowed": f"{request.method} is not possible here; see the Allow header.",
        }.get(code, _sentence(str(error.detail)))
        return Problem(code, detail, headers=error.headers, status=error.status_code).response()


def invalid(errors: Sequence[Any], where: str = "") -> Problem:
    """A problem from what pydantic says."""
    said = [f"{where}{'.'.join(map(str, error['loc'])) or 'body'}: {error['msg']}"[:300] for error in errors[:8]]
    return Problem("invalid_request", _sentence(said[0]), said if len(said) > 1 else ())


def internal(error: BaseException) -> Problem:
    """A bug of ours: the log has it, the client learns nothing but that."""
    log.error("request failed", exc_info=error)
    return Problem("internal_error", "The server has made a mistake; it is in its log. Try again.")
