"""A corpus on each engine beside plain `encode`: rates, moments, vectors and memory.

    python -m benchmarks.engines [--rows 20000] [--many 1000000] [--parts rates,memory]
    python -m benchmarks.engines --parts rates --rows 1000000 --slices 4 --engines encode,Ray --folder DIR --minutes 5

The corpus are sentences of text/enwiki below the data folder. An engine's rate is that of the rows beyond a first run
on few of them, so that its start and the compilation count apart. Long rates are measured in slices, engines in turn; a
command that ran out of minutes goes on in its folder. Memory is measured with a static encoder, whose vectors cost
little, on `--many` rows. Every run is a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import flat, save
from eval.plotting import COLOURS, new_figure
from eval.runs import Run
from jaxwhiten import Encoder, Moments
from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.runners import Parts, Source, embed_files

MODEL = "jaxwhiten-tiny"
PART_ROWS = 2048
WORKERS = 2
MARK = "JAXWHITEN_BENCHMARKS_RUN"  # the processes that a run starts, wherever they are in the tree, inherit it
MAX_LENGTH = 64


def sentences() -> Iterator[str]:
    """Sentences of the paragraphs."""
    for passage in Corpus(corpus_files(Path(os.environ["JAXWHITEN_DATA_DIR"], "text", "enwiki"))).passages():
        yield from (part for part in re.split(r"(?<=[.!?]) +", passage) if len(part.split()) > 3)


def write(folder: Path, rows: int, texts: Iterator[str]) -> None:
    """The corpus as text and as Parquet, in files of a quarter."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    quarter = -(-rows // 4)
    with open(folder / "a.txt", "w", encoding="utf-8") as file:
        for start in range(0, rows, quarter):
            block = [next(texts) for _ in range(min(quarter, rows - start))]
            file.writelines(text + "\n" for text in block)
            ids = pa.array(range(start, start + len(block)))
            pq.write_table(
                pa.table({"id": ids, "text": block}), folder / f"{start:09d}.parquet", row_group_size=PART_ROWS
            )


def load(model: str) -> Encoder:
    return Encoder.from_pretrained(model, pooling="mean", max_length=MAX_LENGTH)


def plain(folder: Path, model: str) -> None:
    encoder = load(model)
    texts = (folder / "a.txt").read_text(encoding="utf-8").splitlines()
    np.save(folder / "plain.npy", encoder.encode(texts, show_progress=False))


def parts(folder: Path, model: str, runner: str = "local") -> None:
    embed_files(
        [Source(str(folder / "a.txt"))],
        folder / runner,
        load(model),
        runner=runner,
        workers=WORKERS,
        part_rows=PART_ROWS,
        moments=True,
        show_progress=False,
    )


def ray(folder: Path, model: str) -> None:
    parts(folder, model, "ray")


def on_beam(folder: Path, model: str) -> None:
    import apache_beam as beam
    import pyarrow as pa

    from jaxwhiten.runners.beam import Embed, FitMoments

    with beam.Pipeline(runner="DirectRunner") as pipeline:
        embed = Embed(model, id_column="id", pooling="mean", max_length=MAX_LENGTH)
        embedded = pipeline | beam.io.ReadFromParquetBatched(f"{folder}/*.parquet") | embed
        width = load(model).dimension
        schema = pa.schema({"id": pa.int64(), "vector": pa.list_(pa.float32(), width)})
        embedded.vectors | beam.io.WriteToParquetBatched(f"{folder}/beam/v", schema, file_name_suffix=".parquet")
        moments = embedded.vectors | beam.CombineGlobally(FitMoments())
        moments | beam.Map(lambda moments: moments.save(f"{folder}/beam.safetensors"))


def on_spark(folder: Path, model: str) -> None:
    from pyspark.sql import SparkSession

    from jaxwhiten.runners.spark import embed, fit

    spark = SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", False).getOrCreate()
    texts = spark.read.parquet(*map(str, sorted(folder.glob("*.parquet"))))
    embedded = embed(texts, model, id_column="id", pooling="mean", max_length=MAX_LENGTH)
    embedded.write.parquet(f"{folder}/spark")
    fit(spark.read.parquet(f"{folder}/spark")).save(f"{folder}/spark.safetensors")
    spark.stop()


OUTPUTS = {
    "encode": "plain.npy",
    "local parts": "local",
    "Ray": "ray",
    "Beam DirectRunner": "beam",
    "Spark local[2]": "spark",
}
RUNS: dict[str, Callable[[Path, str], None]] = {
    "encode": plain,
    "local parts": parts,
    "Ray": ray,
    "Beam DirectRunner": on_beam,
    "Spark local[2]": on_spark,
}


