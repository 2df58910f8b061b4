"""Batches of the envs that are ready, splits in turn, and pools that carry vector envs."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs.actions import Given
from hotloop.envs.make import make_vec
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.serial.composed import make_serial
from hotloop.errors import ShapeError, StateError, TargetError
from hotloop.testing.synthetic import (
    SyntheticEnv,
    SyntheticVectorEnv,
    read_counters,
    synthetic_fns,
)
from support.equivalence import BOX, DISCRETE, NESTED, drive
from support.gated_envs import Gated
from support.sampled_envs import Sampled
from support.trees import assert_same

MODES = list(AutoresetMode)
ENGINES = [SerialVectorEnv, partial(ProcessVectorEnv, num_workers=2)]


@pytest.fixture
def pool():
    """Makes engines that are closed at the end."""
    made = []

    def make(engine, *args, **kwargs):
        made.append(engine(*args, **kwargs))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


def zeros(count):
    return np.zeros(count, np.int64)


# --- first come, first served --------------------------------------------------------------------


def test_a_straggler_is_not_waited_for(pool, tmp_path):
    gate = tmp_path / "gate"
    fns = [partial(Gated, gate), *synthetic_fns(4)[1:]]
    envs = pool(ProcessVectorEnv, fns, num_workers=4, batch_size=1)
    envs.reset(seed=0)
    envs.send(zeros(4), np.arange(4))
    seen = []
    for number in range(29):  # a wait for env 0 would never end
        ids = envs.recv()[4]["env_id"]
        seen += ids.tolist()
        if number < 26:
            envs.send(zeros(1), ids)
    assert 0 not in seen
    assert envs.under_way.tolist() == [0]
    gate.touch()
    assert envs.recv()[4]["env_id"].tolist() == [0]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_batch_is_short(pool, engine):
    envs = pool(engine, synthetic_fns(5), batch_size=3)
    envs.async_reset(seed=0)
    first, second = envs.recv(), envs.recv()
    assert [len(first[1]), len(second[1])] == [3, 2]
    assert sorted([*first[4]["env_id"], *second[4]["env_id"]]) == [0, 1, 2, 3, 4]
    for step in (first, second):
        assert read_counters(step[0]).env_id.tolist() == step[4]["env_id"].tolist()
    with pytest.raises(StateError, match="no env is under way"):
        envs.recv()
    envs.send(zeros(2))  # those of the last batch
    assert sorted(envs.recv()[4]["env_id"]) == sorted(second[4]["env_id"])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_env_that_steps_is_refused(pool, engine):
    envs = pool(engine, synthetic_fns(4), batch_size=2)
    envs.async_reset(seed=0)
    ids = envs.recv()[4]["env_id"]
    envs.send(zeros(1), ids[:1])
    with pytest.raises(StateError, match=rf"send: envs \[{ids[0]}\] are"):
        envs.send(zeros(2), ids)
    for use in (envs.reset, lambda: envs.step(zeros(4)), lambda: envs.call("spec")):
        with pytest.raises(StateError, match="under way"):
            use()
    for ids, match in (([4], "0 to 3"), ([-1], "0 to 3"), ([1, 1], "once"), ([1.0], "numbers")):
        with pytest.raises(StateError, match=match):
            envs.send(zeros(len(ids)), ids)
    with pytest.raises(ShapeError, match=r"expected shape \(2,\)"):
        envs.send(zeros(3), [0, 1])
    while len(envs.under_way):
        envs.recv()
    assert len(envs.step(zeros(4))[1]) == 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kwargs", "workers"), [({"batch_size": 1}, 3), ({"batch_size": 4}, 2), ({"splits": 2}, 2)]
)
def test_every_envs_course_is_that_of_a_plain_step(pool, mode, kwargs, workers):
    fns = [partial(Sampled, NESTED, DISCRETE, 3)] * 6
    actions = np.random.default_rng(0).integers(0, 3, (15, 6))
    layout = SerialVectorEnv(fns).layout

    def rows(obs, count):
        tree = {**obs, "pair": (np.array([*obs["pair"][0], None], object)[:-1], obs["pair"][1])}
        return [layout.row(tree, k) for k in range(count)]

    plain = SerialVectorEnv(fns, autoreset_mode=mode)
    expected = [rows(plain.reset(seed=3)[0], 6)]
    over = np.zeros(6, bool)
    for number in range(14):
        if mode == AutoresetMode.DISABLED and over.any():
            plain.reset(options={"reset_mask": over.copy()})
        step = plain.step(actions[number])
        over = step[2] | step[3]
        expected.append(
            list(zip(rows(step[0], 6), *(part.tolist() for part in step[1:4]), strict=True))
        )
    envs = pool(ProcessVectorEnv, fns, num_workers=workers, autoreset_mode=mode, **kwargs)
    envs.async_reset(seed=3)
    taken = np.zeros(6, np.int64)  # steps that each env has sent
    resetting = np.zeros(6, bool)
    for _ in range(1000):
        if not len(envs.under_way):
            break
        obs, *parts, infos = envs.recv()
        ids = infos["env_id"]
        got = rows(obs, len(ids))
        for k, env_id in enumerate(ids.tolist()):
            if resetting[env_id]:
                resetting[env_id] = False
            elif taken[env_id] == 0:
                assert_same(got[k], expected[0][env_id])
            else:
                row = (got[k], *(part[k].item() for part in parts))
                assert_same(row, expected[taken[env_id]][env_id])
        ended = ids[parts[1] | parts[2]]
        if mode == AutoresetMode.DISABLED and len(ended):
            mask = np.zeros(6, bool)
            mask[ended] = resetting[ended] = True
            envs.async_reset(options={"reset_mask": mask})
            ids = np.setdiff1d(ids, ended)
        ids = ids[taken[ids] < 14]
        if len(ids):
            envs.send(actions[taken[ids], ids], ids)
            taken[ids] += 1
        if "splits" in kwargs and len(ended) and mode == AutoresetMode.DISABLED:
            for env_id in ended:  # a split comes as a whole: its resets first
                envs.recv([env_id])
                resetting[env_id] = False
                if taken[env_id] < 14:
                    envs.send(actions[taken[env_id]][[env_id]], [env_id])
                    taken[env_id] += 1
    assert (taken == 14).all()
    plain.close()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("splits", [2, 3])
def test_splits_come_in_turn(pool, engine, splits):
    envs = pool(engine, synthetic_fns(6), splits=splits)
    assert envs.batch_size == 6 // splits
    for _ in range(2):
        envs.async_reset(seed=0)
        for number in range(3 * splits + 1):
            infos = envs.recv()[4]
            assert infos["env_id"].tolist() == envs.split_rows(number % splits).tolist()
            envs.send(zeros(envs.batch_size))
        while len(late := envs.under_way):
            envs.recv(late)
        # A reset begins with the first split, wherever the turn was.
        envs.reset(seed=1)
        envs.send(zeros(envs.batch_size), envs.split_rows(0))
        assert envs.recv()[4]["env_id"].tolist() == envs.split_rows(0).tolist()
    envs.send(zeros(envs.batch_size), envs.split_rows(0))
    with pytest.raises(StateError, match="turn of split 1"):
        envs.recv()


@pytest.mark.parametrize("copy", [True, False])
def test_a_split_is_a_view_only_if_not_copied(pool, copy):
    envs = pool(ProcessVectorEnv, synthetic_fns(4), num_workers=2, splits=2, copy=copy)
    envs.async_reset(seed=0)
    first = envs.recv()[0]
    kept = first.copy()
    envs.send(zeros(2))
    envs.recv()
    envs.recv([0, 1])
    assert np.array_equal(first, kept) == copy


# --- pools that carry vector envs ----------------------------------------------------------------


CARRIERS = {"serial": make_serial, "process": partial(ProcessVectorEnv, num_workers=2)}


@pytest.fixture(params=CARRIERS)
def carrier(request):
    return CARRIERS[request.param]


def native(count, mode=AutoresetMode.NEXT_STEP):
    return partial(SyntheticVectorEnv, count, autoreset_mode=mode)


def sync(count, mode=AutoresetMode.NEXT_STEP, first=0):
    fns = [partial(Sampled, BOX, DISCRETE)] * count
    return partial(SyncVectorEnv, fns, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_pool_of_vector_envs_equals_the_envs_side_by_side(pool, carrier, mode):
    plain = pool(SyncVectorEnv, [partial(Sampled, BOX, DISCRETE)] * 6, autoreset_mode=mode)
    carried = [sync(2, mode), sync(1, mode), sync(3, mode)]
    envs = pool(carrier, carried)
    assert (envs.num_envs, envs.autoreset_mode) == (6, mode)
    drive([plain, envs], steps=15, seed=4)


def test_a_pool_of_pools(pool):
    plain = pool(SerialVectorEnv, [partial(Sampled, BOX, DISCRETE, infos="nested")] * 4)
    inner = partial(
        ProcessVectorEnv, [partial(Sampled, BOX, DISCRETE, infos="nested")] * 2, num_workers=2
    )
    envs = pool(ProcessVectorEnv, [inner, inner], num_workers=2, daemon=False)
    drive([plain, envs], steps=10, seed=2)
    with pytest.raises(AssertionError, match="daemonic processes are not allowed"):
        pool(ProcessVectorEnv, [inner], num_workers=1)


def test_gymnasiums_own_cartpole(pool, carrier):
    make = partial(
        gymnasium.make_vec, "CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point"
    )
    envs = pool(carrier, [make, make])
    one, other = pool(make), pool(make)
    obs, _ = envs.reset(seed=5)
    alone = np.concatenate([one.reset(seed=5)[0], other.reset(seed=8)[0]])
    assert_same(obs, alone)
    for number in range(30):
        actions = np.full(6, number % 2)
        step = envs.step(actions)
        both = [one.step(actions[:3]), other.step(actions[3:])]
        assert_same(step[0], np.concatenate([half[0] for half in both]))
        assert_same(step[2], np.concatenate([half[2] for half in both]))


def test_part_of_a_vector_env_is_refused_and_the_rest_goes_on(pool, carrier):
    envs = pool(carrier, [native(2)] * 3, batch_size=2)
    envs.reset(seed=0)
    envs.send(zeros(2), [4, 5])
    with pytest.raises(StateError, match=r"envs 2 to 3 are one vector env.*got \[2\]"):
        envs.send(zeros(3), [0, 1, 2])
    assert envs.under_way.tolist() == [4, 5]
    envs.recv()
    envs.send(zeros(4), [3, 2, 0, 1])
    assert sorted([*envs.recv()[4]["env_id"], *envs.recv()[4]["env_id"]]) == [0, 1, 2, 3]


@pytest.mark.long
def test_a_batch_after_a_reset_has_whole_vector_envs(pool):
    envs = pool(ProcessVectorEnv, [native(16)] * 2, num_workers=2, batch_size=16)
    for seed in range(200):
        envs.async_reset(seed=seed)
        for _ in range(2):
            rows = envs.recv()[4]["env_id"]
            assert rows.tolist() in (list(range(16)), list(range(16, 32)))


@pytest.mark.parametrize("mode", MODES)
def test_a_single_vector_env_passes_through(pool, mode):
    """And equals the same one carried by a worker: its bits, its infos with their masks."""
    ours = pool(make_vec, [sync(3, mode)], backend="serial")
    carried = pool(ProcessVectorEnv, [sync(3, mode)], num_workers=1)
    drive([carried, ours], steps=15, seed=4)
    kept = ours.step(zeros(3))[0] if mode != AutoresetMode.DISABLED else ours.reset()[0]
    before = kept.copy()
    ours.reset(seed=9)
    assert_same(kept, before)


def test_vector_envs_of_this_process_answer_one_by_one(pool):
    envs = pool(make_vec, [sync(2), sync(1)], backend="serial")
    envs.reset(seed=3)
    envs.set_attr("mark", [4, 5, 6])
    assert envs.call("mark") == (4, 5, 6)
    sent = Given([0, 1, 0])
    envs.send(sent)
    assert envs.recv()[4]["env_id"].tolist() == [0, 1, 2]


def test_what_a_vector_env_of_this_process_raises_comes_up_as_it_is(pool):
    def fails():
        raise KeyError("planned")

    with pytest.raises(KeyError, match="planned") as caught:
        make_vec([fails], backend="serial")
    assert caught.value.__notes__ == ["while making env 0"]
    with pytest.raises(TargetError, match=r"expected same_step|expected SameStep"):
        make_vec([native(2)], backend="serial", autoreset_mode="same_step")
    with pytest.raises(TargetError, match="makers of vector envs only"):
        make_vec([native(2), SyntheticEnv], backend="serial")
    with pytest.raises(TargetError, match="autoreset_mode"):
        make_vec([native(2), native(2, MODES[1])], backend="serial")


def test_vector_envs_that_do_not_fit_are_refused():
    with pytest.raises(TargetError, match=r"expected same_step|expected SameStep"):
        ProcessVectorEnv([native(2)], num_workers=1, autoreset_mode="same_step")
    with pytest.raises(TargetError, match="makers of vector envs only"):
        ProcessVectorEnv([native(2), SyntheticEnv], num_workers=1)
    with pytest.raises(TargetError, match="is_vector"):
        ProcessVectorEnv([native(2), SyntheticEnv], num_workers=2)
    with pytest.raises(TargetError, match="autoreset_mode"):
        ProcessVectorEnv([native(2), native(2, MODES[1])], num_workers=2)
