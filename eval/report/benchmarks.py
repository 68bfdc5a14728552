"""Tables of what the benchmarks wrote, for `eval.tables`: places named `benchmarks/NAME VIEW` in README and docs.

`runs/benchmarks/NAME.json`, where it is there, is kept in benchmarks/results first, so that every table can be made
again from what is in the repository.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from eval.report.cut import cut
from eval.report.table import Table
from jaxwhiten import io
from jaxwhiten.errors import unknown_name

PREFIX, ALL = "benchmarks/", "all"
# Peers by the precision of what they are compared with.
PEERS = {
    "float32": ("sentence-transformers", "sentence-transformers, backend onnx", "ONNX Runtime", "OpenVINO float32"),
    "bfloat16": (
        "sentence-transformers bfloat16",
        "sentence-transformers, backend openvino",  # by its vectors
        "OpenVINO bfloat16",
    ),
    "int8": ("ONNX Runtime int8", "OpenVINO int8"),
}
MADE, KEPT = Path("runs/benchmarks"), Path("benchmarks/results")
Result = dict[str, Any]


def load(name: str) -> Result | None:
    """What a benchmark wrote, kept from runs/ or kept before; None without either. `all` is those with headlines."""
    if name == ALL:
        parts = [load(part) for part in HEADLINES]
        return None if None in parts else {"name": ALL, "parts": parts}
    made, kept = MADE / f"{name}.json", KEPT / f"{name}.json"
    if made.is_file():
        KEPT.mkdir(parents=True, exist_ok=True)
        io.write_text(kept, made.read_text(encoding="utf-8"))
    return {"name": name, **json.loads(kept.read_text(encoding="utf-8"))} if kept.is_file() else None


def table_of(result: Result, view: str, conditions: Sequence[str]) -> Table | None:
    """A view of a result, cut to the conditions."""
    if view not in VIEWS:
        raise unknown_name("table", view, VIEWS)
    table = cut(VIEWS[view](result), conditions)
    return dataclasses.replace(table, rows=merged(table.rows)) if table.rows else None


def speed_table(result: Result) -> Table:
    """How many times as fast as each peer ours is."""
    rows = [[what, beside, times(ratio)] for what, beside, ratio in RATIOS[result["name"]](result)]
    return Table(("what", "beside", "ratio"), rows, 2, notes=(machine(result),))


def headline_table(results: Result) -> Table:
    """What README shows: some rows of every `speed_table`."""
    rows = [
        [_short(row[0]), peer, row[2]]
        for result in results["parts"]
        for row in speed_table(result).rows
        if HEADLINES[result["name"]][0] in row[0]
        and (peer := row[1].partition(", off")[0]) in HEADLINES[result["name"]][1]
    ]
    return Table(("job", "compared with", "their time ÷ ours"), rows, 2)


def _short(what: str) -> str:
    """A measurement in few words, with the dtype where it is not the default."""
    dtype = what.partition(", dtype ")[2]
    return what.partition(", ")[0] + (f", dtype {dtype}" if dtype else "")


def encode_table(result: Result) -> Table:
    """Every contestant: rate, our speed as a multiple of its, minimum cosine to ours, Spearman's correlation."""
    rows = []
    for part in result["results"]:
        what = f"{part['encoder']}, {part['texts']}, {part['tokens_a_text']:.0f} tokens"
        for name, row in part["contestants"].items():
            ratio = "" if name == "jaxwhiten" else times(row["speed_of_ours"])
            cells = [number(row["texts_per_second"], 0), ratio]
            cells += [number(row["minimum_cosine"], 4), number(row["spearman"])]
            rows.append([what, name, *cells, number(row["first_call_seconds"], 1)])
    columns = ("texts", "contestant", "texts/s", "ours is faster by", "min cosine", "Spearman", "first call, s")
    skipped = {name: why for part in result["results"] for name, why in part["skipped"].items()}
    missing = [f"Skipped: {'; '.join(f'{name} ({why})' for name, why in skipped.items())}."] if skipped else []
    return Table(columns, rows, 2, notes=(*missing, machine(result)))


def lists_table(result: Result) -> Table:
    """Inverted lists of raw vectors and of the controls, at equal recall."""
    rows = []
    for name, part in result["encoders"].items():
        for vectors, row in part.get("ivf", {}).items():
            cells = [
                number(row["mean_cosine"]),
                number(row["mrr_at_10"], 3),
                str(row["effort"]),
                number(row["recall"], 3),
            ]
            cells += [number(row["ms_a_query"], 3), times(row["speed_to_raw"]), number(row["single_ms"], 3)]
            rows.append([f"{name}, {part['documents']:,}", vectors, *cells])
    columns = ("encoder, documents", "vectors", "mean cosine", "exact MRR@10", "nprobe", "recall@10", "ms per query")
    return Table((*columns, "times raw's speed", "one by one, ms"), rows, 2, notes=(machine(result),))