def watched(name: str, folder: Path, model: str) -> dict[str, float]:
    """A run in a process of its own: its seconds, and the most that the driver and any worker in Python held."""
    mark = secrets.token_hex(8)
    peak = {"driver": 0, "worker": 0}
    going = threading.Event()
    environment = {**os.environ, MARK: mark, "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}
    words = [sys.executable, "-m", "benchmarks.engines", "--run", name, str(folder), model]
    start = time.perf_counter()
    with open(folder / "log", "wb") as log, subprocess.Popen(words, env=environment, stdout=log, stderr=log) as child:

        def watch() -> None:
            while not going.wait(0.25):
                for process in Path("/proc").glob("[0-9]*"):
                    try:
                        marked = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
                        if not marked or not re.search(rb"python|ray::", (process / "cmdline").read_bytes()):
                            continue
                        size = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                    except (OSError, IndexError):
                        continue
                    kind = "driver" if int(process.name) == child.pid else "worker"
                    peak[kind] = max(peak[kind], size)

        thread = threading.Thread(target=watch)
        thread.start()
        child.wait()
        going.set()
        thread.join()
    if child.returncode:
        raise SystemExit((folder / "log").read_text()[-3000:])
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "driver_mb": peak["driver"] / 1e6, "worker_mb": peak["worker"] / 1e6}


def written(name: str, folder: Path) -> tuple[np.ndarray, Moments]:
    """What a run wrote, in the order of the corpus, and its moments."""
    if name in ("local parts", "Ray"):
        shards = Parts(folder / ("ray" if name == "Ray" else "local"))
        return shards.all()[1], shards.moments()
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = name.split()[0].lower()
    table = pa.concat_tables([pq.read_table(file) for file in sorted((folder / kind).glob("*.parquet"))]).sort_by("id")
    assert table["id"].to_pylist() == list(range(len(table)))
    flat = table["vector"].combine_chunks().flatten().to_numpy()
    return flat.reshape(len(table), -1), Moments.load(folder / f"{kind}.safetensors")


