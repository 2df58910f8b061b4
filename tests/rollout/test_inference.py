"""Inference servers: how requests become batches, versions, errors, faults, clean ends."""

import math
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Client, Listener
from types import SimpleNamespace

import cloudpickle
import numpy as np
import psutil
import pytest

from hotloop.errors import SettingError, TargetError, WorkerError
from hotloop.rollout import FragmentCollector, inference_servers
from hotloop.rollout.inference import InferenceServer, InferenceSettings, split_rows
from hotloop.rollout.served_policy import DRIVE, JOIN, UPDATE, ServedPolicy, connect, send
from hotloop.rollout.worker import Update
from hotloop.rollout.worker_pool import Resources
from rollout.planted_envs import (
    Scaled,
    Weighted,
    check_truth,
    check_weights_behind_a_policy,
    faulty,
    planted_vec,
    policy,
    worker_of,
)
from support.wait import DEADLINE_S, wait_until

KEY = b"planted"
LONG_S = 3600.0  # a deadline that no test reaches
SETTINGS = {"fragment_steps": 10, "num_workers": 2}
MAKE = partial(planted_vec, 2)


class Shown:
    """Answers with what it was asked; keeps the env ids of every batch."""

    batches: list[list[int]]

    def __init__(self) -> None:
        self.weight, self.batches = 0.0, []
        self.ids = np.zeros(0)

    def act_for(self, env_ids):
        self.ids = env_ids

    def load_weights(self, weight):
        self.weight = weight

    def __call__(self, obs):
        if (obs["x"] < 0).any():
            raise TargetError("planted: no observation below 0")
        self.batches.append(self.ids.tolist())
        return obs["x"] + self.weight, {"ids": self.ids}


class Served:
    """A server in a thread of this process, and what asks it."""

    def __init__(self, **settings):
        self.address = f"\0hotloop-test-{secrets.token_hex(8)}"
        self.listener = Listener(self.address, backlog=64, authkey=KEY)
        settings = InferenceSettings(**{"deadline_s": LONG_S, **settings})
        self.server = InferenceServer(self.listener, [Update.of(Shown(), 0)], settings, 0)
        self.policy = self.server._policy
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()
        self.driver = connect(self.address, KEY)
        send(self.driver, DRIVE)
        self.clients: list[ServedPolicy] = []

    def client(self, *ids):
        """A worker of these envs that has joined."""
        client = ServedPolicy(partial(str, self.address), KEY)
        client.act_for(np.array(ids))
        joined = len(self.server._workers)
        client._connection = connect(self.address, KEY)
        send(client._connection, JOIN, client._env_ids)
        wait_until(lambda: len(self.server._workers) == joined + 1, "the worker has joined")
        self.clients.append(client)
        return client

    def ask(self, client, *x):
        """Ask in a thread; `join` the answer."""
        return Asked(client, {"x": np.array(x, np.float64)})

    def close(self):
        for client in self.clients:
            client.close()
        self.driver.close()
        self.thread.join(DEADLINE_S)
        self.listener.close()
        assert not self.thread.is_alive()