def codes_table(result: Result) -> Table:
    """Scans of codes beside float32."""
    rows = []
    for name, part in result["encoders"].items():
        for code, row in part["codes"].items():
            cells = [str(row["bytes"]), number(row["memory_mb"], 1), number(row["mrr_at_10"], 3)]
            cells += [number(row["recall_at_10"], 3), number(row["ms_a_query"], 3), times(row["speed_to_float32"])]
            cells += [number(row["single_ms"], 3), number(row["build_seconds"], 1)]
            rows.append([f"{name}, {part['documents']:,}", code, *cells])
    columns = (
        "encoder, documents",
        "code",
        "bytes",
        "MB",
        "MRR@10",
        "recall@10",
        "ms per query",
        "times float32's speed",
    )
    return Table((*columns, "one by one, ms", "build, s"), rows, 2, notes=(machine(result),))


def code_times_table(result: Result) -> Table:
    """Fit, coding and search of a code beside those of another commit."""
    names = {
        "fit_cpu_ms": "fit a code from moments, CPU time",
        "coding_cpu_ms": f"code {result['documents']:,} vectors, CPU time",
        "search_p50_ms": f"a query among {result['documents']:,}, p50",
    }
    rows = [
        [names[what], number(part["before"], 1), number(part["now"], 1), number(part["now"] / part["before"])]
        for what, part in result["parts"].items()
    ]
    return Table(("least of all rounds", "before, ms", "now, ms", "now ÷ before"), rows, notes=(machine(result),))


def latency_table(result: Result) -> Table:
    """Calls one after the other: a query to its vector, texts of fixed lengths to theirs, and a query to ids."""
    lengths = {f"{length} tokens to vector": part for length, part in result["lengths"].items()}
    parts = {"text to vector": result["query"], **lengths, "text to ids": result["search"]}
    rows = [
        [what, name, number(row["p50_ms"]), number(row["p99_ms"]), times(row["times_the_fastest"])]
        for what, part in parts.items()
        for name, row in sorted(part.items(), key=lambda item: float(item[1]["p50_ms"]))
    ]
    return Table(("what", "contestant", "p50, ms", "p99, ms", "times the fastest's"), rows, 2, notes=(machine(result),))


def processors_table(result: Result) -> Table:
    """One query at a time: each kind of processor, idle and busy."""
    rows = [
        [f"{processor}, {load}", name, number(row["p50_ms"]), number(row["p99_ms"]), times(row["times_the_fastest"])]
        for processor, loads in result["processors"].items()
        for load, part in loads.items()
        for name, row in sorted(part.items(), key=lambda item: float(item[1]["p50_ms"]))
    ]
    columns = ("processor", "contestant", "p50, ms", "p99, ms", "times the fastest's")
    return Table(columns, rows, 2, notes=(machine(result),))


def documents_table(result: Result) -> Table:
    """Documents of 512 tokens."""
    rows = [
        [name, number(row["per_second"], 1), "" if name == "jaxwhiten" else times(row["speed_of_ours"])]
        for name, row in result["documents"].items()
    ]
    return Table(("contestant", "documents/s", "jaxwhiten is faster by"), rows)


def long_texts_table(result: Result) -> Table:
    """Seconds for one long text, and growth of the process in MB."""
    rows = [
        [f"{int(length):,}", name, number(median(row["seconds"])), number(row["grown_mb"], 0)]
        for length, part in result["lengths"].items()
        for name, row in part.items()
    ]
    return Table(("tokens", "contestant", "seconds", "growth, MB"), rows, 2, notes=(machine(result),))


