"""A snapshot puts everything back, bit for bit, into the objects it came from."""

import collections
import csv
import multiprocessing
import random
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import StateError
from hotloop.loop.code import module_of
from hotloop.loop.state import Snapshot, by_reason, reachable_ids, unsupported_parts
from support.often import examples

atoms = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.tuples(inner, inner),
    ),
    max_leaves=12,
)


class Holder:
    """An object with attributes."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    """An object without a __dict__."""

    __slots__ = ("__secret", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.__secret = [value]

    def secret(self) -> list[Any]:
        return self.__secret


@given(values, st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_any_nesting_of_containers_comes_back(value: Any, rng: random.Random) -> None:
    holder = Holder([value, {"k": value}])
    before = repr(holder.value)
    outer = holder.value
    snapshot = Snapshot([holder])
    for _ in range(3):
        _scramble(holder.value, rng)
    holder.value = "replaced"
    snapshot.restore()
    assert repr(holder.value) == before
    assert holder.value is outer, "the same objects, not copies"


def _scramble(value: Any, rng: random.Random) -> None:
    if isinstance(value, list):
        for item in value:
            _scramble(item, rng)
        value.append(rng.random())
        rng.shuffle(value)
    elif isinstance(value, dict):
        for item in value.values():
            _scramble(item, rng)
        value[f"new {rng.random()}"] = 1


def test_arrays_sets_deques_slots_and_cycles() -> None:
    array = np.arange(6.0).reshape(2, 3)
    objects = np.array([[1], None], dtype=object)
    recent = collections.deque([1, 2], maxlen=2)
    slotted = Slotted(3)
    holder = Holder({"array": array, "view": array[0], "objects": objects})
    holder.value["self"] = holder
    members = {1, 2}
    snapshot = Snapshot([holder, recent, slotted, members])
    array *= 5
    objects[0].append(9)
    objects[1] = "x"
    recent.append(7)
    slotted.value = 4
    slotted.secret().clear()
    members.add(3)
    snapshot.restore()
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert objects.tolist() == [[1], None]
    assert list(recent) == [1, 2]
    assert recent.maxlen == 2
    assert (slotted.value, slotted.secret()) == (3, [3])
    assert members == {1, 2}


def test_a_gymnasium_env_continues_exactly_where_it_was() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=3)
    env.action_space.seed(4)
    for _ in range(5):
        env.step(env.action_space.sample())
    snapshot = Snapshot([env])

    def play() -> list[tuple[Any, ...]]:
        seen: list[tuple[Any, ...]] = []
        for _ in range(60):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append((obs.tobytes(), reward, terminated))
            if terminated or truncated:
                seen.append((env.reset()[0].tobytes(),))
        return seen

    first = play()
    snapshot.restore()
    assert play() == first
    snapshot.restore()
    assert play() == first, "a snapshot can be restored again"
    env.close()


@pytest.mark.parametrize("warm", [False, True])
def test_a_module_and_its_optimiser_come_back_bit_for_bit(warm: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            model(torch.randn(16, 4)).pow(2).sum().backward()
            optimiser.step()

    if warm:
        train(3)
    parameters = list(model.parameters())

    def bits() -> list[bytes]:
        tensors = [*model.state_dict().values()]
        for state in optimiser.state.values():
            tensors += [value for value in state.values() if torch.is_tensor(value)]
        tensors += [p.grad for p in parameters if p.grad is not None]
        return [tensor.detach().numpy().tobytes() for tensor in tensors]

    before = bits()
    snapshot = Snapshot([model, optimiser])
    train(4)
    after = bits()
    assert after != before
    snapshot.restore()
    assert bits() == before
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    train(4)
    assert bits() == after, "the random numbers were put back too"


def test_a_graph_made_before_still_has_its_backward_pass() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.nn.Linear(2, 3)
    optimiser = torch.optim.SGD(generator.parameters(), 0.1)
    snapshot = Snapshot([generator])
    generator(torch.ones(4, 2)).sum().backward()
    optimiser.step()
    made = torch.nn.functional.relu(generator(torch.ones(4, 2))) @ generator.weight
    snapshot.restore()  # between what a generator makes and the step that it makes for it
    made.sum().backward()
    assert generator.weight.grad is not None


def test_the_random_generators_are_always_part_of_it() -> None:
    torch = pytest.importorskip("torch")
    snapshot = Snapshot([])

    def draw() -> tuple[float, ...]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    first = draw()
    snapshot.restore()
    assert draw() == first


def test_an_object_that_saves_itself_does_so() -> None:
    class Simulator:
        def __init__(self) -> None:
            self.hidden = iter([1, 2, 3])  # would be refused
            self.state = 5

        def get_state(self) -> int:
            return self.state

        def set_state(self, state: int) -> None:
            self.state = state

    simulator = Simulator()
    snapshot = Snapshot([simulator])
    simulator.state = 6
    snapshot.restore()
    assert simulator.state == 5


def test_what_cannot_be_saved_is_named_with_its_path() -> None:
    holder = Holder({"loader": (k for k in range(3))})
    faults = unsupported_parts([Holder(1), holder])
    assert [str(fault) for fault in faults] == [
        "state[1] (Holder).value['loader']: a builtins.generator hides its content"
    ]
    with pytest.raises(StateError, match=r"state\[1\] \(Holder\)\.value\['loader'\]"):
        Snapshot([holder, holder, Holder(holder)][1:] and [Holder(1), holder])


def test_equal_faults_are_said_once() -> None:
    loaders = [(k for k in range(3)) for _ in range(4)]
    assert by_reason(unsupported_parts([{"a": loaders}])) == [
        "state[0] (dict)['a'][3] and 3 more: a builtins.generator hides its content"
    ]


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of Box2D's bindings
def test_classes_of_generated_bindings_have_no_module() -> None:
    """As SWIG makes them: `__module__` of some of its classes raises."""
    box2d = pytest.importorskip("Box2D")
    body = box2d.b2World().CreateDynamicBody()
    assert module_of(type(body.this)) == ""
    (fault,) = unsupported_parts([body.this])
    assert fault.reason == "a SwigPyObject hides its content"


def test_what_is_in_another_process_is_not_put_back() -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=print)
    for part in (here, process, multiprocessing.Lock()):
        (fault,) = unsupported_parts([Holder(part)])
        assert "in other processes" in fault.reason
    for end in (here, there):
        end.close()


def test_types_and_pictures_that_are_drawn_anew_stand_in_no_way() -> None:
    pygame = pytest.importorskip("pygame")
    held = Holder([float | None, list[int], pygame.Surface((4, 4)), pygame.time.Clock()])
    assert not unsupported_parts([held])
    Snapshot([held]).restore()


def test_reachable_objects_are_known_by_identity() -> None:
    inner, outside = [1], [1]
    covered = reachable_ids([Holder({"x": inner})])
    assert id(inner) in covered
    assert id(outside) not in covered


def test_a_mujoco_env_goes_on_from_its_snapshot_bit_for_bit() -> None:
    pytest.importorskip("mujoco")
    env = gymnasium.make("HalfCheetah-v5")
    env.reset(seed=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 6)).astype(np.float32)
    env.step(actions[0])
    assert not unsupported_parts([env])
    snapshot = Snapshot([env])
    first = [env.step(action)[0] for action in actions]
    env.reset(seed=2)
    snapshot.restore()
    again = [env.step(action)[0] for action in actions]
    np.testing.assert_array_equal(first, again)
    env.close()


def test_a_log_of_rows_hides_nothing(tmp_path):
    with (tmp_path / "log.csv").open("w") as file:
        logged = SimpleNamespace(writer=csv.DictWriter(file, ["reward"]), plain=csv.writer(file))
        assert unsupported_parts([logged]) == []