class Asked(threading.Thread):
    def __init__(self, client, obs):
        super().__init__()
        self._client, self._obs = client, obs
        self.answer = self.error = None
        self.start()

    def run(self):
        try:
            self.answer = self._client(self._obs)
        except Exception as error:
            self.error = error

    def got(self):
        self.join(DEADLINE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def served():
    with ExitStack() as stack:

        def made(**settings):
            server = Served(**settings)
            stack.callback(server.close)
            return server

        yield made


def test_requests_of_all_workers_become_one_batch(served):
    server = served()
    first, second = server.client(0, 1), server.client(7)
    one = server.ask(first, 1, 2)
    wait_until(lambda: len(server.server._waiting) == 1, "the first request waits")
    action, extras = server.ask(second, 3).got()
    assert action.tolist() == [3]
    assert extras["ids"].tolist() == [7]
    action, extras = one.got()
    assert action.tolist() == [1, 2]
    assert extras["ids"].tolist() == [0, 1]
    assert server.policy.batches == [[0, 1, 7]]


def test_no_batch_is_larger_than_wanted(served):
    server = served(batch_rows=4)
    clients = [server.client(2 * i, 2 * i + 1) for i in range(3)]
    asked = [server.ask(client, 0, 0) for client in clients]
    # Two make a batch; the third is the only one that waits then, and is not all of them.
    wait_until(lambda: len(server.policy.batches) == 1, "a batch is full")
    assert len(server.policy.batches[0]) == 4
    [late] = [i for i, one in enumerate(asked) if 2 * i not in server.policy.batches[0]]
    others = [i for i in range(3) if i != late]
    asked[others[0]].got()  # a client has one request at a time
    asked += [server.ask(clients[others[0]], 5, 5)]
    assert asked[late].got()[0].tolist() == [0, 0]
    for one in asked:
        one.got()
    assert [len(batch) for batch in server.policy.batches] == [4, 4]


def test_more_envs_than_a_batch_are_answered_together(served):
    server = served(batch_rows=2)
    assert server.ask(server.client(0, 1, 2), 1, 2, 3).got()[0].tolist() == [1, 2, 3]


def test_a_request_does_not_wait_for_longer_than_the_deadline(served):
    server = served(deadline_s=0.01)
    busy, quiet = server.client(0), server.client(1)
    assert server.ask(busy, 4).got()[0].tolist() == [4]
    assert server.policy.batches == [[0]]
    assert quiet.version == 0


def test_who_has_left_is_not_waited_for(served):
    server = served()
    stays, leaves = server.client(0), server.client(1)
    asked = server.ask(stays, 4)
    wait_until(lambda: len(server.server._waiting) == 1, "the request waits")
    leaves.close()
    # The server sees that the other has left, and then nobody is missing.
    assert asked.got()[0].tolist() == [4]


def test_an_error_reaches_the_worker_that_it_is_of(served):
    server = served()
    good, bad = server.client(0), server.client(1)
    fine, wrong = server.ask(good, 1), server.ask(bad, -1)
    assert fine.got()[0].tolist() == [1]
    with pytest.raises(TargetError, match="no observation below 0") as caught:
        wrong.got()
    assert "in the inference server" in caught.value.__notes__
    again = server.ask(bad, 2), server.ask(good, 3)  # both go on
    assert [one.got()[0].tolist() for one in again] == [[2], [3]]


def test_answers_say_which_version_acted_and_older_updates_are_left(served):
    server = served()
    client = server.client(0)
    assert server.ask(client, 1).got()[0].tolist() == [1]
    assert client.version == 0
    for version, weight in ((3, 10.0), (2, 20.0)):
        send(server.driver, UPDATE, Update(cloudpickle.dumps(weight), version, 0))
    wait_until(lambda: server.server._version == 3, "the update has arrived")
    assert server.ask(client, 1).got()[0].tolist() == [11]
    assert client.version == 3


def test_an_update_behind_many_messages_acts_in_requests_made_after_it(served):
    server = served()
    client = server.client(0)
    for version in range(1, 20):
        for _ in range(20):
            send(server.driver, UPDATE, Update.of(0.0, 0))  # older: left
        send(server.driver, UPDATE, Update.of(float(version), version, 0))
        action, _ = client({"x": np.zeros(1)})
        assert (float(action[0]), client.version) == (version, version)


def test_a_stranger_is_refused_and_the_server_goes_on(served):
    server = served()
    client = server.client(0)
    with pytest.raises(OSError, match="no inference server of this driver"):
        connect(server.address, b"another key")
    Client(server.address, family="AF_UNIX").close()  # and one that says nothing
    assert server.ask(client, 1).got()[0].tolist() == [1]


def test_figures_are_of_the_time_since_they_were_asked_for(served):
    server = served()
    server.ask(server.client(0, 1, 2), 1, 2, 3).got()
    # It counts a batch when its answers are on their way.
    wait_until(lambda: server.server._sums.rows == 3, "the batch is counted")
    figures = server.server._sums.figures(server.server._sums.since_s + 10)
    assert figures["server_batch_rows"] == 3
    assert 0 <= figures["server_busy"] < 1
    assert figures["server_wait_s"] >= 0


def test_what_a_policy_returns_must_have_a_row_for_each_env():
    acted = np.arange(3), {"q": np.arange(6).reshape(3, 2)}
    parts = split_rows(acted, [1, 2])
    assert parts[0][0].tolist() == [0]
    assert parts[1][1]["q"].tolist() == [[2, 3], [4, 5]]
    with pytest.raises(SettingError, match=r"returns 4 rows for 4 observations, got \[3\]"):
        split_rows(acted, [2, 2])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deadline_s": 0.0}, "deadline_s: expected a time above 0.* got 0.0"),
        ({"deadline_s": -1.0}, "deadline_s: expected a time above 0"),
        ({"deadline_s": float("nan")}, "deadline_s: expected a time above 0"),
        ({"deadline_s": float("inf")}, "deadline_s: expected a time above 0"),
        ({"batch_rows": 0}, "batch_rows: expected a number above 0, got 0"),
        ({"threads": 0}, "threads: expected a number above 0, got 0"),
        ({"timeout_s": 0.0}, "timeout_s: expected a number above 0, got 0.0"),
        ({"timeout_s": float("inf")}, "timeout_s: expected a number above 0, got inf"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, said):
    with pytest.raises(SettingError, match=said):
        InferenceSettings(**settings)


def test_a_server_needs_workers():
    with pytest.raises(SettingError, match="expected workers in 'process' or 'ray', got backend"):
        FragmentCollector(MAKE, policy, **SETTINGS, backend="serial", server=InferenceSettings())


# --- with worker processes -----------------------------------------------------------------------


@pytest.fixture
def collector():
    """Makes collectors with a server, and sees that nothing of them is left."""
    before = set(psutil.Process().children(recursive=True))
    with ExitStack() as stack:

        def made(make, acting, *, server=None, **settings):
            server = InferenceSettings() if server is None else server
            wanted = {**SETTINGS, "server": server, **settings}
            return stack.enter_context(FragmentCollector(make, acting, **wanted))

        yield made
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [child for child in left if child.is_running()]


def server_of(collector):
    return collector._workers._server._home._programs[0].process


def test_planted_transitions_of_two_workers(collector):
    made = collector(MAKE, policy)
    fragments = made.collect(3)
    while {worker_of(f) for f in fragments} != {0, 1} or len(fragments) < 12:
        fragments += made.collect()
    assert len(check_truth(fragments)) == 4
    figures = made.server_figures()
    assert 2 <= figures["server_batch_rows"] <= 4


def test_steps_are_stamped_with_the_version_that_acted(collector):
    made = collector(MAKE, Scaled())
    made.collect()
    made.update({"w": 2.0})
    while (fragment := made.collect()[0]).policy_version < 1:
        # In the middle of a fragment, unlike that of a worker with a policy of its own.
        assert (fragment.extras["weight"] == 2.0 * fragment.versions[:, None]).all()
    assert (fragment.extras["weight"] == 2.0).all()


@pytest.mark.long
def test_another_policy_and_weights_for_it(collector):
    check_weights_behind_a_policy(collector(MAKE, Scaled()))


@pytest.mark.long
def test_a_killed_server_costs_no_step(collector, caplog):
    made = collector(MAKE, Weighted())
    fragments = made.collect(4)
    made.update({"w": 2.0})
    os.kill(server_of(made).pid, signal.SIGKILL)
    before = server_of(made).pid
    while server_of(made).pid == before or len(fragments) < 20:
        fragments += made.collect()
    check_truth(fragments)
    assert made.restarts_left == 3  # of the workers, none of which had to be replaced
    assert "inference server: it died (process" in caplog.text
    while fragments[-1].policy_version < 1:
        fragments += made.collect()
    assert (fragments[-1].extras["weight"] == 2.0).all()


@pytest.mark.long
def test_a_server_that_workers_find_before_the_driver_acts_by_what_was_sent_first():
    server = inference_servers.ServerOfDriver(
        "process", Update.of(Shown(), 0), InferenceSettings(), 0, Resources()
    )
    client = server.client()
    client.act_for(np.array([0]))
    obs = {"x": np.zeros(1)}
    try:
        for version in range(1, 9):
            server.replace()
            client(obs)  # the driver has not connected to this server yet
            server.update(Update.of(float(version), version, 0))
            assert client(obs)[0].tolist() == [version]
            assert client.version == version
    finally:
        client.close()
        server.close()


@pytest.mark.long
def test_a_server_that_dies_for_good_is_said(collector):
    made = collector(MAKE, policy, restarts=0)
    made.collect(2)
    os.kill(server_of(made).pid, signal.SIGKILL)
    said = r"inference server: it died \(process \d+: killed by SIGKILL\).* allow more restarts"
    with pytest.raises(WorkerError, match=said):
        made.collect(1_000_000)


# A machine that is busy may make a server look hung; another one then takes its place as well.
IMPATIENT = {"server": InferenceSettings(timeout_s=1.0), "restarts": 1000}


@pytest.mark.long
@pytest.mark.parametrize("bytes_of_update", [0, 1 << 22])
def test_a_hung_server_is_replaced_and_costs_no_step(collector, caplog, bytes_of_update):
    made = collector(MAKE, Weighted(), **IMPATIENT)
    fragments = made.collect(4)
    hung = server_of(made)
    os.kill(hung.pid, signal.SIGSTOP)
    made.update({"w": 2.0, "padding": np.zeros(bytes_of_update, np.uint8)})
    while fragments[-1].policy_version < 1 or len(fragments) < 20:
        fragments += made.collect()
    check_truth(fragments)
    assert (fragments[-1].extras["weight"] == 2.0).all()
    assert hung.returncode == -signal.SIGKILL
    assert "inference server: no answer for 1 s; another takes its place" in caplog.text


@pytest.mark.long
def test_a_server_that_hangs_with_no_restart_left_is_said(collector):
    server = InferenceSettings(timeout_s=1.0)
    made = collector(MAKE, policy, server=server, restarts=0)
    made.wait_until_started()
    os.kill(server_of(made).pid, signal.SIGSTOP)
    said = r"inference server: no answer for 1 s; expected it to live.* allow more restarts"
    with pytest.raises(WorkerError, match=said):
        made.collect(1_000_000)
    assert made.server_figures() == {}


@pytest.mark.long
def test_a_server_that_hangs_while_it_starts_is_replaced(collector, caplog, monkeypatch):
    monkeypatch.setattr(inference_servers, "START_S", 1.0)
    made = collector(MAKE, policy, **IMPATIENT)
    os.kill(server_of(made).pid, signal.SIGSTOP)

    def be_patient() -> None:
        # On a busy machine the next one takes longer to start.
        wait_until(lambda: "no answer for 1 s" in caplog.text, "the server is taken for hung")
        monkeypatch.setattr(inference_servers, "START_S", 120.0)

    waiting = threading.Thread(target=be_patient)
    waiting.start()
    check_truth(made.collect(4))
    waiting.join()
    assert "inference server: no answer for 1 s" in caplog.text


def test_a_driver_that_was_busy_first_hears_what_was_said_meanwhile(collector, monkeypatch):
    made = collector(MAKE, policy, server=InferenceSettings(timeout_s=10.0))
    made.collect()
    server, now_s = made._workers._server, [time.monotonic()]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=time.sleep)
    monkeypatch.setattr(inference_servers, "time", clock)
    os.kill(server_of(made).pid, signal.SIGSTOP)
    now_s[0] += 3600
    assert not server.check()  # what is counted is a look, not the hour
    os.kill(server_of(made).pid, signal.SIGCONT)
    now_s[0] += 3600
    wait_until(lambda: server._connection.poll(0), "the server has answered")
    assert not server.check()
    os.kill(server_of(made).pid, signal.SIGSTOP)
    for _ in range(12):
        now_s[0] += 1
        said = server.check()
    assert said == "no answer for 10 s"