def database_maps_table(result: Result) -> Table:
    """MRR@10 in points of each database, one column per map. A star marks a significant difference to the head."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    whole: dict[str, str] = {}
    for row in result["quality"]:
        vectors, points = f"{row['encoder']}, {row['data']}", number(100 * row["mrr_at_10"], 1)
        if row["database"] == "float32":
            whole[vectors] = points
            continue
        lead = row.get("head_less_this")
        mark = "∗" if lead and (lead[1] > 0 or lead[2] < 0) else ""
        name = "raw or truncated" if row["map"] in ("raw", "truncated") else row["map"]
        found.setdefault((vectors, str(row["size"]), row["database"]), {})[name] = points + mark
    maps = ("raw or truncated", "PCA", "random rotation", "head")
    rows = [
        [*what, whole[what[0]], *found[(*what[:2], "jaxwhiten")].values(), *(cells.get(name, "") for name in maps)]
        for what, cells in sorted(found.items())
        if what[2] != "jaxwhiten"
    ]
    columns = ("vectors", "size", "database", "float32", "our index", *maps)
    return Table(columns, rows, 3, notes=(machine(result),))


def database_times_table(result: Result) -> Table:
    """Seconds to fill a database and milliseconds of a query, beside our index."""
    held = ((1, ("bytes", "build_seconds")), (2, ("p50_ms", "p99_ms")))
    rows = [
        [row["database"], *(number(row[key], digits) for digits, pair in held for key in pair)]
        for row in result["times"]
    ]
    return Table(("database", "bytes held", "fill, s", "p50, ms", "p99, ms"), rows, 1, notes=(machine(result),))


def engines_table(result: Result) -> Table:
    """A corpus on every engine beside plain `encode`."""
    rows = [
        [f"{result['sentences']:,}", name]
        + [number(row["rate"], 0), number(row["of_encode"]), number(row["start_seconds"], 0)]
        + [_figure(row[key]) for key in ("vectors_off_encode", "moments_off")]
        for name, row in result["engines"].items()
        if name != "encode"
    ]
    columns = ("sentences", "engine", "sentences/s", "of encode", "start, s", "vectors off", "moments off")
    return Table(columns, rows, 2, notes=(machine(result),))


def serving_table(result: Result) -> Table:
    """Requests over HTTP: rate and times of each server, and how many times as fast ours is."""
    rows = []
    for row in result["rows"]:
        what = f"{row['texts']}, {row['clients']} client{'s' if row['clients'] > 1 else ''}"
        figures = [number(row.get(key), 1) for key in ("per_second", "p50_ms", "p99_ms", "cpu_ms")]
        ratio = "" if row["server"] == "jaxwhiten" else times(row["speed_of_ours"])
        rows.append([what, row["server"], *figures, str(row["errors"]), ratio])
    columns = ("texts", "server", "requests/s", "p50, ms", "p99, ms", "CPU ms per request", "errors")
    return Table((*columns, "jaxwhiten is faster by"), rows, 2, notes=(machine(result),))


def serving_faults_table(result: Result) -> Table:
    """What clients of each kind got, and how long answers took."""
    answers, clients, times = result["answers"], result["clients"], result.get("times")
    statuses = sorted({status for counts in answers.values() for status in counts})
    order = list(clients)
    rows = []
    for name in sorted(answers, key=lambda name: (order.index(name.partition(",")[0]), name)):
        row = [name, str(clients.get(name, "")), *(f"{answers[name].get(status, 0):,}" for status in statuses)]
        taken = (times or {}).get(name, {})
        rows.append([*row, *(number(taken.get(key)) for key in ("p50_seconds", "p99_seconds") if times)])
    columns = ("clients", "number", *statuses, *(("p50, s", "p99, s") if times else ()))
    return Table(columns, rows, 1, notes=(machine(result),))


def batches_table(result: Result) -> Table:
    """Full scans by float32 and by codes: what they find, and how long a query takes by queries in a call."""
    batches = list(dict.fromkeys(row["queries"] for row in result["rows"]))
    paused = "ms_after_a_pause" in result["rows"][0]
    found: dict[tuple[int, int, str], dict[int, Mapping[str, Any]]] = {}
    for row in result["rows"]:
        found.setdefault((row["documents"], row["bytes"], row["index"]), {})[row["queries"]] = row
    rows = []
    for (documents, size, name), of_batch in found.items():
        recall = next(iter(of_batch.values()))["recall"]
        cells = [number(of_batch[batches[0]]["ms_after_a_pause"], 3)] if paused else []
        cells += [number(of_batch.get(batch, {}).get("ms_a_query"), 3) for batch in batches]
        one = of_batch[batches[0]]["speed_to_float32"]
        rows.append([f"{documents:,}", f"{size}", name, f"{recall:.3f}", *cells, times(one)])
    shown = ["1 after a pause, ms"] if paused else []
    shown += [f"{batch:,} a call, ms" for batch in batches]
    columns = ("documents", "bytes", "index", "recall@10", *shown)
    return Table((*columns, "one query, float32 ÷ it"), rows, 3, notes=(machine(result),))


def growth_table(result: Result) -> Table:
    """What building, loading, one query and a saved change take by the number of documents."""
    names = ("build_s", "build_mb", "folder_mb", "load_s", "load_mb", "p50_ms", "p99_ms", "save_s")
    digits = (1, 0, 0, 2, 0, 2, 2, 3)
    rows = [
        [f"{row['documents']:,}", row["index"]]
        + [number(row[name], places) for name, places in zip(names, digits, strict=True)]
        for row in result["rows"]
    ]
    columns = ("documents", "index", "build, s", "build, MB", "folder, MB", "first hit, s", "loaded, MB")
    return Table((*columns, "p50, ms", "p99, ms", "change saved, s"), rows, 2, notes=(machine(result),))


def lance_table(result: Result) -> Table:
    """Codes in LanceDB's index: recall@10, bytes of the index a document, and time of a query."""
    rows = [
        [str(row["bytes"]), str(row["partitions"] or ""), row["index"], f"{row['recall']:.3f}"]
        + [number(row.get(name), 1) for name in ("index_bytes", "ms")]
        for row in result["rows"]
    ]
    columns = ("bytes", "partitions", "index", "recall@10", "bytes of the index", "ms per query")
    return Table(columns, rows, 3, notes=(machine(result),))