def rates(scratch: Path, rows: int, names: list[str], slices: int, end: float) -> dict[str, Any] | None:
    """Every engine on few rows, and on all of them in slices, in turn; None if there was no time for all runs."""
    start_rows = min(rows // 4, 20_000)
    size = rows // slices
    record = scratch / "runs.json"
    runs = {}
    if record.is_file():
        runs = json.loads(record.read_text())
    for part, start, count in [("few", 0, start_rows), *((str(i), i * size, size) for i in range(slices))]:
        folder = scratch / part
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            write(folder, count, itertools.islice(sentences(), start, None))
            (folder / "complete").touch()
        for name in names:
            if (key := f"{name}, {part}") in runs:
                continue
            if time.monotonic() > end:
                print("no time left: the same command goes on")
                return None
            for output in (OUTPUTS[name], f"{OUTPUTS[name]}.safetensors"):
                shutil.rmtree(folder / output, ignore_errors=True)
                (folder / output).unlink(missing_ok=True)
            runs[key] = watched(name, folder, MODEL)
            record.write_text(json.dumps(runs, indent=2))
            print(f"  {key:24}{json.dumps(runs[key])}", flush=True)
    return {name: _compared(scratch, name, names, runs, start_rows, size, slices) for name in names}


def _compared(
    scratch: Path, name: str, names: list[str], runs: dict[str, Any], start_rows: int, size: int, slices: int
) -> dict[str, Any]:
    """The rate of an engine, and its vectors and moments beside those of other engines."""

    def rate(name: str) -> float:
        seconds = sum(runs[f"{name}, {part}"]["seconds"] for part in range(slices))
        return slices * (size - start_rows) / (seconds - slices * runs[f"{name}, few"]["seconds"])

    rounds = [runs[f"{name}, {part}"] for part in range(slices)]
    figures = {kind: max(run[kind] for run in rounds) for kind in ("driver_mb", "worker_mb")}
    figures |= {"seconds": sum(run["seconds"] for run in rounds), "rate": rate(name)}
    figures["start_seconds"] = runs[f"{name}, few"]["seconds"] - start_rows / rate(name)
    if name == "encode":
        return figures
    moments = Moments()
    direct = Moments()
    distances: dict[str, float] = {}
    for part in range(slices):
        folder = scratch / str(part)
        vectors, of_part = written(name, folder)
        moments.merge(of_part)
        direct.update(vectors.astype(np.float64))
        expected = np.load(folder / "plain.npy")
        peers = {"encode": expected}
        if "local parts" in names:
            peers["local parts"] = written("local parts", folder)[0]
        for peer, expected_by_peer in peers.items():
            # As a share of the longest vector: batches of other texts round apart.
            error = float(np.abs(vectors - expected_by_peer).max() / np.linalg.norm(expected, axis=1).max())
            distances[peer] = max(distances.get(peer, 0.0), error)
    assert moments.n == direct.n == slices * size
    error = float(np.abs(moments.M2 - direct.M2).max() / np.abs(direct.M2).max())
    figures |= {
        "of_encode": rate(name) / rate("encode"),
        "moments_off": error,
        "vectors_off_encode": distances["encode"],
    }
    if "local parts" in distances:
        figures["vectors_off"] = distances["local parts"]
    return figures


def memory(scratch: Path, static: str, most: int) -> list[dict[str, Any]]:
    """Local parts and Ray on ever more rows, and on the most rows with only the words of the fewest."""
    results = list[dict[str, Any]]()
    fewest = most // 100
    for rows, distinct in ((fewest, fewest), (most // 10, most // 10), (most, most), (most, fewest)):
        folder = scratch / f"memory-{rows}-{distinct}"
        write(folder, rows, itertools.cycle(itertools.islice(sentences(), distinct)))
        for name in ("local parts", "Ray"):
            results.append({"runner": name, "rows": rows, "distinct": distinct, **watched(name, folder, static)})
            print(f"  {json.dumps(results[-1])}", flush=True)
        shutil.rmtree(folder)
    return results


def draw_memory(run: Run, path: Path) -> Path:
    """Peak memory against rows; hollow points are runs whose rows repeat those of the smallest run."""
    from eval.report.plots import scale_amounts

    with new_figure(path, 6.4, 3.4) as drawing:
        axis = drawing.subplots()
        for (label, (runner, key)), colour in zip(_MEMORY.items(), COLOURS, strict=False):
            rows = [row for row in run.rows if row.runner == runner]
            line = [(row["rows"], row[key]) for row in rows if row.distinct == row["rows"]]
            repeated = [(row["rows"], row[key]) for row in rows if row.distinct < row["rows"]]
            axis.plot(*zip(*line, strict=True), marker="o", ms=5, lw=1.6, color=colour, label=label)
            axis.plot(*zip(*repeated, strict=True), "o", ms=7, mfc="none", color=colour)
        same = f"{min(row['rows'] for row in run.rows):,} sentences, repeated"
        axis.plot([], [], "o", ms=7, mfc="none", color="#555555", label=same)
        highest = max(row[key] for row in run.rows for key in ("driver_mb", "worker_mb"))
        axis.set(xlabel="rows", ylabel="peak resident memory, MB", ylim=(0, 1.15 * highest))
        scale_amounts(axis)
        drawing.legend(loc="outside lower center", ncols=2)
    return path


_MEMORY = {
    "local parts": ("local parts", "driver_mb"),
    "Ray, one worker": ("Ray", "worker_mb"),
    "Ray, the driver": ("Ray", "driver_mb"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="sentences of the rates")
    parser.add_argument("--many", type=int, default=1_000_000, help="rows of memory")
    parser.add_argument("--parts", default="rates,memory")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--engines", default=",".join(RUNS), help="whose rates; encode has to be among them")
    parser.add_argument("--slices", type=int, default=1, help="corpora that the sentences of the rates are cut into")
    parser.add_argument("--folder", help="where the runs of the rates are kept, for a command that goes on")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run of the rates after these")
    parser.add_argument("--save", default="engines", help="name of the rates' results")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.run:
        name, folder, model = args.run
        RUNS[name](Path(folder), model)
        return
    parts = args.parts.split(",")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        static = f"{name}/static"
        words = ["distill", "--model", MODEL, "--pooling", "mean", "-k", "64", "-o", static]
        subprocess.run([sys.executable, "-m", "jaxwhiten.commands.cli", *words], check=True, capture_output=True)
        if "rates" in parts:
            print(f"rates, {args.rows:,} sentences, {MODEL}")
            outputs = Path(args.folder or name)
            outputs.mkdir(parents=True, exist_ok=True)
            end = time.monotonic() + 60 * args.minutes
            by_engine = rates(outputs, args.rows, args.engines.split(","), args.slices, end)
            if by_engine is not None:
                save(args.save, flat(by_engine, "engine"), sentences=args.rows, slices=args.slices, model=MODEL)
        if "memory" in parts:
            print("memory, static encoder")
            save("engines_scale", memory(scratch, static, args.many))


if __name__ == "__main__":
    main()