def test_a_server_is_never_taken_for_hung_without_a_limit(collector, monkeypatch):
    made = collector(MAKE, policy, server=InferenceSettings(timeout_s=None))
    fragments = made.collect()
    monkeypatch.setattr(made._workers._server, "_silent_s", math.inf)
    check_truth(fragments + made.collect(4))


def test_a_connection_to_another_machine_notices_when_that_is_lost():
    with Listener(("127.0.0.1", 0), authkey=KEY) as listener:
        accepting = threading.Thread(target=lambda: listener.accept().close())
        accepting.start()
        with connect(listener.address, KEY, limit_s=5.5) as connection:
            through = socket.socket(fileno=os.dup(connection.fileno()))
            with through:
                assert through.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert through.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
                limit = through.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
            assert struct.unpack("ll", limit)[0] == 5
        accepting.join(DEADLINE_S)


def test_a_listener_that_never_answers_is_given_up():
    address = f"\0hotloop-test-{secrets.token_hex(8)}"
    with Listener(address, authkey=KEY), pytest.raises(OSError, match="no inference server"):
        connect(address, KEY, limit_s=0.2)


@pytest.mark.long
def test_a_killed_worker_is_replaced_beside_the_server(collector):
    made = collector(MAKE, policy)
    made.collect(2)
    dead = made._workers._pool._workers[0].process
    os.kill(dead.pid, signal.SIGKILL)
    after = []
    while made.restarts_left == 3 or worker_of(after[-1]) != 0:
        after += made.collect()
    assert after[-1].obs[0, :, 0].tolist() == [4, 5]


