"""Roots and caches: nothing outside, nothing half-written, nothing stale."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel

from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.results_cache import ResultsCache, hash_input
from mcp_servers.roots import Roots
from mcp_servers.spec import InputPath, OutputName, tool
from sage.core.errors import FaultError, InputError


@pytest.fixture(autouse=True)
def texts(roots: Roots, tmp_path: Path) -> None:
    (roots.inputs[0] / "a.txt").write_text("one")
    (tmp_path / "secret.txt").write_text("secret")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "x/../../secret.txt", "", "a\0b", "y" * 2000, "~/x"]
)
def test_no_input_outside_the_roots(roots: Roots, path: str) -> None:
    with pytest.raises(InputError):
        roots.input(path)


def test_no_input_through_a_symlink_that_leaves(roots: Roots, tmp_path: Path) -> None:
    (roots.inputs[0] / "link.txt").symlink_to(tmp_path / "secret.txt")
    (roots.inputs[0] / "loop").symlink_to(roots.inputs[0] / "loop")
    with pytest.raises(InputError, match="outside the allowed folders"):
        roots.input("link.txt")
    with pytest.raises(InputError):
        roots.input("loop")


def test_a_file_is_found_by_the_name_that_results_give_it(roots: Roots) -> None:
    """Callers who do not know where a root lies see it as ROOT/FILE."""
    folder = roots.inputs[0]
    assert roots.input(f"{folder.name}/a.txt") == folder / "a.txt"
    assert roots.input(folder.name) == roots.input(".") == folder
    with pytest.raises(InputError):
        roots.input(f"{folder.name}/../secret.txt")


def test_no_output_through_a_symlink_that_leaves(roots: Roots, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (roots.output / "dir").symlink_to(tmp_path / "elsewhere")
    (roots.output / "file.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("dir/x.txt", "file.txt"):
        with (
            pytest.raises(InputError, match="symbolic link"),
            ToolContext(roots).writing(name) as path,
        ):
            path.write_text("x")
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@settings(max_examples=200, deadline=None)
@examples(st.text(alphabet="ab./~\\ \n", max_size=12))
def test_whatever_the_name_an_output_lies_below_its_root(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        roots = Roots.resolve([], Path(folder) / "out")
        try:
            path = roots.write_path(name)
        except (InputError, OSError):
            return
        assert path.resolve().is_relative_to(roots.output)


def test_a_failed_write_leaves_what_was_there(roots: Roots) -> None:
    context = ToolContext(roots)
    with context.writing("r.csv") as path:
        path.write_text("first")
    with pytest.raises(ZeroDivisionError), context.writing("r.csv") as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert [path.name for path in roots.output.iterdir()] == ["r.csv"]
    assert (roots.output / "r.csv").read_text() == "first"


def test_concurrent_writers_of_one_name_never_mix(roots: Roots) -> None:
    def write(letter: str) -> None:
        for _ in range(20):
            with ToolContext(roots).writing("same.txt") as path, path.open("w") as stream:
                for _ in range(50):
                    stream.write(letter * 100)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (roots.output / "same.txt").exists():
            seen = (roots.output / "same.txt").read_text()
            assert len(seen) == 5000
            assert len(set(seen)) == 1
    assert [path.name for path in roots.output.iterdir()] == ["same.txt"]


# --- results by content ---------------------------------------------------------------------


class LengthInput(BaseModel):
    text: InputPath
    times: int = 1


class LengthResult(BaseModel):
    length: int
    copy_of: OutputName


class Bad(BaseModel):
    value: float


def counted(tmp_path: Path, version: str = "1", weights: str = "") -> tuple[Registry, list[str]]:
    calls: list[str] = []

    @tool("length", "test", version, "Length of a text.", fingerprint=lambda given: weights)
    def length(given: LengthInput, context: ToolContext) -> LengthResult:
        text = context.input(given.text).read_text()
        calls.append(text)
        side = context.roots.inputs[0] / "side.txt"
        if side.exists():
            context.input("side.txt")
        with context.writing("copy.txt") as path:
            path.write_text(text)
        return LengthResult(length=len(text) * given.times, copy_of="copy.txt")

    registry = Registry(cache=ResultsCache(tmp_path / "cache"))
    registry.add(length.__sage_tool__)  # type: ignore[attr-defined]
    return registry, calls


def test_the_same_content_in_another_place_is_not_computed_again(
    roots: Roots, tmp_path: Path
) -> None:
    registry, calls = counted(tmp_path)
    first = registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    (roots.inputs[0] / "moved").mkdir()
    (roots.inputs[0] / "moved" / "a.txt").write_text("one")
    (roots.inputs[0] / "b.txt").write_text("one")
    other = Roots.resolve(roots.inputs, tmp_path / "other")
    second = registry.run("length", {"text": "moved/a.txt"}, ToolContext(other))
    assert calls == ["one"]
    # Outputs are named after their input, so another name is another result.
    assert not registry.run("length", {"text": "b.txt"}, ToolContext(roots)).cached
    assert (first.cached, second.cached) == (False, True)
    assert second.result == first.result
    assert (other.output / "copy.txt").read_text() == "one"
    assert list(second.provenance.inputs) == [str(roots.inputs[0] / "moved" / "a.txt")]


def test_other_content_argument_version_or_weights_are_computed(
    roots: Roots, tmp_path: Path
) -> None:
    registry, calls = counted(tmp_path)
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    registry.run("length", {"text": "a.txt", "times": 2}, ToolContext(roots))
    (roots.inputs[0] / "a.txt").write_text("two")
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    assert calls == ["one", "one", "two"]
    for version, weights in (("2", ""), ("1", "uni2")):
        renewed, calls = counted(tmp_path, version, weights)
        assert not renewed.run("length", {"text": "a.txt"}, ToolContext(roots)).cached
        assert calls == ["two"]


def test_a_file_read_beyond_the_arguments_is_compared_too(roots: Roots, tmp_path: Path) -> None:
    registry, calls = counted(tmp_path)
    side = roots.inputs[0] / "side.txt"
    side.write_text("model 1")
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    assert registry.run("length", {"text": "a.txt"}, ToolContext(roots)).cached
    side.write_text("model 2")
    assert not registry.run("length", {"text": "a.txt"}, ToolContext(roots)).cached
    assert len(calls) == 2


def test_a_damaged_cache_counts_as_absent(roots: Roots, tmp_path: Path) -> None:
    registry, calls = counted(tmp_path)
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    for blob in (tmp_path / "cache" / "blobs").iterdir():
        blob.write_text("damaged")
    (roots.output / "copy.txt").unlink()
    run = registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    assert not run.cached
    for entry in (tmp_path / "cache" / "results").iterdir():
        entry.write_text('{"run":')
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    assert len(calls) == 3
    assert (roots.output / "copy.txt").read_text() == "one"


def test_a_cache_beyond_its_bound_drops_the_oldest_outputs(roots: Roots, tmp_path: Path) -> None:
    registry, _ = counted(tmp_path)
    assert registry.cache is not None
    registry.run("length", {"text": "a.txt"}, ToolContext(roots))
    registry.cache.max_total = 0
    assert registry.cache.prune() == 2  # the output, and the record of its result
    (roots.output / "copy.txt").unlink()
    assert not registry.run("length", {"text": "a.txt"}, ToolContext(roots)).cached


def test_a_result_that_does_not_fit_its_schema_is_a_fault(roots: Roots) -> None:
    @tool("nan", "test", "1", "Not a number.")
    def nan(given: LengthInput, context: ToolContext) -> Bad:
        return Bad(value=float("nan"))

    registry = Registry()
    registry.add(nan.__sage_tool__)  # type: ignore[attr-defined]
    with pytest.raises(FaultError, match="value"):
        registry.run("nan", {"text": "a.txt"}, ToolContext(roots))


def test_a_slide_that_is_only_an_index_is_hashed_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.mrxs").write_text("index")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "Data0000.dat").write_text("pixels")
    first = hash_input(tmp_path / "a.mrxs")
    (tmp_path / "a" / "Data0000.dat").write_text("other pixels")
    assert hash_input(tmp_path / "a.mrxs") != first
