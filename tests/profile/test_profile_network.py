"""What a profile of the network says of planted traffic: bytes, waiting, ways and lines."""

import _socket
import asyncio
import multiprocessing
import os
import selectors
import socket
import ssl
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import hotloop
from hotloop.loop.run import load
from hotloop.profile import profile, ray_traffic
from hotloop.profile.network_profile import NetworkProfile, StageTraffic
from hotloop.profile.replaced import Replaced, Replacement
from hotloop.profile.segments import shared_segments
from hotloop.profile.stacks import REST
from hotloop.report.html import write_html
from support.planted import line_of

SENT, ANSWER = 1_000, 70_000
DELAY_S = 0.02


@pytest.fixture(scope="module", autouse=True)
def short_warm_up() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "WARM_UP_S", 0.05)
        yield


def profiled(seconds: float = 0.2, **functions: Callable[[], object]) -> NetworkProfile:
    """The profile of a loop that calls these in turn, each of them a stage."""
    found: NetworkProfile = measured(seconds, **functions).profiles["network"]
    return found


def measured(seconds: float, **functions: Callable[[], object]) -> Any:
    stages = [hotloop.stage(name, function) for name, function in functions.items()]

    def body() -> int:
        for each in stages:
            each()
        return 1

    return hotloop.run_profile(hotloop.Loop(body=body, unit="turns"), network=True, seconds=seconds)


def of(found: NetworkProfile, stage: str) -> StageTraffic:
    return next(each for each in found.stages if each.stage == stage)


def ways(found: NetworkProfile, stage: str) -> dict[str, tuple[float, float]]:
    return {
        each.kind: (each.wire.sent_bytes, each.wire.received_bytes)
        for each in found.kinds
        if each.stage == stage
    }


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.fixture
def tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            yield here, there


def note_if_counted(times: list[float], took_s: float) -> None:
    """Keep what took place while traffic is counted: what came before is no part of the truth."""
    if "recv" in socket.socket.__dict__:
        times.append(took_s)


def mean_ns(times: list[float]) -> float:
    return 1e9 * sum(times) / len(times)


def near(times: list[float]) -> object:
    """Their mean in ns within 10%, and what two more or fewer of them could change.

    The profile may have begun or ended within one, and on a busy machine one takes long.
    """
    ends = 2 * 1e9 * (max(times) - min(times)) / len(times)
    return pytest.approx(mean_ns(times), abs=0.1 * mean_ns(times) + ends)


def read(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(size))


# --- the planted fault: a slow socket ------------------------------------------------------------


class Slow:
    """A server that answers late, and a client that notes how long it has really waited.

    off_s: how long the whole of `fetch` had no processor, as others may have it beside the wait.
    """

    def __init__(self, here: socket.socket, there: socket.socket) -> None:
        self.here, self.there = here, there
        self.waited_s: list[float] = []
        self.off_s: list[float] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while self.there.recv(SENT, socket.MSG_WAITALL):
            time.sleep(DELAY_S)
            self.there.sendall(bytes(ANSWER))

    def fetch(self) -> None:
        off = time.perf_counter() - time.thread_time()
        self.here.sendall(bytes(SENT))  # it asks
        begin = time.perf_counter()
        self.here.recv(ANSWER, socket.MSG_WAITALL)  # fault
        note_if_counted(self.waited_s, time.perf_counter() - begin)
        note_if_counted(self.off_s, time.perf_counter() - time.thread_time() - off)


@pytest.fixture
def slow(pair: tuple[socket.socket, socket.socket]) -> Iterator[Slow]:
    server = Slow(*pair)
    yield server
    pair[0].shutdown(socket.SHUT_RDWR)
    server.thread.join()


@pytest.mark.long
def test_a_slow_socket_is_named_with_its_stage_line_bytes_and_waiting(slow: Slow) -> None:
    found = profiled(1.0, fetch=slow.fetch, think=lambda: sum(range(1000)))
    fetch = of(found, "fetch")
    assert (fetch.wire.sent_bytes, fetch.wire.received_bytes) == (SENT, ANSWER)
    assert ways(found, "fetch") == {"unix socket": (SENT, ANSWER)}
    truth_ns = mean_ns(slow.waited_s)
    assert truth_ns >= DELAY_S * 1e9
    assert fetch.wire.waited_ns == near(slow.waited_s)
    worst = max(found.places, key=lambda each: each.wire.waited_ns)
    assert worst.stage == "fetch"
    assert (worst.function, Path(worst.file).name) == ("Slow.fetch", Path(__file__).name)
    assert worst.line == line_of(Slow.fetch)
    assert worst.wire.received_bytes == ANSWER
    assert fetch.time_ns is not None
    # Both are means of iterations of their own: on a busy machine it may have waited for longer.
    working_ns = max(0.0, fetch.time_ns - fetch.wire.waited_ns)
    assert fetch.working_ns == pytest.approx(working_ns)
    # The kernel says so too, without knowing of the call; at its end others may have the processor.
    assert fetch.blocked_ns is not None
    assert fetch.blocked_ns + (fetch.queued_ns or 0.0) == pytest.approx(
        mean_ns(slow.off_s), rel=0.1
    )
    think = of(found, "think")
    assert (think.wire.calls, think.wire.waited_ns) == (0, 0)