class Unloadable:
    """Can be pickled, and not unpickled."""

    def __call__(self, obs):
        raise AssertionError("it never acts")

    def __reduce__(self):
        return _raise, ()


def _raise():
    raise FileNotFoundError("no weights here")


@pytest.mark.long
def test_a_server_that_cannot_start_says_why(collector):
    with pytest.raises(FileNotFoundError, match="no weights here") as caught:
        collector(MAKE, Unloadable()).collect()
    assert "in the inference server" in caught.value.__notes__


@pytest.mark.long
def test_a_device_needs_a_policy_that_can_go_there(collector):
    with pytest.raises(SettingError, match=r"has no method on\(device\), got 'cuda'"):
        collector(MAKE, policy, server=InferenceSettings(device="cuda")).collect()


@pytest.mark.long
def test_an_env_that_raises_beside_a_server(collector):
    with pytest.raises(ZeroDivisionError, match="the planted fault"):
        collector(partial(faulty, "raise", 0), policy, restarts=0).collect(50_000)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_driver_ends(how):
    script = textwrap.dedent(
        """
        from functools import partial
        from hotloop.rollout import FragmentCollector, inference_servers
        from hotloop.rollout.inference import InferenceSettings
        from rollout.planted_envs import planted_vec, policy

        with FragmentCollector(
            partial(planted_vec, 2), policy, fragment_steps=10, server=InferenceSettings()
        ) as collector:
            collector.collect()
            print("ready", flush=True)
            while True:
                collector.collect()
        """
    )
    path = os.pathsep.join(filter(None, sys.path))
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert driver.stdout.readline() == b"ready\n"
        children = psutil.Process(driver.pid).children(recursive=True)
        assert len(children) == 3
        driver.send_signal(how)
        driver.wait(DEADLINE_S)
        wait_until(lambda: not any(child.is_running() for child in children), "all have ended")
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
