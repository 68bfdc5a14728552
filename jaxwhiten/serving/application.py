"""The application: what each path answers. `jaxwhiten.serving.listening` runs it, and any ASGI server can."""

from __future__ import annotations

import base64
import contextlib
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from jaxwhiten._version import __version__
from jaxwhiten.arrays import normalize
from jaxwhiten.codes import UBinary
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.io import PathLike
from jaxwhiten.models import folders
from jaxwhiten.serving.batching import Batcher
from jaxwhiten.serving.documents import ServedIndex
from jaxwhiten.serving.gate import Gate, Route
from jaxwhiten.serving.protocol import EmbeddingsRequest, EmbedRequest, Refused, answer
from jaxwhiten.terminal import counted
from jaxwhiten.text import prompt_named
from jaxwhiten.text.settings import read_object
from jaxwhiten.types import Json
from jaxwhiten.vectors import Vectors
from jaxwhiten.views import View


class Service:
    """An encoder and its queue, with a method for each path."""

    def __init__(self, encoder: Encoder, name: str, batcher: Batcher, registry: CollectorRegistry):
        self.encoder = encoder
        self.batcher = batcher
        self.registry = registry
        self.models = {name: "document", f"{name}:query": "query"}
        self.widths = _widths(encoder.view)
        # By the name of a prompt; one view each, since texts of one view can share a batch.
        self._prompted: Callable[[str], View] = functools.cache(
            lambda name: encoder.view.with_prompt(prompt_named(encoder.prompts, name))
        )

    async def embeddings(self, asked: EmbeddingsRequest) -> Response:
        """Vectors, as OpenAI's API; with `output_dtype`, in bytes."""
        role = asked.input_type or self.role(asked.model)
        kind = asked.output_dtype or "float"
        code = self.encoder.view.head.code
        if kind == "code" and (code is None or asked.dimensions):
            advice = "omit `dimensions`" if code else "use a folder of `jaxwhiten fit --bytes`"
            raise Refused(400, f"To get codes, {advice}.", "output_dtype")
        coded = kind == "code" or (kind == "float" and role == "document")
        view = self.encoder.view.in_role(role, coded=coded)
        rows, tokens, cut = await self.batcher.encode(view, asked.input)
        rows = np.asarray(rows) if kind == "code" else self.leading(rows, asked.dimensions)
        decode: Any = {"code": "/v1/code"} if kind == "code" else {"dimensions": rows.shape[1]}
        if kind == "ubinary":
            rows = UBinary.quantize(rows, {})
        elif kind == "int8":
            scales = np.maximum(np.abs(rows).max(axis=1) / 127, np.finfo(np.float32).tiny)
            rows, decode["scales"] = np.rint(rows / scales[:, None]).astype(np.int8), scales
        items: Any = list(np.ascontiguousarray(rows))
        if asked.encoding_format == "base64":  # of float32 for bytes, too: OpenAI's clients ask for it, and read that
            items = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
        data = [{"object": "embedding", "index": i, "embedding": item} for i, item in enumerate(items)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "truncated": cut}
        return answer({"object": "list", "data": data, "model": asked.model, "usage": usage, "decode": decode})

    async def embed(self, asked: EmbedRequest) -> Response:
        """Vectors, as text-embeddings-inference."""
        view = self.encoder.documents if asked.prompt_name is None else self._prompted(asked.prompt_name)
        rows, _, cut = await self.batcher.encode(view, asked.inputs)
        if asked.truncate is False and cut:
            raise Refused(422, f"inputs: more than {self.encoder.max_length} tokens in {counted(cut, 'texts')}.")
        rows = self.leading(rows, asked.dimensions)
        return answer(np.ascontiguousarray(rows if asked.normalize is False else normalize(rows)))

    def leading(self, rows: np.ndarray, width: int | None) -> np.ndarray:
        """The leading columns, which like decoded codes have unit length."""
        if isinstance(rows, Vectors) and rows.code is not None:
            rows = normalize(rows.decode())
        if width in (None, rows.shape[1]):
            return rows
        if width not in self.widths:
            reason = f"use one of {self.widths}" if self.widths else "the model has no whitening: omit `dimensions`"
            raise Refused(422, f"dimensions={width}: vectors have {rows.shape[1]}; {reason}.", "dimensions")
        return normalize(rows[:, :width])

    def role(self, model: str) -> str:
        """The role of texts for a name of the model; refused for other names."""
        if model not in self.models:
            message = f"Model {model!r:.80} does not exist: use {' or '.join(self.models)}."
            raise Refused(404, message, "model", "model_not_found")
        return self.models[model]

    async def list_models(self) -> Response:
        """The names of the model, for documents and for queries."""
        return answer({"object": "list", "data": [_about(name) for name in self.models]})

    async def model(self, model: str) -> Response:
        """One of the names."""
        self.role(model)
        return answer(_about(model))

    async def code(self) -> Response:
        """The file of the code, which `jaxwhiten.codes.load_code` reads."""
        if self.encoder.view.head.code is None:
            raise Refused(404, "The model has no code.")
        with tempfile.TemporaryDirectory() as folder:
            self.encoder.view.head.code.save(path := Path(folder) / "code.safetensors")
            return Response(path.read_bytes(), media_type="application/octet-stream")

    async def search(self) -> Response:
        """Searches need an index."""
        raise Refused(404, "This server has no index: start it with --index, a file of `jaxwhiten index`.")

    async def health(self) -> Response:
        """That the encoder is compiled: the server answers nothing before."""
        return answer({"status": "ok"})

    async def metrics(self) -> Response:
        """Counts and times, for Prometheus."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


def _about(model: str) -> Json:
    return {"id": model, "object": "model", "created": 0, "owned_by": "jaxwhiten"}


def _widths(view: View) -> Sequence[int]:
    """The numbers of leading columns that are vectors themselves: any of a whitening, or what the folder declares."""
    if view.head.whitening is not None:
        return range(1, view.columns + 1)
    with contextlib.suppress(OSError, ValueError, JaxwhitenError):  # an encoder made in memory has no folder
        folder = folders.ModelFolder(folders.resolve_folder(view.core.name)).transformer
        return sorted(read_object(folder / "config.json").get("matryoshka_dimensions", ()))
    return ()


def application(
    encoder: Encoder,
    *,
    name: str | None = None,
    index: PathLike | None = None,
    writable: bool = False,
    key: str | None = None,
    origins: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
    queue: int = 4096,
    seconds: float = 60.0,
) -> FastAPI:
    """The ASGI application of an encoder, which is compiled first.

    Args:
      name: Name of the model in requests; by default the last part of the encoder's.
      index: Folder of an index to search, whose texts this encoder encoded; MismatchError otherwise.
      writable: Whether requests may change the index.
      key: Access key that requests must carry.
      origins: Origins of web pages that may call it, such as `https://example.org`.
      hosts: Names by which requests may call the server, beside `localhost` and IP addresses; others get status 421,
        such as web pages that point a name of their own at it. None allows any name.
      queue: Texts that may wait before callers get status 429.
      seconds: Time for a request to arrive, before its caller gets status 408. Then it is answered, however long that
        takes, unless its caller goes away.
    """
    registry = CollectorRegistry()
    batcher = Batcher(queue, registry)
    service = Service(encoder, name or Path(encoder.name).name, batcher, registry)
    views = dict.fromkeys([encoder.documents, encoder.view.float_documents])
    posts: dict[str, Callable[..., Any]] = {
        "/v1/embeddings": service.embeddings,
        "/embed": service.embed,
        "/": service.embed,
        "/search": service.search,
    }
    gets: dict[str, Callable[..., Any]] = {
        "/v1/models": service.list_models,
        "/v1/models/{model:path}": service.model,
        "/v1/code": service.code,
        "/health": service.health,
        "/metrics": service.metrics,
    }
    if index:
        documents = ServedIndex(index, encoder, batcher, registry, writable=writable)
        views[documents.current().query] = None
        posts["/search"] = documents.search
        if writable:
            posts |= {
                "/add": documents.add,
                "/update": documents.update,
                "/upsert": documents.upsert,
                "/remove": documents.remove,
            }
    batcher.warm_up(views)
    statuses = (400, 401, 404, 408, 413, 415, 421, 422, 429, 503)
    refused: Any = {status: {"description": "Refused"} for status in statuses}
    app = FastAPI(
        title="jaxwhiten",
        version=__version__,
        responses=refused,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.gate = Gate(key, hosts, seconds, registry)
    app.router.route_class = Route
    app.add_exception_handler(HTTPException, app.state.gate.unknown)
    for path, call in posts.items():
        app.post(path)(call)

    async def described() -> Response:
        """This description."""
        return answer(app.openapi())

    for path, call in (gets | {"/openapi.json": described}).items():
        app.get(path, response_class=Response)(call)
        app.head(path, include_in_schema=False)(call)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    return app
