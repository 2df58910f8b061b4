"""Checking declared effects, on functions whose effects are known."""

import collections
import contextvars
import datetime
import dis
import enum
import functools
import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotloop
from hotloop.loop import code, observe, other_threads
from hotloop.loop.checksum import WHOLE_BYTES, DeviceFloats, array_checksum
from hotloop.loop.declared_state import sort_state
from hotloop.loop.effects import ArgumentWatch, Checked, check_call
from hotloop.loop.state import Snapshot
from hotloop.loop.violation import MAX_LISTED
from support.often import examples

TOTAL = 0
SETTINGS = {"calls": 0, "deep": [{"n": 0}]}


def check(effect: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Checked:
    options["state"], _ = sort_state(options.pop("state", ()), options.pop("may_go_on", ()))
    return check_call("stage", effect, function, args, options.pop("kwargs", {}), **options)


def only(checked: Checked) -> str:
    """The one sentence on what was broken."""
    assert len(checked.violations) == 1, list(map(str, checked.violations))
    return checked.violations[0].what


def clean(checked: Checked) -> bool:
    assert checked.violations == [], list(map(str, checked.violations))
    return checked.complete


# --- pure: what was changed ----------------------------------------------------------------------


def test_a_global_counter() -> None:
    def count(x: int) -> int:
        global TOTAL
        TOTAL += 1
        return x

    before = TOTAL
    checked = check("pure", count, 3)
    assert checked.output == 3
    assert only(checked) == "changes `global TOTAL`"
    assert "keep `global TOTAL` in an object of the loop's state" in checked.violations[0].remedy
    assert before + 1 == TOTAL, "a function that broke its promise is not called again"


def test_a_closure_counter() -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    assert only(check("pure", count)) == "changes `closure calls`"
    assert calls == 1


def test_a_global_that_a_function_called_by_the_function_changes() -> None:
    def outer(x: int) -> int:
        return _bump(x)

    checked = check("pure", outer, 1)
    assert only(checked) == "changes `global SETTINGS['calls']` (in a dict)"


def _bump(x: int) -> int:
    SETTINGS["calls"] += 1
    return x


def test_an_element_nested_in_a_list_in_a_dict() -> None:
    def deep() -> None:
        SETTINGS["deep"][0]["n"] += 1

    assert "`global SETTINGS['deep'][0]['n']`" in only(check("pure", deep))


def test_an_attribute_of_a_module_of_the_user() -> None:
    own = ModuleType("own")
    own.__file__ = __file__
    own.seen = []
    space = {"own": own}
    exec("def look(x):\n    own.seen.append(x)\n", space)
    assert only(check("pure", space["look"], 1)) == "changes `global own.seen`"


class Simulator:
    """Counts its steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.position = np.zeros(3)

    def move(self) -> None:
        self.steps += 1
        self.position += 0.5


class Env:
    """Steps a simulator."""

    made = 0

    def __init__(self) -> None:
        self.sim = Simulator()
        self.rng = np.random.default_rng(0)
        self.torch_rng: Any = None

    def step(self, action: int) -> np.ndarray:
        self.sim.move()
        return self.sim.position + action

    def quiet(self, action: int) -> int:
        return action + len(self.sim.position)

    def draw(self) -> float:
        return float(self.rng.normal())

    def make(self) -> None:
        Env.made += 1

    def make_by_helper(self) -> None:
        self.make()


def test_an_attribute_of_an_object_far_below_self() -> None:
    checked = check("pure", Env().step, 1)
    assert [broken.what for broken in checked.violations] == [
        "changes `self.sim.steps` (in a Simulator)",
        "changes `self.sim.position` (in a Simulator)",
    ]
    assert checked.violations[0].remedy == (
        'declare it effect="stateful" and put `self.sim` into the loop\'s state'
    )
    assert str(checked.violations[0]).startswith("stage 'stage' changes `self.sim.steps`")


def test_an_attribute_of_the_class_that_another_method_changes() -> None:
    assert only(check("pure", Env().make_by_helper)) == "changes `class Env.made` (in a type)"


def test_a_partial_a_callable_object_and_an_attribute_of_a_function() -> None:
    class Caller:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, by: int) -> None:
            self.calls += by

    def noting() -> None:
        noting.calls += 1  # type: ignore[attr-defined]

    noting.calls = 0  # type: ignore[attr-defined]
    assert "`self.calls`" in only(check("pure", Caller(), 1))
    assert "`self.calls`" in only(check("pure", functools.partial(Caller(), 1)))
    assert "`noting.calls`" in only(check("pure", noting))
    seen: list[int] = []
    assert "`partial 0`" in only(check("pure", functools.partial(list.append, seen), 1))
    assert "`self`" in only(check("pure", seen.append, 1))


def test_slots_deques_sets_counts_and_generators() -> None:
    class Slotted:
        __slots__ = ("value",)

        def __init__(self) -> None:
            self.value = 0

    def numbers() -> Iterator[int]:
        yield from range(100)

    slotted, recent, members = Slotted(), collections.deque([1], maxlen=3), {1}
    count, made, listed = itertools.count(), numbers(), iter([1, 2, 3])
    when = SimpleNamespace(at=datetime.datetime(2020, 1, 1), flag=True)
    changes: list[tuple[str, Callable[[], object]]] = [
        ("slotted.value", lambda: setattr(slotted, "value", 1)),
        ("recent", lambda: recent.append(2)),
        ("members", lambda: members.add(len(members) + 1)),
        ("count", lambda: next(count)),
        ("made", lambda: next(made)),
        ("listed", lambda: next(listed)),
        ("when.at", lambda: setattr(when, "at", when.at + datetime.timedelta(1))),
        ("when.flag", lambda: setattr(when, "flag", 1)),
        ("when.new", lambda: setattr(when, "new", 1)),
        ("when.flag", lambda: delattr(when, "flag")),
    ]
    for path, change in changes:
        assert f"`closure {path}" in only(check("pure", change)), path


# --- pure: arguments, random numbers, outputs ----------------------------------------------------


def test_arguments_that_are_written_into() -> None:
    torch = pytest.importorskip("torch")

    def write(scale: float, batch: Any) -> None:
        batch[0] = scale

    for batch in (np.zeros(3), [0.0, 1.0], torch.zeros(3), np.zeros((3, 2))[:, 1]):
        checked = check("pure", write, 2.0, batch)
        assert only(checked).startswith("changes its argument 1 (batch)"), batch
        assert "writes=" in checked.violations[0].remedy
    nested = {"obs": [np.zeros(3)]}
    assert only(check("pure", lambda tree: tree["obs"][0].fill(1), nested)) == (
        "changes its argument 0 (tree)['obs'][0]"
    )
    named = check("pure", write, 2.0, kwargs={"batch": np.zeros(3)})
    assert only(named) == "changes its argument batch"


def test_declared_buffers_may_be_written_also_by_their_views() -> None:
    torch = pytest.importorskip("torch")

    def write(batch: Any) -> None:
        batch += 1

    for buffer in (np.zeros((4, 3)), torch.zeros(4, 3)):
        for effect in ("pure", "stateful"):
            assert clean(check(effect, write, buffer, writes=[buffer]))
            assert clean(check(effect, write, buffer[1:3], writes=[buffer]))
            assert "argument 0" in only(check(effect, write, buffer[1:3], writes=[buffer[:1]]))


def test_random_numbers() -> None:
    torch = pytest.importorskip("torch")
    env = Env()
    env.torch_rng = torch.Generator()
    own = random.Random(3)
    draws: list[tuple[str, Callable[[], object]]] = [
        ("Python's global generator", random.random),
        ("Python's global generator", lambda: random.gauss(0, 1)),
        ("NumPy's global generator", lambda: np.random.rand()),
        ("torch's global generator", lambda: torch.randn(2)),
        ("`self.rng`", env.draw),
        ("`self`", env.rng.normal),
        ("`closure own`", lambda: own.random()),
        ("`closure env.torch_rng`", lambda: torch.rand(1, generator=env.torch_rng)),
    ]
    for source, draw in draws:
        checked = check("pure", draw)
        assert only(checked) == f"draws random numbers from {source}"
        assert 'effect="stateful"' in checked.violations[0].remedy


def test_an_output_that_depends_on_the_time() -> None:
    for function in (
        time.perf_counter,
        lambda: {"at": [time.perf_counter_ns()]},
        lambda: (1, np.array([time.perf_counter()])),
        lambda: SimpleNamespace(at=time.perf_counter()),
    ):
        checked = check("pure", function)
        assert only(checked).startswith("returned something else for the same input")


def test_an_output_in_a_declared_buffer_is_compared() -> None:
    buffer = np.zeros(3)

    def fill() -> np.ndarray:
        buffer[:] = time.perf_counter()
        return buffer

    assert only(check("pure", fill, writes=[buffer])).startswith("returned something else")


def test_a_function_that_cannot_be_called_twice() -> None:
    hidden = SimpleNamespace(calls=0)

    def once() -> None:
        hidden.calls += 1
        if hidden.calls > 1:
            raise ValueError("used up")

    what = only(check("pure", once, exempt=[hidden]))
    assert what == "raised ValueError when called again with the same input"


def test_what_the_function_raises_comes_through() -> None:
    def fail() -> None:
        raise KeyError("own")

    for effect in ("pure", "stateful", "effectful"):
        with pytest.raises(KeyError, match="own"):
            check(effect, fail)


@dataclass
class Arrival:
    """An output of several parts."""

    obs: np.ndarray
    reward: float
    infos: dict[str, Any] = field(default_factory=dict)


class Pair(NamedTuple):
    """Two values."""

    first: Any
    second: Any


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1


def test_functions_that_keep_their_declaration_have_no_violation() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).eval()
    x, batch = np.linspace(0, 1, 12).reshape(3, 4), torch.ones(3, 4)
    logger = logging.getLogger("quiet")

    @functools.lru_cache
    def cached(n: int) -> int:
        return n * n

    def logged(value: Any) -> Any:
        logger.debug("value %s", value)
        return value

    @torch.no_grad()
    def forward(value: Any) -> Any:
        return model(value)

    functions: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (np.sort, (x,)),
        (lambda a: a @ a.T, (x,)),
        (forward, (batch,)),
        (model, (batch,)),
        (lambda: np.random.default_rng(5).normal(size=4), ()),
        (lambda a: Arrival(a[0], float("nan"), {"n": np.nan, "c": Colour.RED}), (x,)),
        (lambda a: Pair({"a": a + 1}, ({"b": [1, 2.5, "c"]}, np.full(2, np.nan))), (x,)),
        (lambda: torch.tensor([float("nan"), 1.0]), ()),
        (lambda: (object(), threading.Lock(), range(3), contextvars.ContextVar("v")), ()),
        (cached, (3,)),
        (lambda n: cached(n), (4,)),
        (logged, (x,)),
        (Env().quiet, (1,)),
        (lambda a: {3, "x"} | {(1, a.shape)}, (x,)),
        (lambda: np.array([{"a": 1}, None], dtype=object), ()),
        (lambda: np.zeros(3, np.dtype([("a", np.int8), ("b", np.float64)], align=True)), ()),
        (lambda: np.array(["2020-01-01"], "M8[D]"), ()),
        (time.sleep, (0.001,)),
    ]
    for function, args in functions:
        assert clean(check("pure", function, *args)), function


def test_attributes_that_are_computed_when_first_read() -> None:
    class Lazy:
        @functools.cached_property
        def table(self) -> list[int]:
            return [1, 2, 3]

        def look(self) -> int:
            return self.table[0]

    assert clean(check("pure", Lazy().look))


def test_an_exchange_for_an_equal_object_is_no_change() -> None:
    holder = SimpleNamespace(obs=np.arange(4.0), tree={"a": [1, float("nan")], "b": 2})

    def exchange() -> None:
        holder.obs = holder.obs.copy()
        holder.tree = {"b": 2, "a": [1, float("nan")]}

    assert clean(check("pure", exchange))

    def other() -> None:
        holder.obs = holder.obs + 1

    assert "`closure holder.obs`" in only(check("pure", other))


def test_locks_queues_and_threads_are_not_looked_into() -> None:
    items: queue.Queue[int] = queue.Queue()
    lock, done = threading.Lock(), threading.Event()

    def work() -> int:
        with lock:
            items.put(1)
            done.set()
        return 1

    assert clean(check("pure", work))


def test_stages_inside_a_stage_are_followed_and_the_probe_is_not() -> None:
    counts = {"n": 0}

    def inner(x: int) -> int:
        counts["n"] += 1
        return x

    staged = hotloop.stage("an inner one", inner)
    quiet = hotloop.stage("a quiet inner one", lambda x: x + 1, effect="pure")
    assert "`closure counts['n']`" in only(check("pure", lambda: staged(1)))
    assert clean(check("pure", lambda: quiet(1)))


def test_iterables_that_are_pure_may_advance_and_are_not_called_twice() -> None:
    class Loader:
        def __init__(self, draws: bool) -> None:
            self.at, self.draws = 0, draws

        def __iter__(self) -> "Loader":
            return self

        def __next__(self) -> int:
            self.at += 1
            return random.randrange(9) if self.draws else self.at

    loader = Loader(draws=False)
    assert clean(check("pure", loader.__next__))
    assert loader.at == 1
    made = iter(x for x in range(9))
    for effect in ("pure", "stateful"):
        assert clean(check(effect, made.__next__))
    assert next(made) == 2
    assert "Python's global generator" in only(check("pure", Loader(draws=True).__next__))


# --- stateful ------------------------------------------------------------------------------------


def test_a_simulator_in_the_state_and_left_out() -> None:
    env = Env()
    assert clean(check("stateful", env.step, 1, state=[env]))
    assert clean(check("stateful", env.step, 1, state=[env.sim]))
    checked = check("stateful", env.step, 1, state=[env.rng])
    assert [broken.what for broken in checked.violations] == [
        "changes `self.sim.steps` (in a Simulator), which is not in the loop's state",
        "changes `self.sim.position` (in a Simulator), which is not in the loop's state",
    ]
    assert checked.violations[0].remedy == "put `self.sim` into the loop's state"
    assert env.sim.steps == 3
    assert env.sim.position.tolist() == [1.5] * 3


def test_generators_in_the_state_and_left_out() -> None:
    torch = pytest.importorskip("torch")
    env = Env()
    assert clean(check("stateful", env.draw, state=[env]))
    assert clean(check("stateful", env.draw, state=[env.rng]))
    for draw in (random.random, lambda: torch.rand(1), lambda: np.random.rand()):
        assert clean(check("stateful", draw)), "the global ones always are part of the state"
    assert only(check("stateful", env.draw)) == (
        "draws random numbers from `self.rng`, which is not in the loop's state"
    )


def test_a_gymnasium_env_in_the_state_and_left_out() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    assert clean(check("stateful", env.step, 1, state=[env]))
    paths = " ".join(broken.what for broken in check("stateful", env.step, 1, state=()).violations)
    assert "`self._elapsed_steps`" in paths
    assert "`self.env.env.env.state`" in paths
    env.close()


def test_globals_and_arguments_are_covered_only_if_they_are_state() -> None:
    def deep(batch: np.ndarray) -> None:
        SETTINGS["calls"] += 1
        batch += 1

    batch = np.zeros(3)
    checked = check("stateful", deep, batch)
    assert [broken.what for broken in checked.violations] == [
        "changes its argument 0 (batch), which is not in the loop's state",
        "changes `global SETTINGS['calls']` (in a dict), which is not in the loop's state",
    ]
    assert clean(check("stateful", deep, batch, state=[SETTINGS, batch]))


def test_a_reference_that_leaves_the_state_is_named() -> None:
    state = {"obs": np.zeros(3)}
    holder = SimpleNamespace(obs=state["obs"])

    def renew() -> None:
        holder.obs = np.zeros(3)

    assert "`closure holder.obs`" in only(check("stateful", renew, state=[state]))


class SavesItself:
    """Answers for its own state, and counts calls that are not part of it."""

    def __init__(self) -> None:
        self.clock = np.zeros(2)
        self.statistics = SimpleNamespace(calls=0)

    def get_state(self) -> np.ndarray:
        return self.clock.copy()

    def set_state(self, saved: np.ndarray) -> None:
        self.clock[:] = saved

    def step(self) -> None:
        self.clock += 1
        self.statistics.calls += 1


class RenewsItself:
    """Answers for its own state, and puts new arrays in the place of many old ones."""

    def __init__(self) -> None:
        self.columns = [np.zeros(4) for _ in range(500)]

    def get_state(self) -> np.ndarray:
        return np.concatenate(self.columns)

    def set_state(self, saved: np.ndarray) -> None:
        self.columns = [saved]

    def step(self) -> None:
        self.columns = [self.columns[0] + 1]


def test_an_object_that_died_is_not_taken_for_a_new_one_with_its_identity() -> None:
    """The identities of the old arrays go to the next objects that are made, which are others."""
    own = RenewsItself()
    assert clean(check("stateful", own.step, state=[own]))


def test_an_object_that_saves_itself_is_not_looked_into() -> None:
    own = SavesItself()
    assert clean(check("stateful", own.step, state=[own]))
    assert clean(check("stateful", lambda: own.step(), state=[own]))
    statistics = own.statistics

    def count() -> None:
        statistics.calls += 1

    assert clean(check("stateful", count, state=[own])), "also where a part is reached otherwise"
    assert "`closure statistics.calls`" in only(check("stateful", count))
    assert only(check("stateful", own.step)).startswith("changes `self`")
    assert only(check("stateful", lambda: own.step())).startswith("changes `closure own`")
    assert own.clock.tolist() == [4, 4]
    holder = SimpleNamespace(own=own)
    left_out = check("stateful", lambda: holder.own.step())
    assert left_out.violations[0].remedy == "put `closure holder.own` into the loop's state"


def test_a_compiled_simulator_that_saves_itself_is_named_where_it_is_left_out() -> None:
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5")
    env.reset(seed=0)
    assert clean(check("stateful", env.step, 2, state=[env]))
    what = [broken.what for broken in check("stateful", env.step, 2).violations]
    assert "changes `self.env.env`, which is not in the loop's state" in what
    env.close()


def test_only_what_works_on_stuck_state_is_named() -> None:
    env, loader = Env(), {"items": (x for x in range(9))}
    items = loader["items"]
    state = [env, loader]
    assert clean(check("stateful", env.step, 1, state=state))
    for draw in (lambda: next(items), lambda: next(loader["items"])):
        what = only(check("stateful", draw, state=state))
        assert what == "works on the dict of the state, which cannot be put back"
    assert next(items) == 2, "each draw was called once"


def test_a_call_may_change_what_goes_on() -> None:
    env = Env()
    env.items = (x for x in range(9))  # type: ignore[attr-defined]
    assert clean(check("stateful", env.step, 1, state=[env], may_go_on=[env]))
    assert env.sim.steps == 1
    counts = {"n": 0}

    def step() -> None:
        env.step(1)
        counts["n"] += 1

    assert "counts" in only(check("stateful", step, state=[env], may_go_on=[env]))


def test_a_pure_call_is_made_once_where_state_cannot_be_put_back() -> None:
    env, items = Env(), (x for x in range(3))
    for may_go_on in ([], [items]):
        checked = check("pure", env.quiet, 1, state=[items], may_go_on=may_go_on)
        assert (checked.violations, checked.complete) == ([], False)


def test_a_graph_that_waits_for_its_backward_pass_survives_the_check() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(3, requires_grad=True)
    batch = torch.ones(3)
    counts = {"n": 0}

    def count() -> None:
        counts["n"] += 1

    loss = (weight * batch * weight).sum()
    assert clean(check("stateful", count, state=[weight, batch, counts]))
    loss.backward()
    assert weight.grad.tolist() == [2, 2, 2]


# --- one call is what the loop sees --------------------------------------------------------------


class Learner:
    """Acts at random and learns: arrays, tensors, gradients, an optimiser and generators."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(1)
        self.torch = torch
        self.model = torch.nn.Linear(4, 2)
        self.optimiser = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.rng = np.random.default_rng(7)
        self.env = gymnasium.make("CartPole-v1")
        self.obs = self.env.reset(seed=3)[0]
        self.seen: list[Any] = []

    def iterate(self, scale: float) -> float:
        obs, reward, over, cut, _ = self.env.step(int(self.rng.integers(2)))
        self.obs = self.env.reset()[0] if over or cut else obs
        self.optimiser.zero_grad()
        noise = self.torch.randn(4) * random.random() * np.random.rand()
        loss = self.model(self.torch.as_tensor(self.obs) * scale + noise.float()).pow(2).sum()
        loss.backward()
        self.optimiser.step()
        self.seen.append(reward)
        return float(loss.detach())

    def bits(self) -> list[Any]:
        tensors = [*self.model.parameters(), *(p.grad for p in self.model.parameters())]
        for state in self.optimiser.state.values():
            tensors += state.values()
        env: Any = self.env.unwrapped
        return [
            *(None if t is None else t.detach().numpy().tobytes() for t in tensors),
            self.rng.bit_generator.state["state"],
            self.obs.tobytes(),
            tuple(env.state),
            env.np_random.bit_generator.state["state"],
            tuple(self.seen),
            random.getstate(),
            np.random.get_state()[1].tobytes(),
            self.torch.get_rng_state().numpy().tobytes(),
        ]


@pytest.mark.parametrize("covered", [True, False])
def test_a_checked_call_leaves_what_one_call_leaves(covered: bool) -> None:
    torch = pytest.importorskip("torch")

    def seed() -> Learner:
        random.seed(5)
        np.random.seed(6)
        made = Learner()
        torch.manual_seed(9)
        return made

    twin = seed()
    expected = [(twin.iterate(0.5), twin.bits()) for _ in range(4)]
    learner = seed()
    state = [learner] if covered else [learner.model, learner.rng]
    for output, bits in expected:
        checked = check("stateful", learner.iterate, 0.5, state=state)
        assert (checked.output, learner.bits()) == (output, bits)
        assert (checked.violations == []) is covered
    learner.env.close()
    twin.env.close()


def test_a_second_call_of_a_pure_stage_undoes_what_it_did_to_the_state() -> None:
    state = np.zeros(1)

    def write(hidden: np.ndarray) -> int:
        hidden += 1
        return 3

    checked = check("pure", functools.partial(write, state), state=[state], exempt=[state])
    assert checked.output == 3
    assert clean(checked)
    assert state[0] == 1, "as after one call"


# --- limits, threads, coverage of the walk -------------------------------------------------------


def test_a_graph_beyond_the_limits_says_incomplete() -> None:
    many = [[i] for i in range(5_000)]
    assert not check("pure", lambda: len(many), max_objects=1_000).complete
    assert not check("pure", lambda: len(many), max_seconds=0.0).complete
    assert check("pure", lambda: len(many), max_seconds=60.0).complete
    late = check("pure", lambda: many[4_900].append(1), max_objects=1_000)
    assert (late.violations, late.complete) == ([], False)


def test_many_changes_are_described_in_few_sentences() -> None:
    holder = SimpleNamespace(**{f"n{i}": 0 for i in range(50)})

    def change() -> None:
        for name in vars(holder):
            setattr(holder, name, 1)

    told = check("pure", change).violations
    assert len(told) == MAX_LISTED + 1
    assert told[-1].what == f"changes {50 - MAX_LISTED} more objects"


def test_beside_the_main_thread_only_arguments_are_compared() -> None:
    calls: list[Any] = []

    def note(batch: np.ndarray, write: bool) -> float:
        calls.append(len(calls))
        batch[0] += write
        return time.perf_counter()

    assert clean(check("pure", note, np.zeros(3), False, beside_main=True))
    assert len(calls) == 1
    written = check("pure", note, np.zeros(3), True, beside_main=True)
    assert only(written) == "changes its argument 0 (batch)"
    buffer = np.zeros(3)
    assert clean(check("pure", note, buffer, True, beside_main=True, writes=[buffer]))


def test_arguments_of_a_coroutine_can_be_watched() -> None:
    batch = [1]
    watch = ArgumentWatch("stage", "pure", lambda rows: None, (batch,), {})
    assert watch.violations() == ([], True)
    batch.append(2)
    broken, complete = watch.violations()
    assert (broken[0].what, complete) == ("changes its argument 0 (rows)", True)


def test_changes_of_another_thread_are_not_attributed_to_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(other_threads, "PATIENCE_SECONDS", 30.0)  # whatever else the machine does

    class Pipeline:
        def __init__(self) -> None:
            self.fetched, self.trained, self.stop = 0, 0, False

        def fetch(self) -> None:
            while not self.stop:
                self.fetched += 1
                time.sleep(0.0002)

        # For so long that the thread has a turn meanwhile, also on a busy machine.
        def look(self) -> int:
            time.sleep(0.03)
            return 1

        def train(self) -> None:
            time.sleep(0.03)
            self.trained += 1

    pipeline = Pipeline()
    thread = threading.Thread(target=pipeline.fetch)
    thread.start()
    try:
        looked = check("pure", pipeline.look)
        trained = check("pure", pipeline.train)
        covered = check("stateful", pipeline.train, state=[pipeline])
        uncovered = check("stateful", pipeline.train)
    finally:
        pipeline.stop = True
        thread.join()
    assert (looked.violations, looked.complete) == ([], False)
    assert only(trained).startswith("changes `self.trained`")
    assert covered.violations == []
    assert only(uncovered).startswith("changes `self.trained`")


def test_beside_an_idle_thread_the_state_is_not_put_back_and_what_is_left_out_is_named() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    env, part = Env(), {"n": [0]}

    def step() -> None:
        env.step(1)
        part["n"].append(random.random())

    try:
        assert clean(check("stateful", step, state=[env, part]))
        what = [broken.what for broken in check("stateful", step, state=[env]).violations]
        assert what == ["changes `closure part['n']`, which is not in the loop's state"]
        assert only(check("stateful", env.draw, state=[env.sim])).startswith("draws random")
        assert clean(check("pure", env.quiet, 1, state=[env]))
    finally:
        done.set()
        thread.join()


def test_objects_that_the_caller_exempts() -> None:
    env = Env()
    assert clean(check("stateful", env.step, 1, exempt=[env.sim]))
    assert env.sim.steps == 1


def test_an_effectful_stage_is_only_called() -> None:
    env = Env()
    checked = check("effectful", env.step, 1)
    assert (checked.violations, checked.complete, env.sim.steps) == ([], True, 1)


@pytest.mark.parametrize("shape", [(1 << 21,), (1 << 11, 1 << 10)])
def test_one_write_into_a_large_array_is_seen(shape: tuple[int, ...]) -> None:
    large = np.zeros(shape)
    assert large.nbytes > WHOLE_BYTES
    rng = np.random.default_rng(0)
    for _ in range(5):
        before = array_checksum(large)
        at = tuple(int(rng.integers(n)) for n in shape)
        large[at] = rng.normal()
        assert array_checksum(large) != before
        assert array_checksum(large.T) == array_checksum(large.T.copy("F"))


def test_checksums_of_odd_arrays() -> None:
    wide = np.broadcast_to(np.arange(3.0), (1 << 20, 3))
    assert array_checksum(wide) == array_checksum(wide[:5])
    assert array_checksum(np.zeros((0, 3))) == array_checksum(np.zeros(0))
    assert array_checksum(np.array(3.0)) != array_checksum(np.array(4.0))
    first, second = np.array([0.0, np.nan]), np.array([-0.0, -np.nan])
    assert array_checksum(first) != array_checksum(second)
    assert array_checksum(first, by_value=True) == array_checksum(second, by_value=True)
    large = np.zeros((1 << 11, 1 << 11))[:, ::2]
    before = array_checksum(large)
    large += 1
    assert array_checksum(large) != before


def test_numbers_of_a_device_are_equal_up_to_rounding() -> None:
    torch = pytest.importorskip("torch")
    numbers = torch.tensor([1.0, float("nan"), 1e-9, float("inf")])
    assert DeviceFloats(numbers) == DeviceFloats(numbers * (1 + 1e-6))
    assert DeviceFloats(numbers) != DeviceFloats(numbers * 1.01)
    assert DeviceFloats(numbers) != DeviceFloats(torch.zeros(4))
    assert DeviceFloats(numbers[:0]) == DeviceFloats(numbers[:0])


def test_tensors_of_every_kind_are_compared_without_touching_autograd() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(3, requires_grad=True)
    tensors = [
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(2, 3).T,
        torch.zeros(1).expand(4),
        torch.zeros(()),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.complex64),
        weight.detach(),
    ]
    for tensor in tensors:
        assert clean(check("pure", lambda t: t.clone(), tensor))
        change = check("pure", lambda t: t.fill_(1.5) if t.ndim == 0 else t[:1].fill_(3), tensor)
        assert only(change) == "changes its argument 0 (t)"
    computed = weight * 2
    assert clean(check("pure", lambda t: t * 3, computed))
    computed.sum().backward()

    def backward() -> None:
        (weight * 3).sum().backward()

    assert "`closure weight.grad`" in only(check("pure", backward))


