"""What IMPALA and APPO promise alike: formulas, lag, faults of actors, rests, all spaces."""

import copy
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import hotloop
from hotloop.errors import DeviceError, SettingError, TargetError, WorkerError
from hotloop.learn.appo import APPO, APPOSettings
from hotloop.learn.impala import IMPALA, IMPALASettings
from hotloop.learn.learner import LossError, rows
from hotloop.loop import drive
from hotloop.loop.control import process_control
from hotloop.loop.state import Snapshot, unsupported_parts
from hotloop.rollout.process import SPARE_BLOCKS
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.settings import SimplifySettings
from support.learner_envs import GATE, STEPS, env_id
from support.plain_asynchronous import plain_parameters
from support.wait import DEADLINE_S, wait_until

LEARNERS = {"impala": (IMPALA, IMPALASettings), "appo": (APPO, APPOSettings)}
SMALL = {"num_envs": 3, "fragment_steps": 10, "backend": "serial"}
PROCESS = {"num_envs": 4, "fragment_steps": 10, "backend": "process"}
# Of the parameters after four updates, the steps of which are 1e-3 to 5e-3 long.
ROUNDING = 2e-5


# What actors in processes promise, they promise by the code that both learners share: it is tested
# with one of them, and in the slow tests with the other.
OF_PROCESSES = pytest.mark.parametrize(
    "algorithm", ["impala", pytest.param("appo", marks=pytest.mark.slow)]
)
EVERYWHERE = pytest.mark.parametrize(
    ("algorithm", "backend"),
    [
        *((name, "serial") for name in LEARNERS),
        ("impala", "process"),
        pytest.param("appo", "process", marks=pytest.mark.slow),
    ],
)


@pytest.fixture
def children():
    """The processes that a test starts; all of them must have ended after it."""
    before = set(psutil.Process().children(recursive=True))

    def started():
        return set(psutil.Process().children(recursive=True)) - before

    yield started
    wait_until(lambda: not started(), "the actors have ended")


@pytest.fixture
def make(children):
    """Makes learners, and closes them after the test."""
    made = []

    def learner(algorithm, env="Bandit", **settings):
        kind, kind_of_settings = LEARNERS[algorithm]
        made.append(kind(kind_of_settings(env_id=env_id(env), **settings)))
        return made[-1]

    yield learner
    for one in made:
        one.close()
    made.clear()
    gc.collect()  # `watch` holds fragments, each of them with a file descriptor, in a cycle


@pytest.fixture(params=LEARNERS)
def algorithm(request):
    return request.param


def flat(learner):
    return learner.policy.flat.detach().numpy().copy()


def after(learner, updates):
    for _ in range(updates):
        learner.iterate()
    return flat(learner)


def processes(learner):
    return {i: w.process for i, w in learner.actors.collector._workers._workers.items()}


def watch(learner):
    """The fragments of each batch that the learner takes from now on."""
    taken, take = [], learner.actors.take

    def watched(n):
        taken.append(take(n))
        return taken[-1]

    learner.actors.take = watched
    return taken


# --- the formulas --------------------------------------------------------------------------------

EVERYTHING = {
    "batch_fragments": 2,
    "normalise_values": True,
    "normalise_observations": True,
    "entropy_weight": 0.05,
    "value_weight": 0.7,
    "trace_lambda": 0.8,
    "clip_rho": 0.9,
    "gamma": 0.9,
    "anneal": True,
    "total_steps": 1000,
    "max_grad_norm": 0.3,
}
OF_ONE = {"impala": {"clip_pg_rho": 0.8}, "appo": {"minibatches": 2, "epochs": 3, "clip": 0.1}}
# Ways to differ that a comparison with the plain twin must notice.
CHANGES = {
    "gamma": 0.8,
    "trace_lambda": 0.3,
    "clip_rho": 0.5,
    "entropy_weight": 0.5,
    "value_weight": 2.0,
    "normalise_values": False,
    "normalise_observations": False,
    "anneal": False,
    "batch_fragments": 1,
}
OF_ONE_CHANGES = {"impala": {"clip_pg_rho": 0.4}, "appo": {"minibatches": 1, "clip": 0.01}}


def moved(learner):
    """Away from the start, where all actions are about equally likely."""
    noise = np.random.default_rng(0).normal(size=learner.policy.flat.shape)
    learner.policy.flat.data += torch.from_numpy((0.3 * noise).astype(np.float32))
    learner.actors.publish()
    return learner