def families_table(result: Result) -> Table:
    """Every family: names, and what was measured of it on a random folder."""
    rows = []
    for name, row in result["rows"].items():
        engines = "; ".join(f"{engine} {_figure(x)}" for engine, x in row["engines"].items()) or "not measured"
        training = row["training"].replace(" of ", "/").removesuffix(" tensors")
        rows.append(
            [f"`{name}`", row["hub"], f"{row['states']:.0e}", engines, row["pooling"], training, row["against"]]
        )
        rows[-1].append(str(len(row["golden"])))
    columns = ("family", "hub names known to be of it", "states off by", "vectors off by, by engine")
    return Table((*columns, "pooling", "training", "compared with", "golden cases"), rows, notes=(machine(result),))


def device_table(result: Result) -> Table:
    """Encoding on a GPU, compared with sentence-transformers there."""
    rows = []
    for part in result["parts"]["encode"]["results"]:
        texts = f"{part['encoder']}, {part['texts']}, {part['tokens_a_text']:.0f} tokens"
        contestants = part["contestants"]
        for peer in [name for name in contestants if name != "jaxwhiten"]:
            batches = peer.partition(", ")[2] or "batches of 32"
            speeds = [f"{contestants[name]['texts_per_second']:,.0f}" for name in ("jaxwhiten", peer)]
            rows.append([texts, f"{part['count']:,}", batches, *speeds, times(contestants[peer]["speed_of_ours"])])
    columns = ("encoder, texts", "number", "compared with sentence-transformers in", "ours, texts/s", "theirs, texts/s")
    return Table((*columns, "their time ÷ ours"), rows, 3)


def coded_search_table(result: Result) -> Table:
    """Milliseconds of a search of codes on a GPU, of float32 there, and of FAISS's scan of the codes on the CPU."""
    shown: dict[tuple[int, int, int], list[str]] = {}
    for row in result["parts"]["coded_search"]["rows"]:
        key, taken = (row["documents"], row["queries"], row["bytes"]), row["milliseconds"]
        way = "bytes" if row["queries"] <= 4 else "gather"
        ours = min(of for name, of in taken.items() if name.split(",")[0] == way and "tiles of 32" not in name)
        figures = [number(of) for of in (ours, taken["float32"], taken.get("faiss"))]
        shown.setdefault(key, [f"{key[0]:,}", f"{key[1]:,}", str(key[2]), *figures])
    columns = ("documents", "queries", "bytes", "codes, ms", "float32, ms", "FAISS's fast scan, 16 cores, ms")
    return Table(columns, [shown[key] for key in sorted(shown)], 3)


def _figure(value: float | str) -> str:
    """An error in one digit, or why there is none."""
    return value if isinstance(value, str) else f"{value:.0e}"


