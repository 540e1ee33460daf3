"""The parts of the OpenAPI description that FastAPI cannot tell from the code: bodies of many kinds, and problems."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from ink2tex.app.server.inputs import FORM_TYPE, IMAGE_TYPES, INKML_TYPES, JSON_TYPE
from ink2tex.app.server.problems import CODES, MEDIA_TYPE, ProblemBody
from ink2tex.app.server.schemas import STROKES_EXAMPLE, BatchInput, ImageInput, InkmlInput, LatexInput, StrokesInput
from ink2tex.app.server.settings import ServerSettings

TEXT: Final = (
    "Reads handwritten mathematics (a photo, a scan, pen strokes) and writes LaTeX. Errors are "
    "`application/problem+json` with a stable `code`; after 429 and 503 come back when `Retry-After` says."
)
_REF: Final = "#/components/schemas/{model}"
_INKML: Final = "<ink><trace>10 10, 50 60, 90 110</trace><trace>90 10, 52 58, 10 112</trace></ink>"
_BINARY: Final = {"type": "string", "format": "binary"}
_JSON_KINDS: Final = (StrokesInput, InkmlInput, ImageInput)


def _ref(model: type) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _form(many: bool) -> dict[str, Any]:
    file: dict[str, Any] = {**_BINARY, "description": "A picture or an InkML file."}
    if many:
        file = {"type": "array", "items": file, "minItems": 1}
    return {
        "schema": {
            "type": "object",
            "required": ["file"],
            "properties": {"file": file},
            "additionalProperties": False,
        }
    }


RECOGNIZE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": {"anyOf": [_ref(kind) for kind in _JSON_KINDS]},
                "examples": {
                    "strokes": {"summary": "A cross of two strokes", "value": STROKES_EXAMPLE},
                    "inkml": {"summary": "The same as InkML", "value": {"inkml": _INKML}},
                },
            },
            **{kind: {"schema": _BINARY} for kind in (*IMAGE_TYPES, "application/octet-stream")},
            **{kind: {"schema": {"type": "string"}, "example": _INKML} for kind in INKML_TYPES},
            FORM_TYPE: _form(many=False),
        },
    }
}

BATCH_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": _ref(BatchInput),
                "examples": {
                    "two": {"summary": "Strokes and InkML", "value": {"items": [STROKES_EXAMPLE, {"inkml": _INKML}]}}
                },
            },
            FORM_TYPE: _form(many=True),
        },
    }
}

LATEX_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": _ref(LatexInput)}}}
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of error answers."""
    described: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        codes = [code for code, (its, _) in CODES.items() if its == status]
        example = {"type": "about:blank", "title": CODES[codes[0]][1], "status": status, "code": codes[0]}
        described[status] = {
            "description": "; ".join(f"`{code}`: {CODES[code][1].lower()}" for code in codes),
            "content": {
                MEDIA_TYPE: {"schema": _ref(ProblemBody), "example": {**example, "detail": "One sentence of advice."}}
            },
        }
        if status in (429, 503):
            described[status]["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
            }
    return described


def complete(app: FastAPI, settings: ServerSettings) -> None:
    """Give the application its whole description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        whole = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            license_info=app.license_info,
            routes=app.routes,
        )
        models = [(model, "validation") for model in (*_JSON_KINDS, BatchInput, LatexInput, ProblemBody)]
        _, found = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
        schemas = whole.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(found["$defs"])
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        if settings.token is not None:
            whole["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in whole["paths"].items():
                if path.startswith("/v1/") or path == "/metrics":
                    for operation in operations.values():
                        operation["security"] = [{"token": []}]
        app.openapi_schema = whole
        return whole

    app.openapi = openapi  # type: ignore[method-assign]
