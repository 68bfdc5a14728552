"""`jaxwhiten serve`: answers over HTTP with an encoder's vectors, and with searches of its index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from jaxwhiten.commands.arguments import Report, Source
from jaxwhiten.errors import REASON, Bounds, InputError, JaxwhitenError, turning, warn

KEY = "JAXWHITEN_API_KEY"


def serve(
    model: Source,
    /,
    *,
    index: Source | None = None,
    writable: bool = False,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    engine: str = "auto",
    allow_origin: Sequence[str] = (),
    allow_host: Sequence[str] = (),
    access_log: bool = False,
    queue: int = 4096,
    timeout: float = 60.0,
) -> Iterator[Report]:
    """Answer over HTTP with a model's vectors and searches of its index.

    If the environment variable JAXWHITEN_API_KEY is set, requests must carry this key.

    Args:
      model: Hugging Face model ID or folder
      index: index of texts that this model encoded, for /search
      writable: let requests add, update and remove documents of the index
      host: address to listen on
      port: port to listen on, 0 for any free one
      name: name of the model in requests; default: the last part of MODEL
      engine: auto (the fastest here), jax, or openvino on CPUs
      allow_origin: origin of web pages that may call the server
      allow_host: name by which requests may call the server, beside --host, localhost and IP addresses; default: these,
        or any with a key
      access_log: print a line on stderr for each request: caller, path, status and time
      queue: texts that may wait before callers get 429
      timeout: seconds for a request to arrive

    Examples:
      jaxwhiten serve small/ --index docs.db --port 8080
    """
    Bounds(0, 65535).check("port", port)
    Bounds(1).check("queue", queue)
    Bounds(0.0, above=True).check("timeout", timeout)
    if writable and not index:
        raise InputError("`writable` changes an index: specify it with `index`.")

    import ipaddress
    import logging

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.serving import application, bind, listening
    from jaxwhiten.serving.gate import ACCESS

    key = os.environ.get(KEY) or None
    refused = f"port={port}: cannot be listened on at {host} ({REASON}): choose another one, or 0 for any."
    with turning(JaxwhitenError, refused, OSError):
        bound, url = bind(host, port)
    with bound:
        if key is None and not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
            warn(f"{url} is open to the network: set {KEY}, an access key.")
        if access_log:
            lines = logging.StreamHandler()
            lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            ACCESS.handlers = [lines]
            ACCESS.propagate = False
            ACCESS.setLevel(logging.INFO)
        app = application(
            Encoder.from_pretrained(model, engine=engine),
            key=key,
            # A web page that points its own name at this machine has no key.
            hosts=[host, *allow_host] if allow_host or key is None else None,
            queue=queue,
            seconds=timeout,
            name=name,
            index=index,
            writable=writable,
            origins=allow_origin,
        )
        with listening(app, bound) as run:
            yield Report(f"Serving {model} on {url}", {"model": model, "url": url})
            run()