def test_the_report_has_it(slow: Slow, tmp_path: Path) -> None:
    result = measured(0.4, fetch=slow.fetch)
    result.save(tmp_path / "it.run")
    page = write_html([load(tmp_path / "it.run")], tmp_path / "page.html")
    for text in (str(result), page.read_text()):
        for words in ("Traffic by stage", "unix socket", Path(__file__).name, "less waiting"):
            assert words in text


def test_a_stage_that_sleeps_is_blocked_and_waits_for_nothing_on_the_wire() -> None:
    slept: list[float] = []

    def sleep() -> None:
        begin = time.perf_counter()
        time.sleep(DELAY_S)
        note_if_counted(slept, time.perf_counter() - begin)

    stage = of(profiled(0.6, sleep=sleep), "sleep")
    assert stage.wire.waited_ns == 0
    assert stage.blocked_ns is not None
    away_ns = stage.blocked_ns + (stage.queued_ns or 0.0)
    assert away_ns == near(slept)


# --- ways ----------------------------------------------------------------------------------------


def test_bytes_of_sockets_are_exact_in_every_form(pair: tuple[socket.socket, ...]) -> None:
    here, there = pair
    buffer = bytearray(500)

    def forms() -> None:
        here.send(bytes(10))
        here.sendall(memoryview(bytes(20)))
        here.sendmsg([bytes(30), bytes(5)])
        read(there, 65)
        there.sendall(bytes(100))
        here.recv_into(buffer, 40)
        here.recvfrom(30)
        here.recvmsg_into([buffer], 0)
        with here.makefile("rwb") as file:  # reads through the same functions
            file.write(bytes(7))
            file.flush()
        read(there, 7)

    assert ways(profiled(forms=forms), "forms") == {"unix socket": (172, 172)}


def test_datagrams(pair: tuple[socket.socket, ...]) -> None:
    kinds = socket.AF_INET, socket.SOCK_DGRAM
    with socket.socket(*kinds) as here, socket.socket(*kinds) as there:
        there.bind(("127.0.0.1", 0))

        def send() -> None:
            here.sendto(bytes(33), there.getsockname())
            there.recvfrom(100)

        assert ways(profiled(send=send), "send") == {"UDP": (33, 33)}


def test_tcp_is_told_apart_and_agrees_with_the_kernel(tcp: tuple[socket.socket, ...]) -> None:
    here, there = tcp

    def send() -> None:
        here.sendall(bytes(5_000))
        read(there, 5_000)

    found = profiled(send=send)
    assert ways(found, "send") == {"TCP, this machine": (5_000, 5_000)}
    assert found.tcp.sent_bytes == 5_000
    if found.kernel is not None:
        assert found.kernel.tcp_sent == found.kernel.tcp_received == 5_000
        assert found.kernel.sockets == 2


def test_what_goes_past_python_is_in_the_kernels_sums(tcp: tuple[socket.socket, ...]) -> None:
    here, there = tcp

    def unseen() -> None:
        _socket.socket.sendall(here, bytes(3_000))
        _socket.socket.recv(there, 3_000, socket.MSG_WAITALL)

    def seen() -> None:
        here.sendall(bytes(1_000))
        read(there, 1_000)

    found = profiled(unseen=unseen, seen=seen)
    assert found.tcp.sent_bytes == found.tcp.received_bytes == 1_000
    assert found.kernel is not None
    assert found.kernel.tcp_sent == found.kernel.tcp_received == 4_000


def test_connections_of_one_iteration_are_in_all_sums() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def connect() -> None:
            here = socket.create_connection(server.getsockname())
            there, _ = server.accept()
            here.sendall(bytes(2_000))
            read(there, 2_000)
            here.close()
            there.close()

        found = profiled(connect=connect)
    sums = ways(found, "connect")
    assert sums["TCP, this machine"] == (2_000, 2_000)
    assert sums["TCP, not connected"] == (0, 0), "accepting is waiting"
    assert found.kernel is not None
    assert found.kernel.tcp_sent == 2_000
    end = 1  # of the stream, which counts as a byte for who receives it
    assert 2_000 <= found.kernel.tcp_received <= 2_000 + end