def _encode(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    for part in result["results"]:
        what = f"encode {part['texts']} texts, {part['encoder']}, {part['tokens_a_text']:.0f} tokens"
        rows = part["contestants"]
        for name, row in rows.items():
            if name != "jaxwhiten" and name not in PEERS["bfloat16"] + PEERS["int8"]:
                yield what, name, row["speed_of_ours"]
        for dtype in ("bfloat16", "int8"):
            for peer in PEERS[dtype]:
                if (ours := rows.get(f"jaxwhiten, {dtype}")) and peer in rows:
                    yield f"{what}, dtype {dtype}", peer, _between(ours, rows[peer])


def _between(ours: Result, peer: Result) -> Mapping[str, float]:
    """The ratio of two that were timed beside the same third, its range at the widest."""
    a, b = peer["speed_of_ours"], ours["speed_of_ours"]
    return {"median": a["median"] / b["median"], "low": a["low"] / b["high"], "high": a["high"] / b["low"]}


_STARTS = {
    "jaxwhiten, cold": "ten vectors, nothing compiled before",
    "jaxwhiten, warm": "ten vectors, all compiled before",
    "jaxwhiten search": "the hits of a query",
    "jaxwhiten encode": "a file of ten vectors",
}


def _cold_start(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    for name, ratios in result["ratio"].items():
        what = f"process start to {_STARTS.get(name, name)}"
        for peer, ratio in ratios.items():
            yield what, peer, ratio


def _whitening_fit(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    what = f"fit a whitening on {result['rows']:,} × {result['width']}, off by {result['error']['jaxwhiten']:.0e}"
    for name, ratio in result["ratio"].items():
        error = result["error"].get(name)
        yield what, name if error is None else f"{name}, off by {error:.0e}", ratio


def _whitening_transform(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    for columns, part in result.items():
        if columns.startswith("to "):
            for name, ratio in part["ratio"].items():
                yield f"whiten {result['rows']:,} × {result['width']} {columns} columns", name, ratio


def _train_throughput(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    what = f"a training step of {result['setting']['data']}, batch {result['setting']['batch_size']}"
    yield what, "sentence-transformers", result["ratio"]


def _search_scale(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    exact = result["exact"]
    for width in ("768", "256"):
        what = f"exact search of {exact['documents']:,} × {width}, {exact['queries']:,} queries, JAX"
        yield what, "FAISS flat, its fastest setting of threads", exact[width]["jax_times_as_fast"]


def _search_batches(result: Result) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    for row in result["rows"]:
        if (row["index"], row["queries"]) == ("jaxwhiten", 1):
            what = f"find ten of {row['documents']:,} vectors by codes of {row['bytes']} bytes"
            yield what, "FAISS float32", row["speed_to_float32"]


RATIOS: Mapping[str, Callable[[Result], Iterator[tuple[str, str, Mapping[str, float]]]]] = {
    "encode": _encode,
    "cold_start": _cold_start,
    "whitening_fit": _whitening_fit,
    "whitening_transform": _whitening_transform,
    "train_throughput": _train_throughput,
    "search_scale": _search_scale,
    "search_batches": _search_batches,
}
# Words in the first column, and peers.
HEADLINES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "encode": (
        "mixed texts, all-MiniLM",
        sum(PEERS.values(), ()),
    ),
    "cold_start": (
        "all compiled",
        ("sentence-transformers", "tokenizers and ONNX Runtime", "tokenizers and OpenVINO"),
    ),
    "whitening_fit": ("", ("sklearn PCA",)),
    "train_throughput": ("", ("sentence-transformers",)),
    "search_batches": ("by codes of 96 bytes", ("FAISS float32",)),
}
VIEWS: Mapping[str, Callable[[Result], Table]] = {
    "speed_table": speed_table,
    "headline_table": headline_table,
    "encode_table": encode_table,
    "device_table": device_table,
    "coded_search_table": coded_search_table,
    "lists_table": lists_table,
    "codes_table": codes_table,
    "code_times_table": code_times_table,
    "latency_table": latency_table,
    "documents_table": documents_table,
    "long_texts_table": long_texts_table,
    "engines_table": engines_table,
    "batches_table": batches_table,
    "families_table": families_table,
    "growth_table": growth_table,
    "lance_table": lance_table,
    "serving_table": serving_table,
    "processors_table": processors_table,
    "serving_faults_table": serving_faults_table,
    "database_maps_table": database_maps_table,
    "database_times_table": database_times_table,
}


def times(ratio: Mapping[str, float]) -> str:
    """A ratio with its range."""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def number(value: float | None, digits: int = 2) -> str:
    """A number as a cell, empty where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def merged(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows whose first cell stands once, above those that share it."""
    return [["" if i and row[0] == rows[i - 1][0] else row[0], *row[1:]] for i, row in enumerate(rows)]


def machine(result: Result) -> str:
    """Where and when a result was made; its JSON file has the versions and the flags of the processor."""
    found = result["machine"]
    load = found.get("load_at_start")
    before = "" if load is None else f", load {load:.1f} at the start"
    return f"`{result['command']}`, {found['date']}, {found['cores']} cores of {found['cpu']}{before}."