@pytest.mark.parametrize("never_sent", [False, True], ids=["newest", "never sent"])
@pytest.mark.parametrize("name", ["OneAction", "ManyActions", "AnyMove", "Switches"])
def test_the_parameters_are_those_of_the_plain_twin(algorithm, make, name, never_sent):
    """With episodes that end and are cut inside fragments; also where the ratios are far from 1."""
    for more in ({}, EVERYTHING | OF_ONE[algorithm]):
        learner = moved(make(algorithm, name, **SMALL, **more, seed=3))
        start, taken = flat(learner), watch(learner)
        if never_sent:
            learner.actors.publish = lambda: None
        got = after(learner, 4)
        expected = plain_parameters(learner.settings, 4, start, never_sent=never_sent)
        assert np.abs(got - start).max() > 100 * ROUNDING
        np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDING)
        fragments = [f for batch in taken for f in batch]
        assert any(f.terminated[:-1].any() for f in fragments)
        assert any(f.truncated[:-1].any() for f in fragments)


def test_every_setting_of_the_formulas_moves_the_parameters(algorithm, make):
    """So that the plain twin, which has them too, proves that each acts as it should."""

    def parameters(**settings):
        learner = moved(make(algorithm, "OneAction", **SMALL | settings, seed=3))
        learner.actors.publish = lambda: None
        return after(learner, 4)

    everything = EVERYTHING | OF_ONE[algorithm]
    base = parameters(**everything)
    for name, value in (CHANGES | OF_ONE_CHANGES[algorithm]).items():
        changed = parameters(**everything | {name: value})
        assert np.abs(changed - base).max() > 10 * ROUNDING, name


def test_same_seed_same_bits_here(algorithm, make):
    first = after(make(algorithm, **SMALL, seed=5), 4)
    np.random.seed(0)  # nothing may come from the global generators
    torch.manual_seed(0)
    np.testing.assert_array_equal(first, after(make(algorithm, **SMALL, seed=5), 4))
    assert (first != after(make(algorithm, **SMALL, seed=6), 4)).any()


def test_rests_change_nothing_here(algorithm, make):
    expected = after(make(algorithm, **SMALL), 4)
    learner = make(algorithm, **SMALL)
    for _ in range(4):
        with learner.paused():
            pass
        learner.iterate()
        assert learner.figures()["lag_max"] == 0
    np.testing.assert_array_equal(flat(learner), expected)


def greedy_share(learner):
    """How often the greedy action is the one that is paid for."""
    return (learner.policy.greedy(np.eye(3, dtype=np.float32)) == np.arange(3)).mean()


@pytest.mark.long
@EVERYWHERE
def test_learns_what_the_best_policy_is(algorithm, make, backend):
    learner = make(
        *(algorithm, "Bandit"),
        **{"num_envs": 8, "fragment_steps": 10, "backend": backend, "gamma": 0.5},
        learning_rate=5e-3,
        anneal=False,
    )
    for _ in range(400):
        learner.iterate()
        if greedy_share(learner) == 1 and learner.progress.mean_return > 8:
            break
    assert greedy_share(learner) == 1
    assert learner.progress.mean_return > 8  # of 10; acting at random earns 3.3


# --- lag -----------------------------------------------------------------------------------------


@pytest.mark.long
@OF_PROCESSES
def test_the_lag_of_a_fragment_is_that_of_the_policy_that_acted(algorithm, make):
    """The stored log-probabilities are those of the parameters that many updates ago."""
    learner = make(algorithm, **PROCESS, num_workers=2, max_lag=100, learning_rate=0.05)
    published, publish = {0: flat(learner)}, learner.actors.publish

    def published_too():
        publish()
        published[learner.actors.collector.policy_version] = flat(learner)

    learner.actors.publish = published_too
    taken, lags = watch(learner), []
    for update in range(30):
        learner.iterate()
        figures = learner.figures()
        assert figures["lag_min"] == figures["lag_mean"] == figures["lag_max"]
        lags.append(int(figures["lag_max"]))
        assert lags[-1] == update - taken[-1][0].policy_version
    furthest = 0.0
    for update, ([fragment], lag) in enumerate(zip(taken, lags, strict=True)):

        def log_prob(version, f=fragment):
            learner.policy.flat.data.copy_(torch.from_numpy(published[version]))
            outputs = torch.from_numpy(learner.policy.outputs(rows(f.obs))[0])
            actions = torch.from_numpy(rows(f.action))
            return learner.policy.distribution.log_prob(outputs, actions).numpy()

        stored = rows(fragment.extras["log_prob"])
        np.testing.assert_allclose(log_prob(update - lag), stored, rtol=1e-4, atol=1e-4)
        furthest = max(furthest, np.abs(log_prob(update) - stored).max())
    assert max(lags) > 0
    assert furthest > 0.01  # those of the newest policy are others


