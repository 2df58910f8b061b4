"""Replay buffers of libraries: what an arm wrote is taken back, row by row."""

import copy
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.loop.control import SharedControl
from hotloop.loop.state import Snapshot
from hotloop.recognise.recognition import Recognition

buffers = pytest.importorskip("stable_baselines3.common.buffers")
pytest.importorskip("tianshou")
torchrl_data = pytest.importorskip("torchrl.data")
from tensordict import TensorDict  # noqa: E402
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer, VectorReplayBuffer  # noqa: E402

BOX, CHOICE = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)
DRAWN = np.random.default_rng(7)


@pytest.fixture
def recognition() -> Iterator[Recognition]:
    with Recognition(SharedControl()) as entered:
        yield entered


def sb3_plain(**options: Any) -> tuple[Any, Callable[[], None]]:
    buffer = buffers.ReplayBuffer(12, BOX, CHOICE, "cpu", n_envs=2, **options)

    def write() -> None:
        obs, after = DRAWN.normal(size=(2, 2, 3))
        infos = [{"TimeLimit.truncated": bool(DRAWN.integers(2))} for _ in range(2)]
        buffer.add(obs, after, DRAWN.integers(4, size=2), DRAWN.normal(size=2), [0, 1], infos)

    return buffer, write


def sb3_dict() -> tuple[Any, Callable[[], None]]:
    space = spaces.Dict({"a": BOX, "b": spaces.Box(-1, 1, (2,))})
    buffer = buffers.DictReplayBuffer(6, space, CHOICE, "cpu")

    def write() -> None:
        obs = [{"a": DRAWN.normal(size=3), "b": DRAWN.normal(size=2)} for _ in range(2)]
        buffer.add(*obs, np.array([1]), np.array([DRAWN.normal()]), np.array([0]), [{}])

    return buffer, write


def _batch(envs: int | None) -> Any:
    shape = () if envs is None else (envs,)
    return Batch(
        obs=DRAWN.normal(size=(*shape, 3)),
        act=DRAWN.integers(4, size=shape or None),
        rew=DRAWN.normal(size=shape or None),
        terminated=DRAWN.random(shape or None) < 0.3,
        truncated=np.zeros(shape, bool) if shape else False,
        obs_next=DRAWN.normal(size=(*shape, 3)),
        info=Batch(seen=DRAWN.integers(9, size=shape or None), nothing=Batch()),
        policy=Batch(),
    )


def tianshou_plain() -> tuple[Any, Callable[[], None]]:
    buffer = ReplayBuffer(6)
    return buffer, lambda: buffer.add(_batch(None)) and None


def tianshou_vector() -> tuple[Any, Callable[[], None]]:
    buffer = VectorReplayBuffer(18, 3)

    def write() -> None:
        some = sorted(DRAWN.choice(3, size=2, replace=False))
        buffer.add(_batch(3))
        buffer.add(_batch(2), buffer_ids=some)

    return buffer, write


def torchrl_kind(sampler: Any, storage: Any, rows: int) -> tuple[Any, Callable[[], None]]:
    """Writes `rows` at once, or one by itself, and samples now and then."""
    chosen = {"storage": storage(12), "sampler": sampler(), "batch_size": 2}
    buffer = torchrl_data.TensorDictReplayBuffer(**chosen)

    def row(*batch: int) -> Any:
        obs = torch.as_tensor(DRAWN.normal(size=(*batch, 3)))
        inner = TensorDict({"reward": torch.as_tensor(DRAWN.normal(size=batch))}, batch)
        return TensorDict({"obs": obs, "next": inner}, batch)

    def write() -> None:
        if rows:
            buffer.extend(row(rows))
        else:
            buffer.add(row())
        if len(buffer) > 2:
            buffer.sample()

    return buffer, write


