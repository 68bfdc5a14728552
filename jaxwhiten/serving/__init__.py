"""An encoder and its index over HTTP: the protocols of OpenAI and text-embeddings-inference, search, and metrics."""

from jaxwhiten.errors import optional

for _package in ("fastapi", "orjson", "uvicorn", "prometheus_client"):
    optional(_package, "serve", "Serving", _package.replace("_", "-"))

from jaxwhiten.serving.application import application
from jaxwhiten.serving.server import bind, listening

__all__ = ["application", "bind", "listening"]