@pytest.mark.long
@OF_PROCESSES
def test_what_waits_is_a_lag_of_known_size(algorithm, make):
    learner = make(algorithm, **PROCESS, num_workers=1)
    with learner.paused():
        assert learner.figures()["queue_depth"] == 2
    learner.iterate()
    assert learner.actors.lags == [0]
    learner.iterate()  # the second one that waited was made before the first update
    assert learner.actors.lags == [1]


@pytest.mark.long
@OF_PROCESSES
@pytest.mark.parametrize("max_lag", [0, 1])
def test_nothing_older_than_max_lag_is_learned_from(algorithm, make, max_lag):
    settings = {**PROCESS, "num_envs": 6, "num_workers": 3}
    learner = make(algorithm, **settings, batch_fragments=2, max_lag=max_lag)
    taken, version = watch(learner), learner.actors.collector
    for update in range(12):
        with learner.paused():
            pass  # six fragments wait, of which an update takes two: the last are two updates old
        learner.iterate()
        for fragment in taken[-1]:
            assert 0 <= update - fragment.policy_version <= max_lag
    figures = learner.figures()
    assert figures["lag_max"] <= max_lag
    assert figures["fragments_dropped"] > 0
    learned = 2 * 12
    assert version.counts.fragments == learned + figures["fragments_dropped"]
    assert learner.progress.env_steps == learned * 20
    assert learner.progress.updates == 12


@pytest.mark.long
@OF_PROCESSES
def test_slow_actors_hold_no_fast_ones(algorithm, make, tmp_path, monkeypatch):
    monkeypatch.setenv(GATE, str(tmp_path / "gate"))
    learner = make(algorithm, "Gated", **PROCESS, num_workers=2, max_lag=5)
    taken = watch(learner)
    for _ in range(10):  # a wait for actor 0 would never end
        learner.iterate()
    assert {int(f.env_ids[0]) for batch in taken for f in batch} == {2}
    dropped = learner.actors.dropped
    (tmp_path / "gate").touch()
    while taken[-1][0].env_ids[0] != 0:
        learner.iterate()
        assert learner.actors.lags[0] <= 5
    # Its first fragment was begun by the first policy, ten updates ago.
    assert learner.actors.dropped > dropped


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.long
@OF_PROCESSES
def test_a_killed_actor_costs_its_own_fragments_only(algorithm, make):
    learner = make(algorithm, **PROCESS, num_workers=2, restarts=2)
    taken, steps = watch(learner), sum(learner.iterate() for _ in range(5))
    dead = processes(learner)[0]
    os.kill(dead.pid, signal.SIGKILL)
    collector = learner.actors.collector
    while collector.restarts_left == 2 or taken[-1][0].env_ids[0] != 0:
        steps += learner.iterate()
    assert collector.restarts_left == 1
    assert steps == learner.progress.env_steps == 20 * len(taken)
    assert learner.progress.updates == len(taken)
    assert collector.counts.fragments == len(taken) + learner.actors.dropped
    assert learner.progress.episodes == sum(f.episodes for [f] in taken)


