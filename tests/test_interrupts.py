"""Ctrl-C in real processes, from their first line to the middle of the work: one line, exit code 130, no debris."""

import os
import signal
import subprocess
import sys
import time

import pytest

from jaxwhiten.terminal import interrupts
from tests.conftest import ROOT, without_hwloc
from tests.tiny import SENTENCES

# Started in the background of a shell, this process and its children have SIGINT ignored.
RESTORE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
IMPORTED = "import time:"


def start(*words, **options):
    environment = {**os.environ, **options.pop("variables", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "env": environment}
    return subprocess.Popen([sys.executable, "-c", RESTORE, *map(str, words)], **{**pipes, **options})


def assert_interrupted(process):
    out, err = process.communicate(timeout=60)
    lines = [line for line in without_hwloc(err).splitlines() if not line.startswith(IMPORTED)]
    assert process.returncode == 130, err[-3000:]
    assert lines == [interrupts.MESSAGE]
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("jax._src.core", "jaxwhiten.commands.cli encode README.md -o {out}.npy --model jaxwhiten-tiny"),
        ("eval", "eval.sts --config configs/sample.py:untuned --config.out={out}"),
        ("configs.settings", "train.sbert --config.output={out}"),
    ],
)
def test_while_it_starts(module, words, tmp_path):
    """When a module has been imported, which is the same moment on every machine."""
    in_jax = {"JAXWHITEN_ENGINE": "jax", "JAXWHITEN_COMPILATION_CACHE": "0"}  # imports it, and Flax
    words = words.format(out=tmp_path / "out").split()
    process, said = start("-X", "importtime", "-m", *words, variables=in_jax), ""
    while not said.rstrip().endswith(f" {module}"):
        said = process.stderr.readline()
        assert said, process.wait()
    process.send_signal(signal.SIGINT)
    assert_interrupted(process)
    assert not (tmp_path / "out.npy").exists()


def test_while_it_encodes(tiny_model, tmp_path):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "out" / "v.npy"
    corpus.write_text("\n".join(filter(None, SENTENCES)) * 20_000)
    output.parent.mkdir()
    output.write_bytes(b"\x93NUMPY, an earlier one")
    words = ["encode", corpus, "-o", output, "--model", tiny_model, "--pooling", "mean", "--block", 64, "--overwrite"]
    process = start("-m", "jaxwhiten.commands.cli", *words)
    deadline = time.monotonic() + 100
    while not any(path.stat().st_size > 1000 for path in output.parent.glob(".*.tmp")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert_interrupted(process)
    assert [path.name for path in output.parent.iterdir()] == ["v.npy"]
    assert output.read_bytes().endswith(b"an earlier one")


def run(code, *words):
    return start(
        "-c",
        f"import gc, os, signal, sys\nfrom jaxwhiten.terminal import interrupts\ninterrupts.handle()\n{code}",
        *words,
    )


ME = "os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    "code",
    [
        f"gc.callbacks.append(lambda *_: {ME})\ngc.collect()",
        f"class A:\n    def __del__(self): {ME}\nA()",
        f"try: {ME}\nexcept KeyboardInterrupt: raise ImportError('half way')",
        f"try: {ME}\nexcept KeyboardInterrupt: {ME}",
        ME,
    ],
    ids=["in a callback", "in a destructor", "told as another error", "twice", "uncaught"],
)
def test_it_is_not_lost(code):
    assert assert_interrupted(run(f"{code}\nprint('went on')")) == ""


def test_compiled_code_is_not_waited_for():
    """Python runs no handler before it returns."""
    process = run(
        "import hashlib, threading\n"
        "interrupts._GRACE_SECONDS = 0.2\n"
        f"threading.Timer(0.2, lambda: {ME}).start()\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    assert_interrupted(process)


def test_an_import_in_the_middle_of_a_file_leaves_no_part_of_it(tmp_path):
    (tmp_path / "slow.py").write_text(f"import os, signal\n{ME}\n")
    (tmp_path / "file").write_text("old")
    process = run(
        "sys.path.insert(0, sys.argv[1])\n"
        "from jaxwhiten import io\n"
        "with io.atomic_path(sys.argv[1] + '/file') as temporary:\n"
        "    temporary.write_text('new')\n"
        "    import slow\n",
        tmp_path,
    )
    assert_interrupted(process)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"slow.py", "file"}
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.slow
def test_training_stops_in_its_own_time():
    """The first Ctrl-C asks it to save; a second one does not wait."""
    code = (
        "import time\n"
        "from jaxwhiten.training.loop import stop_requests\n"
        "interrupts._GRACE_SECONDS = 0.1\n"
        f"with stop_requests() as seen:\n    {ME}\n    time.sleep(0.5)\n    assert seen\n"
    )
    process = run(code + "    print('saved')")
    assert (*process.communicate(timeout=60), process.returncode) == ("saved\n", "", 0)
    assert assert_interrupted(run(code + f"    {ME}\n    print('saved')")) == ""


def test_where_it_was_ignored_it_stays_so():
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from jaxwhiten.terminal import interrupts; "
    code += f"interrupts.handle(); import os; {ME}; print('went on')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "went on\n"


def test_a_package_that_is_imported_leaves_the_handler_alone():
    before = signal.getsignal(signal.SIGINT)
    import configs
    import eval
    import train

    assert eval.need is train.need is configs.need
    assert signal.getsignal(signal.SIGINT) is before
