"""The picture of the packages has all of them, and the way of a query."""

import importlib.util

import jaxwhiten
from tests.conftest import ROOT

spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "house.py")
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)


def test_every_package_has_a_place_and_a_purpose():
    rooms = [room for floor in house.floors() for room in floor]
    there = [path.stem for path in house.PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(rooms) == sorted(set(there) - {"__init__", "_version", "weights"})
    assert all(map(house.purpose, rooms))
    assert all(house.lines_of(room) > 10 for room in rooms)


def test_a_walk_names_the_packages_that_a_call_enters():
    assert "arrays" in house.walk(lambda: jaxwhiten.normalize([[3.0, 4.0]]))
