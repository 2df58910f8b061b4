"""The latest of many messages, in memory that processes share."""

import multiprocessing
import zlib
from multiprocessing.connection import Connection

import pytest

from hotloop.data.shared import LatestMessage, SharedBlock


def test_only_what_is_newer_is_read() -> None:
    latest = LatestMessage.with_room(100)
    assert latest.read(0) is None
    latest.write(b"one", 1)
    assert latest.read(0) == b"one"
    assert latest.read(1) is None
    latest.write(b"the second", 2)
    latest.write(b"3", 3)
    assert latest.read(1) == b"3"
    latest.write(b"", 4)
    assert latest.read(3) == b""


def test_there_is_room_for_what_was_asked() -> None:
    latest = LatestMessage.with_room(10)
    assert latest.room == 10
    latest.write(b"0123456789", 1)
    assert latest.read(0) == b"0123456789"
    with pytest.raises((ValueError, IndexError)):
        latest.write(b"0123456789a", 2)


def check(connection: Connection, last: int) -> None:
    """Read until the last version has come: all that is read must be whole."""
    latest, version, read = LatestMessage(SharedBlock.receive(connection)), 0, 0
    connection.send("ready")
    while version < last:
        message = latest.read(version)
        if message is not None:
            version, crc, body = int(message[:8]), int(message[8:20]), message[20:]
            assert zlib.crc32(body) == crc
            read += 1
    connection.send(read)


def test_what_another_process_reads_is_whole() -> None:
    last = 3000
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=check, args=(theirs, last))
    reader.start()
    theirs.close()
    try:
        latest = LatestMessage.with_room(200_000)
        latest.block.send(ours, reader.pid)
        assert ours.recv() == "ready"
        for version in range(1, last + 1):
            body = bytes([version % 251]) * (version * 67 % 100_000)
            latest.write(b"%08d%012d" % (version, zlib.crc32(body)) + body, version)
        assert ours.recv() >= 1
    finally:
        reader.join(60)
        ours.close()
    assert reader.exitcode == 0
