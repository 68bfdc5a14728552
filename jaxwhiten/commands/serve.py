"""`jaxwhiten serve MODEL`: answers over HTTP with an encoder's vectors, and with searches of its index."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
from collections.abc import Iterator

from jaxwhiten.commands.arguments import Report, Source, add
from jaxwhiten.engines import FASTEST, HELP
from jaxwhiten.errors import Bounds, InputError, warn

KEY = "JAXWHITEN_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"If the environment variable {KEY} is set, requests must carry this key."
    add(parser, "model", "Hugging Face model ID or folder", type=Source)
    add(parser, "--index FILE", "index of texts that this model encoded, for /search", type=Source)
    add(parser, "--writable", "let requests add, update and remove documents of the index")
    add(parser, "--host ADDRESS", "address to listen on; default: 127.0.0.1", default="127.0.0.1")
    add(
        parser,
        "--port PORT",
        "port to listen on, 0 for any free one; default: 8000",
        type=Bounds(0, 65535),
        default=8000,
    )
    add(parser, "--name NAME", "name of the model in requests; default: the last part of MODEL")
    add(parser, "--engine ENGINE", f"{HELP}; default: {FASTEST}", default=FASTEST)
    add(parser, "--allow-origin ORIGIN", "origin of web pages that may call the server", action="append", default=[])
    names = "name by which requests may call the server, beside --host, localhost and IP addresses"
    add(parser, "--allow-host NAME", f"{names}; default: these, or any with a key", action="append", default=[])
    add(parser, "--access-log", "print a line on stderr for each request: caller, path, status and time")
    add(parser, "--queue N", "texts that may wait before callers get 429; default: 4096", type=Bounds(1), default=4096)
    add(
        parser,
        "--timeout SECONDS",
        "seconds for a request to arrive; default: 60",
        type=Bounds(0.0, above=True, noun="seconds"),
        default=60.0,
    )


def run(args: argparse.Namespace) -> Iterator[Report]:
    if args.writable and not args.index:
        raise InputError("`writable` changes an index: specify it with `index`.")

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.serving import application, bind, listening
    from jaxwhiten.serving.gate import ACCESS

    key = os.environ.get(KEY) or None
    bound, url = bind(args.host, args.port)
    with bound:
        if key is None and not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
            warn(f"{url} is open to the network: set {KEY}, an access key.")
        encoder = Encoder.from_pretrained(args.model, engine=args.engine)
        # A web page that points its own name at this machine has no key.
        hosts = [args.host, *args.allow_host] if args.allow_host or key is None else None
        if args.access_log:
            lines = logging.StreamHandler()
            lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            ACCESS.handlers = [lines]
            ACCESS.propagate = False
            ACCESS.setLevel(logging.INFO)
        app = application(
            encoder,
            key=key,
            hosts=hosts,
            queue=args.queue,
            seconds=args.timeout,
            name=args.name,
            index=args.index,
            writable=args.writable,
            origins=args.allow_origin,
        )
        with listening(app, bound) as serve:
            yield Report(f"Serving {args.model} on {url}", {"model": args.model, "url": url})
            serve()
