"""What processes that a script starts leave behind: nothing."""

import multiprocessing
import os
import tempfile
from multiprocessing.connection import Listener
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest

from hotloop.redirect.children import own_folder_of_sockets


def tell_folder(answer: "multiprocessing.Queue[str]") -> None:
    answer.put(get_temp_dir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_sockets_of_a_process_and_of_its_children_are_in_the_run_s_folder(
    temporary: Path, tmp_path: Path, method: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with own_folder_of_sockets(str(run)):
        assert Path(get_temp_dir()).parent == run
        context = multiprocessing.get_context(method)
        answer = context.Queue()
        child = context.Process(target=tell_folder, args=(answer,))
        child.start()
        assert Path(answer.get(timeout=60)).parent == run
        child.join()
    assert list(temporary.iterdir()) == []


def test_a_socket_that_is_still_open_is_removed_once(tmp_path: Path) -> None:
    with own_folder_of_sockets(str(tmp_path)):
        listener = Listener(family="AF_UNIX")
        assert os.path.exists(listener.address)
    assert not os.path.exists(listener.address)
    listener.close()  # and at the end of the process nothing is missed


def test_a_process_has_its_own_folder_again_afterwards(tmp_path: Path) -> None:
    before = get_temp_dir()
    with own_folder_of_sockets(str(tmp_path)):
        pass
    assert get_temp_dir() == before
