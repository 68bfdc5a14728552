"""README and docs: every Python block runs, every link leads somewhere, every command and config named is there."""

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings

import pytest

from jaxwhiten.commands import cli
from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import MissingDependencyError
from tests.documents import ELSEWHERE, PAGES, ROOT, alone, blocks, imported, name

FEW = 120  # rows: codes of 96 bytes need more than as many texts
WORDS = 6  # of a text: a training compiles its step for each length that it pads to
WITH_CODE = [page for page in PAGES if blocks(page) and page.name not in ELSEWHERE]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_runs(page, minilm, tmp_path, monkeypatch):
    """The blocks of a page in their order, in one namespace, as a reader would type them."""
    code, missing = blocks(page), set()
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "document"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where a few rows are enough to show how it is written
        for line, part in code:
            if lacking := {module for module in imported(part) if importlib.util.find_spec(module) is None}:
                missing |= lacking
                continue
            if alone(part):
                if "pyspark" in imported(part) and shutil.which("java") is None:
                    missing.add("java")
                    continue
                environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "XLA_FLAGS": ""}
                environment["PYSPARK_PYTHON"] = sys.executable
                command = [sys.executable, "-c", part]
                done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, f"{name(page)}, line {line}:\n{done.stderr[-3000:]}"
                continue
            try:
                exec(compile("\n" * line + part, str(page), "exec"), namespace)  # a traceback's lines are the page's
            except MissingDependencyError as error:
                missing.add(str(error).partition(":")[0])
    if missing:
        pytest.skip(f"the blocks that need {', '.join(sorted(missing))} were left out; the others ran")


def _write_files(folder):
    """What the commands read: as few rows as they accept, and short ones, since every page encodes or trains anew."""
    pairs = load_sts("sts_sample").splits["test"]
    firsts, seconds = ([" ".join(text.split()[:WORDS]) for text in side] for side in (pairs.sentence1, pairs.sentence2))
    scores = pairs.score
    (folder / "sentences.txt").write_text("".join(f"{line}\n" for line in firsts))
    (folder / "docs.txt").write_text("".join(f"{line}\n" for line in firsts))
    (folder / "queries.txt").write_text("".join(f"{line}\n" for line in seconds[:FEW]))
    (folder / "docs.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in firsts))
    linked = [f"{a}\t{b}\n" for a, b in zip(firsts[:FEW], seconds[:FEW], strict=True)]
    (folder / "pairs.tsv").write_text("anchor\tpositive\n" + "".join(linked))
    (folder / "searches.tsv").write_text("query\tdocument\n" + "".join(linked))
    kinds = ["neutral" if 1 < score < 4 else "entailment" if score >= 4 else "contradiction" for score in scores]
    rows = zip(firsts[:FEW], seconds[:FEW], kinds[:FEW], strict=True)
    (folder / "nli.tsv").write_text("premise\thypothesis\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        rest = slice(FEW, 2 * FEW)  # not those of nli.tsv
        scored = zip(firsts[rest], seconds[rest], scores[rest], strict=True)
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *scored])


WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name)
def test_the_commands_run(page, minilm, tmp_path):
    """Blocks of `sh` run as they stand, in a folder with the files they name; what cannot run here is in `bash`."""
    _write_files(tmp_path)
    for folder in ("train", "eval", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    programs = {
        "jaxwhiten": f'exec {sys.executable} -m jaxwhiten.commands.cli "$@"',
        "python": f'exec {sys.executable} "$@"',
        "pip": "echo 'a block that installs belongs in bash' >&2; exit 1",  # not into this environment
    }
    for program, what in programs.items():
        script = tmp_path / "bin" / program
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{what}\n")
        script.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    for line, block in blocks(page, "sh"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{name(page)}, line {line}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"


def test_commands_paste_as_they_stand():
    """No block has prompts; what commands print is a block of its own."""
    prompt = re.compile(r"^(?:```console| *\$ .*)", re.MULTILINE)
    assert [(name(page), line) for page in PAGES for line in prompt.findall(page.read_text(encoding="utf-8"))] == []
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 600


def test_the_pages_are_short():
    """README and the pages of the site, tables and code included."""
    pages = [page for page in PAGES if page.name != "CONTRIBUTING.md"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 14_000


def anchors(page):
    heads = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _broken_links(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            yield target


def test_links_lead_somewhere():
    assert {name(page): broken for page in PAGES if (broken := [*_broken_links(page)])} == {}


def _missing_names(page):
    """What a page names and the repository lacks: programs, configs, commands, targets of make."""
    text = page.read_text(encoding="utf-8")
    programs = re.findall(r"python -m\s+((?:eval|train|benchmarks)\.\w+)", text)
    files = [program.replace(".", "/") + ".py" for program in programs] + re.findall(r"\bconfigs/\w+\.py", text)
    yield from (file for file in files if not (ROOT / file).is_file())
    shell = "\n".join(code for language in ("sh", "bash") for _, code in blocks(page, language))
    commands = re.findall(r"`jaxwhiten ([a-z][a-z-]*)\b", text)
    commands += re.findall(r"^(?:.*\| )?jaxwhiten ([a-z][a-z-]*)\b", shell, re.MULTILINE)
    yield from (command for command in commands if command not in cli.COMMANDS)
    targets = re.findall(r"\bmake ([a-z-]+)\b", " ".join(re.findall(r"`(make [^`]*)`", text)))
    makefile = (ROOT / "Makefile").read_text()
    yield from (f"make {target}" for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE))


def test_commands_and_files_named_are_there():
    assert {name(page): missing for page in PAGES if (missing := [*_missing_names(page)])} == {}


# Tables with figures, by their heads, that no run in docs/runs makes. A table that gets a run
# leaves this list, and none comes to it.
WITHOUT_A_RUN = {
    "docs/evidence/index.md": ["| claim |"],  # README, claim by claim
}
_MADE = re.compile(r"^<!-- (?:table|aot) .*?^<!-- end -->", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every page as `make tables` writes it from the runs in the repository alone, and what it says of each."""
    folder = tmp_path_factory.mktemp("pages")
    for page in PAGES:
        copy = folder / name(page)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, copy)
    (folder / "docs/runs").symlink_to(ROOT / "docs/runs")
    command = [sys.executable, "-m", "eval.tables", *map(name, PAGES)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, dict(re.findall(r"^(\S+\.md): (.*)$", done.stderr, re.MULTILINE))


def _tables_without_a_run(page):
    """The heads of the tables with figures that `make tables` does not fill."""
    text = _MADE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    tables = [table[0] for table in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    return [table.splitlines()[0] for table in tables if re.search(r"\d\.\d", table)]


def test_every_table_has_its_run(made):
    """A table is what `make tables` makes of a run in the repository; others are listed above."""
    folder, messages = made
    for page in PAGES:
        heads, known = _tables_without_a_run(page), WITHOUT_A_RUN.get(name(page), [])
        assert len(heads) == len(known), (name(page), heads)
        assert all(head.startswith(start) for head, start in zip(heads, known, strict=True)), name(page)
    assert {name(page): messages[name(page)] for page in PAGES if messages[name(page)] != "filled"} == {}
    changed = [name(page) for page in PAGES if (folder / name(page)).read_bytes() != page.read_bytes()]
    assert changed == [], "run `make tables`"


def test_the_repository_is_named_once():
    """Every link leads to the address in pyproject.toml; `ci/owner.sh` changes them together."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    account = re.fullmatch(r"https://github\.com/([\w-]+)/jaxwhiten", address).group(1)
    for page in [*PAGES, ROOT / "CITATION.cff", *(ROOT / "notebooks").glob("*.ipynb")]:
        for found in re.findall(r"github(?:\.com)?/([\w-]+)/jaxwhiten", page.read_text(encoding="utf-8")):
            assert found == account, f"{name(page)} links to {found}"


def test_the_site_is_built_without_a_warning(tmp_path):
    """Every page in the navigation, every reference and every docstring of the API pages found."""
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "jaxwhiten" in index
