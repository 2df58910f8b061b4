"""What processes that a script starts leave behind: nothing."""

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import tempfile
from multiprocessing.connection import Listener, arbitrary_address
from multiprocessing.resource_sharer import DupFd
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


def test_a_path_that_is_too_long_for_a_socket_is_not_used(tmp_path: Path) -> None:
    """A worker that cannot make its socket sends no batch, and is waited for without end."""
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    with own_folder_of_sockets(str(folder)):
        address = arbitrary_address("AF_UNIX")
        with Listener(address):
            assert Path(address).exists()
    assert not Path(address).parent.exists()


def arrived() -> bool:
    """Whether a file of this process arrives where another one of its own asks for it."""
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb"):
        copy = DupFd(writing).detach()
    os.close(copy)
    return True


def test_what_shares_files_with_children_begins_anew_afterwards(tmp_path: Path) -> None:
    with own_folder_of_sockets(str(tmp_path)):
        assert arrived()
    assert arrived()


def test_the_server_that_forks_begins_anew_afterwards(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")

    def worked() -> bool:
        child = context.Process(target=os.getpid)
        child.start()
        child.join(60)
        return child.exitcode == 0

    with own_folder_of_sockets(str(tmp_path)):
        assert worked()
    assert worked()


def test_what_the_server_has_forked_ends_with_it(tmp_path: Path) -> None:
    multiprocessing.forkserver._forkserver._stop()  # another test may have begun one
    with own_folder_of_sockets(str(tmp_path)):
        child = multiprocessing.get_context("forkserver").Process(target=signal.pause)
        child.start()
        assert child.is_alive()
    assert child.exitcode == -signal.SIGTERM