KINDS = [
    sb3_plain,
    lambda: sb3_plain(optimize_memory_usage=True, handle_timeout_termination=False),
    sb3_dict,
    tianshou_plain,
    tianshou_vector,
    lambda: torchrl_kind(
        torchrl_data.RandomSampler, partial(torchrl_data.LazyTensorStorage, device="cpu"), 0
    ),
    lambda: torchrl_kind(torchrl_data.SamplerWithoutReplacement, torchrl_data.LazyTensorStorage, 5),
    lambda: torchrl_kind(torchrl_data.SamplerWithoutReplacement, torchrl_data.LazyMemmapStorage, 3),
]


def held(buffer: Any) -> Any:
    """All that a buffer holds, by itself."""
    if isinstance(buffer, torchrl_data.ReplayBuffer):
        storage, sampler = buffer._storage, buffer._sampler
        rows = {str(k): v for k, v in storage._storage[: len(buffer)].items(True, True)}
        found = rows | {k: v for k, v in vars(sampler).items() if isinstance(v, torch.Tensor)}
        numbers = [len(buffer), buffer._writer._cursor, getattr(sampler, "_ran_out", None)]
        return [{k: v.tolist() for k, v in found.items()}, numbers]
    parts = [buffer, *getattr(buffer, "buffers", ())]
    found: list[Any] = []
    for part in copy.deepcopy(parts):
        content = {k: v for k, v in vars(part).items() if isinstance(v, int | float | np.ndarray)}
        found.append({k: v for k, v in content.items() if k != "buffers"})
        for name in ("observations", "next_observations"):
            found.append(vars(part).get(name))
        if part is not buffer and "_meta" in vars(part):
            found.append({k: part._meta[k] for k in part._meta.get_keys()})
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [1, 4, 9])
def test_what_was_written_is_taken_back(
    recognition: Recognition, kind: Callable[[], Any], before: int
) -> None:
    buffer, write = kind()
    for _ in range(before):
        write()
    first, then = Snapshot(recognition.state()), held(buffer)
    for writes in (3, 0, 11):
        for _ in range(writes):
            write()
        first.restore()
        np.testing.assert_equal(held(buffer), then)
    # A second moment, and back to both.
    write()
    second, later = Snapshot(recognition.state()), held(buffer)
    for _ in range(8):
        write()
    second.restore()
    np.testing.assert_equal(held(buffer), later)
    write()
    first.restore()
    np.testing.assert_equal(held(buffer), then)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_gone_to_in_any_order(
    recognition: Recognition, kind: Callable[[], Any]
) -> None:
    buffer, write = kind()
    write()
    moments = []
    for _ in range(5):
        moments.append((Snapshot(recognition.state()), held(buffer)))
        for _ in range(DRAWN.integers(6)):
            write()
    for at in (0, 4, 1, 3, 2, 2, 4, 0):
        snapshot, then = moments[at]
        snapshot.restore()
        np.testing.assert_equal(held(buffer), then)
        if at == 3:
            write()


def test_moments_that_nobody_goes_back_to_are_forgotten(recognition: Recognition) -> None:
    buffer, write = sb3_plain()
    write()
    first = Snapshot(recognition.state())
    kept = []
    for _ in range(20):
        write()
        (log,) = recognition.state()
        kept.append(weakref.ref(log.get_state()))
    first.restore()
    assert buffer.pos == 1
    assert [mark() for mark in kept] == [None] * 20


def test_buffers_of_parts_that_are_not_known_are_named(recognition: Recognition) -> None:
    buffer = torchrl_data.TensorDictReplayBuffer(storage=torchrl_data.ListStorage(8), batch_size=2)
    buffer.add(TensorDict({"obs": torch.zeros(3)}))
    assert recognition.state() == []
    (named,) = recognition.not_put_back
    assert named.endswith(".TensorDictReplayBuffer")


@pytest.mark.long
def test_buffers_that_write_more_than_their_rows_are_left(recognition: Recognition) -> None:
    buffer = PrioritizedReplayBuffer(8, alpha=0.5, beta=0.5)
    buffer.add(_batch(None))
    assert recognition.state() == []
    assert len(buffer) == 1
    (named,) = recognition.not_put_back
    assert named.endswith(".PrioritizedReplayBuffer")
