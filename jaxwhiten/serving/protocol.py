"""Requests and errors, in the shapes of OpenAI and of text-embeddings-inference."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from jaxwhiten.errors import InputError, JaxwhitenError, MismatchError, check_name

_TEXTS = 2048  # of a request, as of OpenAI
_TOKEN_IDS = (
    "Token IDs belong to another model's vocabulary, so they are rejected: send text. LangChain's OpenAIEmbeddings does"
    " with check_embedding_ctx_length=False."
)
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=_TEXTS)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)] | str], Field(min_length=1, max_length=_TEXTS)]
Width = Annotated[int, Field(ge=1)]


class _Asked(BaseModel):
    """A request; types are not converted, and an unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            check_name("field", name, cls.model_fields)
        return value

    @field_validator("input", "inputs", mode="before", check_fields=False)
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        while isinstance(value, list) and value and type(value[0]) in (list, int):
            if type(value[0]) is int:
                raise ValueError(_TOKEN_IDS)
            value = value[0]
        return value


class Embeddings(_Asked):
    input: Text | Texts
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Width | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = None
    output_dtype: Literal["float", "code", "ubinary", "int8"] = "float"


class Embed(_Asked):
    inputs: Text | Texts
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    prompt_name: str | None = None
    dimensions: Width | None = None


class Search(_Asked):
    text: Text | None = None
    vector: Annotated[list[float], Field(min_length=1, max_length=1 << 16)] | None = None
    k: Annotated[int, Field(ge=1, le=10_000)] = 10


class Change(_Asked):
    texts: Texts | None = None
    ids: Ids | None = None


CHANGES = {"add": "`texts`, with or without `ids`", "update": "`texts` and `ids`", "remove": "`ids` alone"}


class Refused(HTTPException):
    """An answer other than 200, for a parameter."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None, wait: int = 0):
        super().__init__(status, message, {"Retry-After": str(wait)} if wait else None)
        self.param, self.code = param, code


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_OF_TEI = {413: "Validation", 422: "Validation", 429: "Overloaded", 503: "Overloaded"}


async def refusal(request: Request, error: Exception) -> Response:
    """The answer to an error, in the shape of the path's protocol."""
    path = request.url.path
    invalid = 400 if path.startswith("/v1/") else 422
    if isinstance(error, RequestValidationError):
        error = _invalid(error, invalid)
    elif isinstance(error, InputError | MismatchError):
        error = Refused(invalid, str(error))
    elif not isinstance(error, HTTPException):
        error = Refused(503 if isinstance(error, JaxwhitenError) else 500, f"{type(error).__name__}: {error}")
    status, message = invalid if error.status_code == 422 else error.status_code, error.detail
    told: Any = {"message": message, "type": _TYPES.get(status, "invalid_request_error")}
    told = {"error": {**told, "param": getattr(error, "param", None), "code": getattr(error, "code", None)}}
    if path in ("/", "/embed"):
        told = {"error": message, "error_type": _OF_TEI.get(status, "Backend")}
    return Response(to_json(told), status, error.headers, "application/json")


def _invalid(error: RequestValidationError, status: int) -> Refused:
    """The first invalid field: of a union, the branch that came furthest."""
    first = max(error.errors(), key=lambda one: (not one["type"].endswith("_type"), len(one["loc"])))
    where = [str(part) for part in first["loc"][1:] if isinstance(part, int) or str(part).isidentifier()]
    where = [part for part in where if part not in ("str", "int")]
    message = first["msg"].removeprefix("Value error, ")
    status = 413 if first["type"] == "too_long" else status
    return Refused(status, ": ".join([".".join(where), message] if where else [message]), where[0] if where else None)
