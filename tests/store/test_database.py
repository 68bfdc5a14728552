"""A change is made as a whole or not at all, whatever ends it; writers wait for each other; other files are refused."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten.errors import FormatError, InputError, OutputError
from jaxwhiten.store import SQLite, database, replacing

KIND = 7
SLOWLY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def numbers(path, create=False, **how):
    """A database of one table."""
    found = SQLite(path, kind=KIND, create=create, **how)
    if create or path is None:
        found.change(lambda connection: connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)"))
    return found


def insert(connection, number):
    connection.execute("INSERT INTO numbers VALUES (?)", [number])


def content(found):
    return [number for (number,) in found.rows("SELECT number FROM numbers ORDER BY number")]


@settings(max_examples=40)
@given(rows=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5), data=st.data())
def test_a_change_that_raises_changes_nothing(rows, data):
    found, expected = numbers(None), []
    for some in rows:
        end = data.draw(st.none() | st.integers(0, len(some)))
        error = data.draw(st.sampled_from([KeyboardInterrupt, ZeroDivisionError, InputError, GeneratorExit]))

        def work(connection, some=some, end=end, error=error):
            for at, number in enumerate(some):
                if at == end:
                    raise error
                insert(connection, number)
            if end == len(some):
                raise error

        with contextlib.nullcontext() if end is None else pytest.raises(error):
            found.change(work)
        expected += some if end is None else []
        assert content(found) == sorted(expected)


def interrupt_at(line):
    """Interrupts at the numbered line that is run of `jaxwhiten.store.database`; a list that then holds it."""
    left, seen = [line], []

    def trace(frame, event, _):
        if frame.f_code.co_filename != database.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0 and not seen:
                seen.append(frame.f_lineno)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    return seen


@pytest.mark.parametrize("raises", [False, True])
def test_ctrl_c_at_any_line_leaves_all_or_nothing(tmp_path, raises):
    """For another process, and for the next change."""
    found, other = numbers(tmp_path / "x", create=True), numbers(tmp_path / "x")

    def work(connection):
        insert(connection, 1)
        insert(connection, 2)
        if raises:
            raise ZeroDivisionError

    def interrupted(line):
        seen = interrupt_at(line)
        try:
            with contextlib.suppress(KeyboardInterrupt, ZeroDivisionError):
                found.change(work)
        finally:
            sys.settrace(None)
        return seen

    def every_line():
        line = 0
        while seen := interrupted(line):
            assert content(other) in ([], [] if raises else [1, 2]), seen
            found.change(lambda connection: connection.execute("DELETE FROM numbers"))
            line += 1
        return line

    with ThreadPoolExecutor() as pool:  # such an interrupt may stay the context of a thread's later errors
        assert pool.submit(every_line).result() > 5


WRITER = """
import sys
from jaxwhiten.store import SQLite
found = SQLite(sys.argv[1], kind=7)

def next_number(connection):
    [(last,)] = connection.execute("SELECT max(number) FROM numbers")
    connection.execute("INSERT INTO numbers VALUES (?)", [last + 1])

for _ in range(100):
    found.change(next_number)