def test_the_globals_that_code_names_are_those_that_dis_finds() -> None:
    for function in (Snapshot.restore, observe.observe, check_call, Learner.iterate, _bump):
        named = set(code.globals_named(function.__code__).loaded)
        todo, expected = [function.__code__], set()
        while todo:
            each = todo.pop()
            todo += [c for c in each.co_consts if isinstance(c, type(each))]
            expected |= {
                i.argval
                for i in dis.get_instructions(each)
                if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME")
            }
        assert named == expected


# --- any place -----------------------------------------------------------------------------------

keys = st.text("abc", min_size=1, max_size=3)
trees = st.recursive(
    st.just("leaf"),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(keys, inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
        st.builds(lambda **held: SimpleNamespace(**held), a=inner, b=inner),
    ),
    max_leaves=15,
)


def _planted(tree: Any, at: list[str], leaves: list[tuple[str, Any]]) -> Any:
    """The tree with an array or a list of one number for each leaf, all noted with their path."""
    if tree == "leaf":
        made: Any = np.zeros(2) if len(leaves) % 2 else [0]
        leaves.append(("".join(at), made))
        return made
    if isinstance(tree, SimpleNamespace):
        held = vars(tree).items()
        return SimpleNamespace(**{k: _planted(v, [*at, f".{k}"], leaves) for k, v in held})
    if isinstance(tree, dict):
        return {k: _planted(v, [*at, f"[{k!r}]"], leaves) for k, v in tree.items()}
    return type(tree)(_planted(v, [*at, f"[{i}]"], leaves) for i, v in enumerate(tree))


@given(trees, st.data())
@settings(max_examples=examples(60))
def test_a_change_at_any_place_is_found_and_named(tree: Any, data: st.DataObject) -> None:
    leaves: list[tuple[str, Any]] = []
    root = _planted(tree, [], leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    path, leaf = leaves[index]

    def look(held: Any) -> int:
        return len(leaves) + (held is None)

    def change(held: Any) -> None:
        leaves[index][1][0] += 1

    assert clean(check("pure", look, root))
    inside = "[0]" if isinstance(leaf, list) else ""
    for effect in ("pure", "stateful"):
        what = only(check(effect, change, root, exempt=[leaves]))
        assert what.startswith(f"changes its argument 0 (held){path}{inside}")
    assert clean(check("stateful", change, root, state=[root], exempt=[leaves]))