@pytest.mark.long
@OF_PROCESSES
def test_no_restart_left(algorithm, make):
    learner = make(algorithm, **PROCESS, num_workers=2, restarts=0)
    learner.iterate()
    os.kill(processes(learner)[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker 1: it died .*SIGKILL.*allow more restarts"):
        after(learner, 10_000)


@pytest.mark.long
@EVERYWHERE
def test_what_an_actor_raises_is_raised_here_and_training_can_go_on(algorithm, make, backend):
    workers = {"num_workers": 2} if backend == "process" else {}
    settings = PROCESS | {"backend": backend, "batch_fragments": 3, "max_lag": 100} | workers
    learner = make(algorithm, "Raises", **settings)
    taken = watch(learner)
    with pytest.raises(ZeroDivisionError, match="the planted fault") as caught:
        after(learner, 10_000)
    assert "in fragment worker 0" in caught.value.__notes__
    for _ in range(5):
        learner.iterate()
    assert learner.actors.collector.restarts_left == 2
    # What was taken for the batch that was not complete is learned from with the next one.
    steps = sum(f.env_steps for batch in taken for f in batch)
    assert learner.progress.env_steps == steps
    assert learner.actors.collector.counts.fragments == 3 * len(taken)


def contents(batches):
    return [f.obs.tobytes() for batch in batches for f in batch]


@pytest.mark.long
@EVERYWHERE
def test_no_fragment_is_learned_from_twice(algorithm, make, backend):
    """Forty contexts, each one of three: no two fragments are alike by chance."""
    learner = make(algorithm, **PROCESS | {"backend": backend, "num_envs": 4, "max_lag": 100})
    before = watch(learner)
    after(learner, 6)
    dropped = learner.actors.dropped = 7
    learner.restart_envs()
    behind = watch(learner)
    after(learner, 6)
    assert len(set(contents(before + behind))) == 12
    assert learner.figures()["fragments_dropped"] >= dropped
    if backend == "process":
        assert learner.actors.lags[0] <= 6  # counted from the restart on


def test_a_resumed_training_repeats_itself_here(algorithm, make):
    learner = make(algorithm, **SMALL, normalise_values=True, normalise_observations=True)
    after(learner, 3)
    state = copy.deepcopy(learner.state_dict())
    learner.restart_envs()
    expected = after(learner, 3)
    other = make(algorithm, **SMALL, normalise_values=True, normalise_observations=True)
    other.load_state_dict(state)
    other.restart_envs()
    np.testing.assert_array_equal(after(other, 3), expected)
    assert other.progress == learner.progress


@pytest.mark.parametrize("more", [{}, {"normalise_values": True}], ids=["plain", "normalised"])
@pytest.mark.parametrize("name", ["NotANumber", "Infinite"])
def test_a_loss_that_is_no_number_stops_training(algorithm, make, name, more):
    learner = make(algorithm, name, **SMALL, **more)
    start, returns = flat(learner), learner.progress.returns
    with pytest.raises(LossError, match=f"{algorithm}: update 1: expected .*finite") as caught:
        learner.iterate()
    assert any(not np.isfinite(array).all() for array in caught.value.batch.values())
    np.testing.assert_array_equal(flat(learner), start)
    assert learner.progress.returns == returns
    assert learner.progress.updates == 0


# --- what memory is held -------------------------------------------------------------------------


def held(learner):
    blocks = sum(len(w._blocks) for w in learner.actors.collector._workers._workers.values())
    return blocks, psutil.Process().memory_info().rss


@OF_PROCESSES
@pytest.mark.parametrize("fragments", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_waits_for_a_slow_learner_is_bounded(algorithm, make, fragments):
    """As many fragments as in an hour: every one is waited for before the next is taken."""
    learner = make(algorithm, num_envs=4, fragment_steps=4, num_workers=2, max_lag=100)
    after(learner, 50)
    kept, taken = [], watch(learner)
    most = 2 * (5 + SPARE_BLOCKS)
    before = None
    for number in range(fragments):
        if number % 10 == 0:
            with learner.paused():
                assert learner.figures()["queue_depth"] <= 4
        learner.iterate()
        kept = [*kept, taken.pop()][-20:]  # a learner that looks back at twenty
        taken.clear()
        assert held(learner)[0] <= most + 20
        if number == fragments // 3:
            before = held(learner)[1]
    assert held(learner)[1] - before < 30e6


DRIVER = textwrap.dedent(
    """
    import sys
    sys.path[:0] = {path!r}
    from hotloop.learn.impala import IMPALA, IMPALASettings
    from support.learner_envs import env_id

    learner = IMPALA(IMPALASettings(env_id=env_id("Bandit"), num_envs=4, num_workers=2))
    learner.iterate()
    workers = learner.actors.collector._workers._workers.values()
    print(*(worker.process.pid for worker in workers), flush=True)
    while True:
        learner.iterate()
    """
)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_actors_end_with_their_learner(how):
    code = DRIVER.format(path=[str(Path(__file__).parents[1])])
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    if how == signal.SIGINT:  # as Ctrl-C: to all of them
        os.killpg(driver.pid, how)
    else:
        driver.send_signal(how)
    errors = driver.communicate(timeout=DEADLINE_S)[1]
    if how == signal.SIGINT:
        assert errors.strip().endswith("KeyboardInterrupt")
    wait_until(lambda: not any(map(is_running, pids)), "the actors end with their learner")


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- rests ---------------------------------------------------------------------------------------


@pytest.mark.long
@OF_PROCESSES
def test_no_env_steps_in_a_rest_and_nothing_is_lost(algorithm, make, tmp_path, monkeypatch):
    monkeypatch.setenv(STEPS, str(tmp_path / "steps"))
    learner = make(algorithm, "Counted", **PROCESS, num_workers=2)
    for _ in range(3):
        after(learner, 3)
        with learner.paused(), learner.paused():
            stepped = (tmp_path / "steps").stat().st_size
            waiting = int(learner.figures()["queue_depth"])
            assert waiting == 4
            fragments = learner.progress.updates + learner.actors.dropped + waiting
            assert stepped == 20 * fragments
            time.sleep(0.3)  # time enough for actors that did not rest to be seen
            assert (tmp_path / "steps").stat().st_size == stepped


@pytest.mark.long
@OF_PROCESSES
def test_an_actor_that_dies_in_a_rest_is_replaced_after_it(algorithm, make):
    learner = make(algorithm, **PROCESS, num_workers=2)
    taken = watch(learner)
    learner.iterate()
    collector = learner.actors.collector
    with learner.paused():
        dead = processes(learner)[0]
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()
        assert collector.restarts_left == 3
    replaced = dead
    while replaced is dead:
        learner.iterate()
        replaced = processes(learner).get(0, dead)
    with learner.paused():  # until its first fragment is there
        pass
    seen = len(taken)
    while all(batch[0].env_ids[0] != 0 for batch in taken[seen:]):
        learner.iterate()
    assert collector.restarts_left == 2


@pytest.mark.long
@OF_PROCESSES
def test_a_rest_does_not_wait_for_an_actor_that_died_before_it(
    algorithm, make, tmp_path, monkeypatch
):
    monkeypatch.setenv(GATE, str(tmp_path / "gate"))
    learner = make(algorithm, "Gated", **PROCESS, num_workers=2)
    learner.iterate()
    os.kill(processes(learner)[0].pid, signal.SIGKILL)  # in the middle of its first fragment
    with learner.paused():
        assert learner.figures()["queue_depth"] == 2
    (tmp_path / "gate").touch()
    learner.iterate()


# --- spaces and settings -------------------------------------------------------------------------


SPACES = ("ManyActions", "AnyMove", "Switches", "Pixels", "Mixed", "Masked")
DICTS = ("Mixed", "Masked")


# One code makes the fragments of other processes, whatever the space: dicts show it.
@pytest.mark.parametrize(
    ("algorithm", "backend", "name"),
    [
        *((algorithm, "serial", name) for algorithm in LEARNERS for name in SPACES),
        *(("impala", "process", name) for name in DICTS),
        *(
            pytest.param(algorithm, "process", name, marks=pytest.mark.slow)
            for algorithm in LEARNERS
            for name in SPACES
            if algorithm != "impala" or name not in DICTS
        ),
    ],
)
def test_learns_on_all_spaces(algorithm, make, name, backend):
    settings = {"num_envs": 2, "fragment_steps": 8, "backend": backend}
    learner = make(algorithm, name, **settings, entropy_weight=0.01)
    start = flat(learner)
    assert np.abs(after(learner, 3) - start).max() > 1e-3
    assert learner.progress.env_steps == 3 * 8 * 2 // learner.settings.num_actors
    assert np.isfinite([v for k, v in learner.figures().items() if k != "explained_variance"]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_lag": -1}, "max_lag: expected a whole number of 0 or more, got -1"),
        ({"max_lag": 0.5}, "max_lag: expected a whole number"),
        ({"restarts": -1}, "restarts: expected a whole number of 0 or more, got -1"),
        ({"batch_fragments": 0}, "batch_fragments: expected a whole number of 1 or more, got 0"),
        ({"num_workers": 9, "num_envs": 8}, "num_workers: expected a divisor of num_envs, 8"),
        ({"num_workers": 3, "num_envs": 8}, "num_workers: expected a divisor of num_envs, 8"),
        ({"num_workers": 0}, "num_workers: expected a whole number of 1 or more, got 0"),
        ({"backend": "proces"}, "backend: expected 'serial', .*'proces'; did you mean 'process'"),
        ({"backend": "auto"}, "backend: expected 'serial', 'process', 'ray', got 'auto'"),
        ({"backend": "serial", "num_workers": 2}, "num_workers: expected none with backend"),
        ({"trace_lambda": 1.5}, "trace_lambda: expected a number from 0 to 1, got 1.5"),
        ({"clip_rho": 0.0}, "clip_rho: expected a number above 0, got 0.0"),
        ({"gamma": float("nan")}, "gamma: expected a number from 0 to 1, got nan"),
        ({"learning_rate": 0.0}, "learning_rate: expected a number above 0"),
        ({"fragment_steps": 0}, "fragment_steps: expected a whole number of 1 or more"),
        ({"seed": -1}, "seed: expected a whole number of 0 or more"),
        ({"network": "mpl"}, "mpl"),
    ],
)
def test_settings_that_do_not_fit_are_refused(algorithm, make, children, settings, message):
    with pytest.raises(SettingError, match=message):
        make(algorithm, **settings)
    assert not children()


def test_settings_of_one_learner_that_do_not_fit_are_refused(make, children):
    with pytest.raises(SettingError, match="impala: clip_pg_rho: expected a number above 0"):
        make("impala", clip_pg_rho=-1.0)
    with pytest.raises(SettingError, match=r"appo: minibatches: expected .* 20 steps"):
        make("appo", num_envs=4, num_workers=2, fragment_steps=10, minibatches=3)
    with pytest.raises(SettingError, match="appo: clip: expected a number above 0"):
        make("appo", clip=0.0)
    assert not children()


def test_what_cannot_be_trained_on_is_refused_before_anything_starts(algorithm, make, children):
    kind, settings = LEARNERS[algorithm]
    with pytest.raises(TargetError, match="'CartPole-v7'"):
        kind(settings(env_id="CartPole-v7"))
    with pytest.raises(TargetError, match=r"Box, Discrete"):
        make(algorithm, "Words")
    with pytest.raises(DeviceError, match="expected one of this machine"):
        make(algorithm, device="warp")
    assert not children()


def test_no_restart_is_a_setting_that_fits(algorithm, make):
    assert make(algorithm, **PROCESS, restarts=0).actors.collector.restarts_left == 0


# --- measuring -----------------------------------------------------------------------------------

STAGES = {"act", "env step", "store", "fragment wait", "update", "broadcast"}


@pytest.mark.long
@EVERYWHERE
def test_all_stages_of_the_loop_are_timed(algorithm, make, backend):
    learner = make(algorithm, **PROCESS | {"backend": backend})
    loop = learner.loop()
    assert (loop.name, loop.unit) == (f"{algorithm}:{env_id('Bandit')}", "env steps")
    assert loop.batches == (4 if algorithm == "appo" else 1)
    assert loop.in_flight == learner.actors.in_flight
    assert not unsupported_parts(loop.state)
    stages = {s.name for s in hotloop.run_benchmark(loop, seconds=0.5).summary.stages}
    assert stages == STAGES


def test_state_is_complete_here(algorithm, make):
    """Putting the declared state back repeats what followed, bit for bit."""
    learner = make(algorithm, **SMALL, normalise_values=True)
    loop = learner.loop()
    after(learner, 2)
    snapshot, outcomes = Snapshot(loop.state), []
    for _ in range(2):
        outcomes.append(after(learner, 3))
        snapshot.restore()
    np.testing.assert_array_equal(*outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_may_be_replaced_in_an_experiment(algorithm, make, backend):
    learner = make(algorithm, **PROCESS | {"backend": backend})
    loop, control = learner.loop(), process_control()
    after(learner, 5)  # how long actors take to start is none of the experiment's time
    experiment = Experiment(control, SimplifySettings(budget=9.0, aa_pairs=1))
    drive(loop, experiment.run(loop), control)
    stages = {known.name: known for known in experiment.record.stages}
    assert set(stages) == STAGES
    assert stages["update"].replaceable
    for name in ("fragment wait", "broadcast"):
        assert not stages[name].replaceable
    if backend == "process":
        assert stages["act"].effect == "pure"
        assert stages["act"].replaceable
        for name in ("act", "env step", "store"):  # which only the actors call
            assert stages[name].calls_per_iteration > 0
            assert stages[name].beside_main
        for name in ("env step", "store"):
            assert not stages[name].replaceable
    assert np.isfinite(flat(learner)).all()
