"""Requests and errors, in the shapes of OpenAI and of text-embeddings-inference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jaxwhiten.errors import InputError, JaxwhitenError, MismatchError


def _no_token_ids(value: object) -> Any:
    first = value
    while isinstance(first, list) and first:
        first = first[0]
    if isinstance(value, list) and type(first) is int:
        raise ValueError(
            "Token IDs belong to another model's vocabulary, so they are rejected: send text. LangChain's"
            " OpenAIEmbeddings does with check_embedding_ctx_length=False."
        )
    return value


# texts, as many as of OpenAI; of a vector; of all requests
_ITEMS = 2048
_NUMBERS = 1 << 16
_FIELDS = 64
_METADATA = 16 * _ITEMS  # names in the metadata of documents
_Items = Field(min_length=1, max_length=_ITEMS, fail_fast=True)
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], _Items]
Input = Annotated[Text | Texts, BeforeValidator(_no_token_ids)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)] | str], _Items]
Vector = Annotated[list[float], Field(min_length=1, max_length=_NUMBERS, fail_fast=True)]
Metadata = Annotated[list[dict[str, JsonValue]], _Items]
Width = Annotated[int, Field(ge=1)]


class _Asked(BaseModel):
    """A request; types are not converted, and an unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")
    most_fields: ClassVar[int] = _FIELDS


class EmbeddingsRequest(_Asked):
    input: Input
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Width | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = None
    output_dtype: Literal["float", "code", "ubinary", "int8"] | None = None


class EmbedRequest(_Asked):
    inputs: Input
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    prompt_name: Annotated[str, Field(max_length=1000)] | None = None
    dimensions: Width | None = None


class SearchRequest(_Asked):
    text: Text | None = None
    vector: Vector | None = None
    k: Annotated[int, Field(ge=1, le=10_000)] | None = None
    among: Ids | None = None
    where: dict[str, JsonValue] | None = None
    hybrid: bool = False


class AddRequest(_Asked):
    most_fields: ClassVar[int] = _METADATA

    texts: Texts
    ids: Ids | None = None
    metadata: Metadata | None = None


class UpdateRequest(_Asked):
    most_fields: ClassVar[int] = _METADATA

    texts: Texts
    ids: Ids
    metadata: Metadata | None = None


class UpsertRequest(UpdateRequest):
    """Documents to add, or to replace."""


class RemoveRequest(_Asked):
    ids: Ids


_Request = TypeVar("_Request", bound=_Asked)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def request_of(kind: type[_Request], body: bytearray) -> _Request:
    """The request in a body; refused before a parser makes objects of more values than any request has."""
    most = 2 * _ITEMS + 2 * kind.most_fields  # strings: texts, IDs, names and values
    outside, strings = _STRING.subn(b"", body, most + 1)
    values = sum(map(outside.count, (b",", b"[", b"{")))
    if strings > most or values > _NUMBERS + kind.most_fields or outside.count(b":") > kind.most_fields:
        raise Refused(413, "The body has more values than a request can have.")
    return kind.model_validate_json(body)


def answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, also of arrays."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), status, headers, "application/json")


class Refused(HTTPException):
    """An answer other than 200, for a parameter."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        wait: int = 0,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, message, {"Retry-After": str(wait)} if wait else headers)
        self.param = param
        self.code = code


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_OF_TEI = {413: "Validation", 422: "Validation", 429: "Overloaded", 503: "Overloaded"}
_STATUSES = {InputError: 422, MismatchError: 422, JaxwhitenError: 503, ClientDisconnect: 499}  # as of nginx


async def refusal(request: Request, error: Exception) -> Response:
    """The answer to an error, in the shape of the path's protocol."""
    path = request.url.path
    if isinstance(error, ValidationError):
        error = _invalid(error)
    elif not isinstance(error, HTTPException):
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
        error = Refused(status, str(error) if status == 422 else f"{type(error).__name__}: {error}")
    status = error.status_code
    message = error.detail
    if status == 422 and path.startswith("/v1/"):
        status = 400
    content: Any = {"message": message, "type": _TYPES.get(status, "invalid_request_error")}
    content = {"error": {**content, "param": getattr(error, "param", None), "code": getattr(error, "code", None)}}
    if path in ("/", "/embed"):
        content = {"error": message, "error_type": _OF_TEI.get(status, "Backend")}
    return answer(content, status, error.headers)


def _invalid(error: ValidationError) -> Refused:
    """The first invalid field: of a union, the branch that came furthest."""
    first = max(error.errors(), key=lambda one: (not one["type"].endswith("_type"), len(one["loc"])))
    where = [str(part)[:80] for part in first["loc"] if isinstance(part, int) or str(part).isidentifier()]
    where = [part for part in where if part not in ("str", "int")]
    message = ": ".join([*([".".join(where)] if where else []), first["msg"].removeprefix("Value error, ")])
    return Refused(413 if first["type"] == "too_long" else 422, message, where[0] if where else None)
