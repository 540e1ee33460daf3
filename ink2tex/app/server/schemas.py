"""What travels: the requests that are JSON, the options, the answers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ink2tex.app.server.problems import ProblemBody
from ink2tex.ink import MAX_COORDINATE

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE, allow_inf_nan=False)]
Point = Annotated[
    list[Coordinate], Field(min_length=2, max_length=8, description="x (to the right), y (down); more is ignored.")
]
StrokePoints = Annotated[list[Point], Field(min_length=1, description="Where the pen was, in order.")]

STROKES_EXAMPLE = {"strokes": [[[10, 10], [50, 60], [90, 110]], [[90, 10], [52, 58], [10, 112]]]}


def _plain_number(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch("[0-9]{1,3}", value):
        raise ValueError("give a whole number")
    return value


def _plain_flag(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("give true or false")
    return value


class Options(BaseModel):
    """How to read; parameters of the address."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nbest: Annotated[
        int | None, BeforeValidator(_plain_number), Field(ge=1, le=20, description="Readings, the best included.")
    ] = None
    beam: Annotated[
        int | None, BeforeValidator(_plain_number), Field(ge=1, le=20, description="Hypotheses of the search.")
    ] = None
    decode: Annotated[
        Literal["l2r", "r2l", "joint"] | None, Field(description="The branches; what suits the model when left out.")
    ] = None
    views: Annotated[
        int | None,
        BeforeValidator(_plain_number),
        Field(
            ge=1,
            le=3,
            description="Sizes at which answers are judged (1 when left out): more is slower, maybe right more often.",
        ),
    ] = None
    boxes: Annotated[
        bool, BeforeValidator(_plain_flag), Field(description="Tell where on the input each token was read.")
    ] = True


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StrokesInput(_Strict):
    """Pen strokes."""

    strokes: Annotated[list[StrokePoints], Field(min_length=1)]


class InkmlInput(_Strict):
    """An InkML file as text."""

    inkml: Annotated[str, Field(min_length=1, examples=["<ink><trace>10 10, 50 60, 90 110</trace></ink>"])]


class ImageInput(_Strict):
    """The bytes of a picture file (PNG, JPEG, BMP, WebP, TIFF, GIF) in base64."""

    image: Annotated[str, Field(min_length=1, json_schema_extra={"contentEncoding": "base64"})]


JsonInput = StrokesInput | InkmlInput | ImageInput


#: Characters of LaTeX that are typeset in one call; no expression on a sheet of paper comes near.
MAX_LATEX: Final = 2000


class LatexInput(_Strict):
    """LaTeX to typeset."""

    latex: Annotated[str, Field(min_length=1, max_length=MAX_LATEX, examples=[r"\frac{1}{2}x^{2}"])]


class BatchInput(_Strict):
    """Several inputs."""

    items: Annotated[list[JsonInput], Field(min_length=1)]


Probability = Annotated[float, Field(ge=0, le=1)]


class Reading(BaseModel):
    """Another reading of the input."""

    latex: str = Field(description="Tidy LaTeX.")
    mathml: str | None = Field(description="Presentation MathML, which browsers draw.")
    tokens: list[str] = Field(description="The symbols of the label; joined by spaces they are LaTeX too.")
    probability: Probability = Field(description="That all of it is right.")


class Answer(BaseModel):
    """One expression that was read."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "latex": "x^{2}",
                    "mathml": '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow><msup>'
                    "<mi>x</mi><mrow><mn>2</mn></mrow></msup></mrow></math>",
                    "tokens": ["x", "^", "{", "2", "}"],
                    "confidence": 0.91,
                    "token_probabilities": [0.98, 0.97, 1.0, 0.96, 1.0],
                    "alternatives": [
                        {"latex": "X^{2}", "mathml": None, "tokens": ["X", "^", "{", "2", "}"], "probability": 0.05}
                    ],
                    "boxes": [[10.0, 40.0, 60.0, 90.0], None, None, [64.0, 12.0, 85.0, 45.0], None],
                    "seconds": 0.12,
                    "warnings": [],
                }
            ]
        }
    )

    latex: str = Field(description="Tidy LaTeX.")
    mathml: str | None = Field(description="Presentation MathML, which browsers draw.")
    tokens: list[str] = Field(description="The symbols of the label; joined by spaces they are LaTeX too.")
    confidence: Probability = Field(description="The probability that all of it is right.")
    token_probabilities: list[Probability] = Field(description="The network's probability of each token.")
    alternatives: list[Reading] = Field(description="Other readings, most probable first.")
    boxes: list[Annotated[list[float], Field(min_length=4, max_length=4)] | None] | None = Field(
        description="Left, top, right and bottom of each token on the input, in its units (pixels of a picture, "
        "ink units of strokes); null for tokens without ink. Null as a whole when boxes=false."
    )
    seconds: float = Field(description="What reading took, without waiting.", ge=0)
    warnings: list[str] = Field(description="Things about the input that a person should know.")


class BatchItem(BaseModel):
    """The answer to one item: a result or a problem."""

    result: Answer | None = None
    problem: ProblemBody | None = None


class BatchAnswer(BaseModel):
    """Answers in the order of the items."""

    items: list[BatchItem]


class MathmlAnswer(BaseModel):
    """LaTeX, typeset."""

    mathml: str = Field(description="Presentation MathML, which browsers draw.")


class ModelAnswer(BaseModel):
    """What reads here."""

    name: str = Field(description="The name of the model.")
    version: str = Field(description="The version of ink2tex.")
    directions: list[str] = Field(description="The branches: l2r, r2l.")
    decode: str = Field(description="The decoding unless a request says otherwise.")
    beam: int = Field(description="The beam unless a request says otherwise.", ge=1)
    symbols: list[str] = Field(description="Everything that the model can write.")
    limits: dict[str, float] = Field(description="What a request may have.")


class Health(BaseModel):
    """Fine."""

    status: Literal["ok"] = "ok"