def test_tls_counts_what_was_encrypted(tcp: tuple[socket.socket, ...]) -> None:
    contexts = [ssl.SSLContext(p) for p in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
    for context in contexts:  # without certificates: nothing is kept secret here
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
    wrapped: list[ssl.SSLSocket] = []
    thread = threading.Thread(
        target=lambda: wrapped.append(contexts[0].wrap_socket(tcp[1], server_side=True))
    )
    thread.start()
    client = contexts[1].wrap_socket(tcp[0])
    thread.join()
    (server,) = wrapped

    def send() -> None:
        client.sendall(bytes(444))
        read(server, 444)

    with client, server:
        assert ways(profiled(send=send), "send") == {"TCP, this machine, TLS": (444, 444)}


def test_pipes_and_connections_between_processes() -> None:
    reading, writing = os.pipe()
    left, right = multiprocessing.Pipe()

    def pipe() -> None:
        os.write(writing, bytes(77))
        os.read(reading, 100)

    def connection() -> None:
        left.send_bytes(bytes(1_000))
        right.recv_bytes()

    found = profiled(pipe=pipe, connection=connection)
    header = 4
    assert ways(found, "pipe") == {"pipe": (77, 77)}
    assert ways(found, "connection") == {"unix socket": (1_000 + header, 1_000 + header)}
    for each in (left, right):
        each.close()
    os.close(reading)
    os.close(writing)


def test_waiting_for_several_is_waiting(pair: tuple[socket.socket, ...]) -> None:
    here, there = pair
    waited: list[float] = []
    with selectors.DefaultSelector() as selector:
        selector.register(there, selectors.EVENT_READ)

        def several() -> None:
            timer = threading.Timer(DELAY_S, here.send, [b"x"])
            timer.start()
            begin = time.perf_counter()
            selector.select()  # fault
            note_if_counted(waited, time.perf_counter() - begin)
            there.recv(1)
            timer.join()

        found = profiled(0.6, several=several)
    worst = max(found.places, key=lambda each: each.wire.waited_ns)
    assert (worst.stage, worst.kind, worst.line) == (
        "several",
        "several at once",
        line_of(several),
    )
    assert worst.wire.waited_ns == near(waited)


def test_files_are_no_traffic(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "it", os.O_RDWR | os.O_CREAT)
    found = profiled(write=lambda: os.write(descriptor, bytes(10)))
    os.close(descriptor)
    assert not found.kinds


def test_shared_memory_that_is_opened_is_named() -> None:
    made = shared_memory.SharedMemory(create=True, size=1 << 16)
    try:

        def attach() -> None:
            shared_memory.SharedMemory(made.name).close()

        found = profiled(attach=attach)
        assert ways(found, "attach") == {"shared memory": (0, made.size)}
        mine = next(each for each in shared_segments() if made.name.strip("/") in each.name)
        assert mine.size_bytes == made.size
    finally:
        made.close()
        made.unlink()


# --- stages, threads, tasks ----------------------------------------------------------------------


def test_an_outer_stage_has_what_its_inner_ones_have(pair: tuple[socket.socket, ...]) -> None:
    here, there = pair
    inner = hotloop.stage("inner", lambda: here.sendall(bytes(11)))

    def outer() -> None:
        inner()
        there.recv(11)

    found = profiled(outer=outer)
    assert of(found, "inner").wire.sent_bytes == of(found, "outer").wire.sent_bytes == 11
    assert ways(found, "outer") == {"unix socket": (0, 11)}, "of the innermost stage"
    assert ways(found, "inner") == {"unix socket": (11, 0)}


def test_a_thread_without_a_stage_is_of_the_rest(pair: tuple[socket.socket, ...]) -> None:
    here, there = pair

    def beside() -> None:
        thread = threading.Thread(target=here.sendall, args=(bytes(9),))
        thread.start()
        thread.join()
        there.recv(9)

    found = profiled(beside=beside)
    assert ways(found, REST) == {"unix socket": (9, 0)}
    assert ways(found, "beside") == {"unix socket": (0, 9)}


def test_tasks_that_take_turns_keep_their_traffic_apart(pair: tuple[socket.socket, ...]) -> None:
    for each in pair:
        each.setblocking(False)

    async def exchange(sent: int, to: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(pair[to], bytes(sent))
        await asyncio.sleep(0.001)
        await loop.sock_recv(pair[1 - to], 100)

    async def left() -> None:
        await exchange(21, 0)

    async def right() -> None:
        await exchange(43, 1)

    stages = hotloop.stage("left", left), hotloop.stage("right", right)

    async def both() -> None:
        await asyncio.gather(*(each() for each in stages))

    found = profiled(both=lambda: asyncio.run(both()))
    assert ways(found, "left") == {"unix socket": (21, 21)}
    assert ways(found, "right") == {"unix socket": (43, 43)}
    assert of(found, "left").blocked_ns is None, "a thread's clock cannot tell tasks apart"


def test_a_stage_as_a_block(pair: tuple[socket.socket, ...]) -> None:
    block = hotloop.stage("block")

    def around() -> None:
        with block:
            pair[0].sendall(bytes(5))
        pair[1].recv(5)

    found = profiled(around=around)
    assert ways(found, "block") == {"unix socket": (5, 0)}
    assert ways(found, "around") == {"unix socket": (0, 5)}


# --- what is replaced is put back ----------------------------------------------------------------

WATCHED: tuple[Any, ...] = (socket.socket, ssl.SSLSocket, os, Connection, selectors.EpollSelector)


def functions() -> list[dict[str, Any]]:
    return [dict(owner.__dict__) for owner in WATCHED]


def test_everything_is_put_back_also_after_an_error(pair: tuple[socket.socket, ...]) -> None:
    before = functions()

    def failing() -> None:
        pair[0].send(b"x")
        pair[1].recv(1)
        if functions() != before:
            assert "send" in socket.socket.__dict__
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        profiled(0.4, failing=failing)
    assert functions() == before


def test_errors_of_calls_are_the_callers(pair: tuple[socket.socket, ...]) -> None:
    pair[0].setblocking(False)
    seen = 0

    def nothing_there() -> None:
        nonlocal seen
        try:
            pair[0].recv(10)
        except BlockingIOError:
            seen += 1
        try:
            pair[0].sendall("text")  # type: ignore[arg-type]  # on purpose
        except TypeError:
            seen += 1

    found = profiled(nothing_there=nothing_there)
    assert seen
    assert of(found, "nothing_there").wire.calls == 2
    assert ways(found, "nothing_there") == {"unix socket": (0, 0)}


def test_what_a_class_inherits_is_inherited_again() -> None:
    class Above:
        def call(self) -> str:
            return "original"

    class Below(Above):
        pass

    replaced = Replaced([Replacement(Below, "call", lambda _original: lambda _self: "other")])
    replaced.start()
    assert Below().call() == "other"
    replaced.stop()
    replaced.stop()
    assert Below().call() == "original"
    assert "call" not in Below.__dict__


# --- Ray -----------------------------------------------------------------------------------------


class FakeRay(types.ModuleType):
    """Ray as far as it is asked: it knows the sizes of objects with even numbers."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.experimental = types.SimpleNamespace(get_local_object_locations=self._sizes)
        self.get: Any = lambda refs: [bytes(50) for _ in refs]
        self.put: Any = lambda value: 2
        self.wait: Any = lambda refs: (refs, [])

    def is_initialized(self) -> bool:
        return True

    def timeline(self, filename: str) -> None:
        Path(filename).write_text("[]")

    @staticmethod
    def _sizes(refs: list[int]) -> dict[int, dict[str, int]]:
        return {ref: {"object_size": 1_000 + ref} for ref in refs if ref % 2 == 0}


def test_objects_of_ray_have_their_sizes_and_its_timeline_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray: Any = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_traffic, "TIMELINE", tmp_path / "folder" / "timeline.json")
    found = profiled(
        known=lambda: ray.get([2, 4]),
        unknown=lambda: ray.get([1, 3]),
        put=lambda: ray.put(b"value"),
        wait=lambda: ray.wait([2]),
    )
    store = ray_traffic.STORE
    assert ways(found, "known") == {store: (0, 2_006)}
    assert ways(found, "unknown") == {store: (0, 100)}
    assert ways(found, "put") == {store: (1_002, 0)}
    assert ways(found, "wait") == {store: (0, 0)}
    assert found.ray_timeline == str(tmp_path / "folder" / "timeline.json")
    assert (tmp_path / "folder" / "timeline.json").exists()


@pytest.mark.slow
def test_objects_of_a_real_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    import numpy as np

    monkeypatch.setattr(ray_traffic, "TIMELINE", tmp_path / "timeline.json")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        double = ray.remote(lambda array: np.concatenate([array, array]))
        array = np.zeros(100_000)
        found = profiled(2.0, ask=lambda: ray.get(double.remote(array)), put=lambda: ray.put(array))
    finally:
        ray.shutdown()
    sums = ways(found, "ask")
    assert sums[ray_traffic.ARGUMENTS] == (array.nbytes, 0)
    assert sums[ray_traffic.STORE][1] == pytest.approx(2 * array.nbytes, rel=0.01)
    assert ways(found, "put")[ray_traffic.STORE][0] == pytest.approx(array.nbytes, rel=0.01)
    assert (tmp_path / "timeline.json").stat().st_size > 2
    assert found.processes > 0