"""


def test_processes_and_threads_take_turns(tmp_path):
    found = numbers(tmp_path / "x", create=True)
    found.change(lambda connection: insert(connection, 0))
    command = [sys.executable, "-c", WRITER, str(tmp_path / "x")]
    processes = [subprocess.Popen(command) for _ in range(2)]

    def write():
        for _ in range(100):
            found.change(lambda connection: insert(connection, connection.execute(last).fetchone()[0]))

    last = "SELECT max(number) + 1 FROM numbers"
    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for waited in threads:
        waited.join()
    assert [process.wait(60) for process in processes] == [0, 0]
    assert content(found) == list(range(401))


def test_a_writer_that_does_not_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_SECONDS", 0.01)
    found, other = numbers(tmp_path / "x", create=True), numbers(tmp_path / "x")

    def work(connection):
        insert(connection, 1)
        with pytest.raises(OutputError, match=r"x: could not be written \(another writer has not ended within 0 s\)"):
            other.change(lambda connection: insert(connection, 2))

    found.change(work)
    assert content(found) == content(other) == [1]


def test_what_is_read_is_of_one_state(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_SECONDS", 0.01)
    found, other = numbers(tmp_path / "x", create=True), numbers(tmp_path / "x")

    def twice(connection):
        first = connection.execute("SELECT count(*) FROM numbers").fetchall()
        with contextlib.suppress(OutputError):
            other.change(lambda connection: insert(connection, 2))
        return first, connection.execute("SELECT count(*) FROM numbers").fetchall()

    first, second = found.reading(twice)
    assert first == second == [(0,)]


def test_a_file_to_be_read_is_not_changed(tmp_path):
    numbers(tmp_path / "x", create=True).change(lambda connection: insert(connection, 3))
    before = (tmp_path / "x").read_bytes()
    found = numbers(tmp_path / "x", read_only=True)
    assert content(found) == [3]
    with pytest.raises(InputError, match="read_only=True"):
        found.change(lambda connection: insert(connection, 4))
    with pytest.raises(OutputError, match="readonly"):
        found.rows("DELETE FROM numbers")
    assert (tmp_path / "x").read_bytes() == before


@pytest.mark.parametrize("create", [False, True])
def test_files_of_others_are_refused_and_stay(tmp_path, create):
    path = tmp_path / "x"
    path.write_text("longer than the header of a SQLite file\n" * 9)
    texts = path.read_bytes()
    with pytest.raises(FormatError, match=r"x: cannot be read \(file is not a database\)"):
        SQLite(path, kind=KIND, create=create)
    assert path.read_bytes() == texts
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE others (word)")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="not one"):
        SQLite(path, kind=KIND, create=create)
    assert path.read_bytes() == before
    numbers(tmp_path / "y", create=True)
    with pytest.raises(FormatError, match="not one"):
        SQLite(tmp_path / "y", kind=KIND + 1, create=create)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        numbers(tmp_path / "x")
    with pytest.raises(OutputError, match="unable to open"):
        numbers(tmp_path / "no folder" / "x", create=True)
    (tmp_path / "x").touch()
    with pytest.raises(FormatError, match="not one"):
        numbers(tmp_path / "x")
    assert content(numbers(tmp_path / "x", create=True)) == []
    assert content(numbers(tmp_path / "x")) == []


@pytest.mark.parametrize("count", [0, 900, 901, 2000])
def test_any_number_of_values(count):
    found, chosen = numbers(None), [3 * number for number in range(count)]
    found.change(lambda c: c.executemany("INSERT INTO numbers VALUES (?)", [[n] for n in range(3 * count + 1)]))
    assert [n for (n,) in found.rows_of("SELECT number FROM numbers WHERE number IN", chosen)] == chosen


def test_a_file_that_takes_the_place_of_another_is_noticed(tmp_path):
    found = numbers(tmp_path / "x", create=True)
    numbers(tmp_path / "y", create=True).close()
    assert not found.replaced
    with replacing(tmp_path / "x"):
        os.replace(tmp_path / "y", tmp_path / "x")
    assert found.replaced
    (tmp_path / "x").unlink()
    assert found.replaced


@SLOWLY
@given(lines=st.integers(0, 3))
def test_a_killed_writers_journal_does_not_change_the_file_in_its_place(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("replaced")
    found = numbers(folder / "x", create=True)
    for number in range(lines):
        found.change(lambda connection, number=number: insert(connection, number))
    found.close()
    (folder / "x-journal").write_bytes(os.urandom(600))
    new = numbers(folder / "y", create=True)
    new.change(lambda connection: insert(connection, 9))
    new.close()
    with replacing(folder / "x"):
        os.replace(folder / "y", folder / "x")
    assert content(numbers(folder / "x")) == [9]
    assert [path.name for path in folder.iterdir()] == ["x"]
