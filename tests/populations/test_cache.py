"""The cache: the same arrays with it and without, and no damaged file is ever believed."""

from pathlib import Path

import numpy as np
import pytest

from hotloop.populations import cache, load, synthetic
from hotloop.populations.synthetic import Settings

SETTINGS = Settings.of_size(2_000, seed=5)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOTLOOP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "populations"


@pytest.fixture
def draws(monkeypatch):
    """How often the generator ran."""
    counted = []
    monkeypatch.setattr(
        cache, "generate", lambda *args, **kw: counted.append(1) or synthetic.generate(*args, **kw)
    )
    return counted


def equal(one, two):
    return (
        np.array_equal(one.edges, two.edges)
        and one.columns.keys() == two.columns.keys()
        and all(np.array_equal(one.columns[name], two.columns[name]) for name in one.columns)
    )


def test_the_second_time_is_read_and_equal(folder, draws):
    first = cache.cached(SETTINGS, "one")
    second = cache.cached(SETTINGS, "two")
    assert len(draws) == 1
    assert equal(first, second)
    assert second.name == "two"
    assert equal(first, synthetic.generate(2_000, 5))
    assert [path.name for path in folder.iterdir()] == [cache.file_name(SETTINGS)]


def test_what_is_read_is_the_callers_own():
    cache.cached(SETTINGS, "one").columns["age"][:] = 0
    cache.cached(SETTINGS, "two").columns["age"][:] = 0
    assert cache.cached(SETTINGS, "three").columns["age"].any()


def test_each_seed_size_and_version_has_its_own_file(monkeypatch):
    names = {
        cache.file_name(settings)
        for settings in (
            SETTINGS,
            Settings.of_size(2_000, seed=6),
            Settings.of_size(2_001, seed=5),
            Settings.of_size(2_000, seed=5, num_edges=7_000),
        )
    }
    monkeypatch.setattr(cache, "GENERATOR_VERSION", 99)
    assert len(names | {cache.file_name(SETTINGS)}) == 5


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "text", "other", "folder"])
def test_a_damaged_file_is_noticed_and_drawn_anew(folder, draws, damage):
    first = cache.cached(SETTINGS, "one")
    path = folder / cache.file_name(SETTINGS)
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "text":
        path.write_text("not a population")
    elif damage == "other":  # whole, but of other settings
        other = Settings.of_size(2_000, seed=6)
        cache.cached(other, "other")
        (folder / cache.file_name(other)).replace(path)
    else:
        path.unlink()
        path.mkdir()
    before = len(draws)
    assert equal(first, cache.cached(SETTINGS, "again"))
    assert len(draws) == before + 1
    if damage != "folder":
        cache.cached(SETTINGS, "kept")
        assert len(draws) == before + 1


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path, monkeypatch, draws):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HOTLOOP_CACHE", str(blocked))
    assert equal(cache.cached(SETTINGS, "one"), cache.cached(SETTINGS, "two"))
    assert len(draws) == 2


def test_a_full_disk_leaves_no_half_file(folder, monkeypatch, draws):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np, "savez", full)
    assert cache.cached(SETTINGS, "one").size == 2_000
    assert list(folder.iterdir()) == []


def test_an_empty_variable_turns_the_cache_off(monkeypatch, folder, draws):
    monkeypatch.setenv("HOTLOOP_CACHE", "")
    cache.cached(SETTINGS, "one")
    cache.cached(SETTINGS, "two")
    assert len(draws) == 2
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOTLOOP_CACHE": "/x", "XDG_CACHE_HOME": "/y"}, "/x/populations"),
        ({"XDG_CACHE_HOME": "/y"}, "/y/hotloop/populations"),
        ({}, "~/.cache/hotloop/populations"),
    ],
)
def test_the_folder_is_the_users(environment, expected):
    assert cache.cache_folder(environment) == Path(expected).expanduser()


def test_without_a_home_nothing_is_kept(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert cache.cache_folder({}) is None
    assert cache.cache_folder({"XDG_CACHE_HOME": "/y"}) == Path("/y/hotloop/populations")


def test_load_goes_through_the_cache(folder):
    one, two = load(3_000, seed=2), load("3000", seed=2)
    assert equal(one, two)
    assert len(list(folder.iterdir())) == 1
