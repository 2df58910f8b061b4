"""What stands for the calls of each library while they are replaced."""

import concurrent.futures
import copy
import multiprocessing.pool
import socket
from collections.abc import Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from hotloop.loop.arm import COUNTED, FREE, OFF, REAL, RECORD, Arm
from hotloop.loop.control import SharedControl
from hotloop.loop.state import Snapshot
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.places import ACT, ENV_STEP, FORWARD, OPTIMISER_STEP, torch_transfers
from hotloop.recognise.recognition import Recognition


def under(recognition: Recognition, arm: Arm) -> None:
    recognition.control.set(arm)


def recorded(recognition: Recognition, call, times: int = 3) -> None:
    under(recognition, Arm("recording", rest=RECORD))
    for _ in range(times):
        call()


def test_a_replayed_act_returns_what_its_module_returned_for_such_a_shape(recognition) -> None:
    module = nn.Linear(2, 2)
    calls = []
    module.register_forward_hook(lambda *_: calls.append(1))

    def act() -> torch.Tensor:
        with torch.no_grad():
            return module(torch.ones(4, 2))

    recorded(recognition, act)
    before = len(calls)
    under(recognition, Arm("free", {"act": FREE}))
    replayed = act()
    assert len(calls) == before
    assert not replayed.requires_grad
    torch.testing.assert_close(replayed, nn.functional.linear(torch.ones(4, 2), *_of(module)))
    with torch.no_grad():
        assert module(torch.ones(7, 2)).shape == (7, 2)  # no such shape was recorded: it runs
    assert len(calls) == before + 1


def _of(module: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
    return module.weight.detach(), module.bias.detach()


def test_a_collector_of_tianshou_acts_though_gradients_are_on(recognition) -> None:
    collector = pytest.importorskip("tianshou.data.collector")
    policy = nn.Linear(2, 2)

    class Collector(collector.BaseCollector):
        def __init__(self) -> None: ...
        def _collect(self) -> None: ...

        def _compute_action_policy_hidden(self) -> torch.Tensor:
            return policy(torch.ones(4, 2))

    recorded(recognition, Collector()._compute_action_policy_hidden)
    assert {event.stage for event in recognition.control.drain_events()} == {
        recognition.stages["act"].index
    }
    under(recognition, Arm("free", {"act": FREE}))
    assert Collector()._compute_action_policy_hidden().requires_grad
    assert policy(torch.ones(4, 2)).grad_fn is not None


def test_a_replayed_forward_pass_has_gradients_that_lead_nowhere(recognition) -> None:
    module = nn.Linear(2, 3)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)

    def update() -> torch.Tensor:
        optimiser.zero_grad()
        out = module(torch.ones(4, 2))
        out /= 2  # an output may be written in place
        first, *_ = out.unbind(0)
        loss = first.sum() + out.sum()
        loss.backward()
        optimiser.step()
        return out

    recorded(recognition, update)
    before = module.weight.detach().clone()
    under(recognition, Arm("free", {"forward + backward": FREE}))
    out = update()
    assert out.requires_grad
    # The backward pass left the last gradients, so that the optimiser had its work.
    assert module.weight.grad is not None
    assert not torch.equal(module.weight, before)


class Batch:
    """An output of a class that torch does not know."""

    def __init__(self, **parts: object) -> None:
        self.__dict__.update(parts)


class Rows:
    """What a module is given by a library: it says less of its shape than its parts do."""

    shape = ()

    def __init__(self, **parts: torch.Tensor) -> None:
        self.parts = parts

    def items(self) -> object:
        return self.parts.items()


def test_a_batch_of_a_library_has_the_shapes_of_its_parts(recognition) -> None:
    class Policy(nn.Module):
        def forward(self, rows: Rows) -> torch.Tensor:
            return 2 * rows.parts["obs"]

    policy = Policy()

    def act(rows: int) -> torch.Tensor:
        with torch.no_grad():
            return policy(Rows(obs=torch.ones(rows, 4)))

    recorded(recognition, lambda: act(8))
    under(recognition, Arm("free", {"act": FREE}))
    assert act(8).shape == (8, 4)
    assert act(5).shape == (5, 4)  # no such batch was recorded: it runs


def test_gradients_that_a_function_returns_are_replayed_with_the_passes(recognition) -> None:
    module, x = nn.Linear(2, 1), torch.ones(4, 2, requires_grad=True)

    def penalty() -> torch.Tensor:
        (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        assert slope.shape == x.shape
        return slope.square().sum()

    recorded(recognition, lambda: penalty().backward())
    under(recognition, Arm("free", {"forward + backward": FREE}))
    penalty().backward()


def test_within_a_function_that_is_transformed_nothing_is_a_stage(recognition) -> None:
    module = nn.Linear(2, 1)

    def loss(row: torch.Tensor) -> torch.Tensor:
        return module(row).square().sum()

    recognition.control.drain_events()
    torch.func.vmap(torch.func.grad(loss))(torch.ones(3, 2))
    assert not recognition.control.drain_events()


def test_an_env_whose_agents_take_turns_is_not_replaced(recognition) -> None:
    pettingzoo = pytest.importorskip("pettingzoo")

    class Turns(pettingzoo.AECEnv):
        def step(self, action: int) -> None: ...

    Turns().step(0)
    assert "take turns" in str(recognition.stages["env step"].cannot_replace)


def test_steps_of_an_env_of_dm_env_are_replayed(recognition) -> None:
    dm_env = pytest.importorskip("dm_env")

    class Counting(dm_env.Environment):
        count = 0

        def reset(self) -> Any:
            return dm_env.restart(self.count)

        def step(self, action: int) -> Any:
            self.count += action
            return dm_env.transition(0.0, self.count)

        def observation_spec(self) -> Any: ...

        def action_spec(self) -> Any: ...

    env = Counting()
    recorded(recognition, lambda: env.step(1))
    before = env.count
    under(recognition, Arm("free", {"env step": FREE}))
    assert env.step(1).observation in range(1, before + 1)
    assert env.count == before


def test_an_env_s_step_takes_its_action_by_the_name_it_has(recognition) -> None:
    class Named(gymnasium.Env):
        def step(self, move: int) -> Any:
            return np.array([float(move)]), 0.0, False, False, {}

    env = Named()
    for arm in (Arm("recording", rest=RECORD), Arm("loop", rest=REAL), Arm("off", rest=OFF)):
        under(recognition, arm)
        assert env.step(move=2)[0] == env.step(2)[0] == 2.0
        with pytest.raises(TypeError, match="action"):
            env.step(action=2)
        with pytest.raises(TypeError, match="move"):
            env.step()


def test_outputs_of_classes_of_their_own_are_replayed_with_gradients_too(recognition) -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 3)

        def forward(self, obs: torch.Tensor) -> Batch:
            logits = self.inner(obs)
            dist = torch.distributions.Categorical(logits=logits)
            return Batch(inner=Batch(logits=[logits]), dist=dist, name="policy", obs=obs)

    policy, obs = Policy(), torch.ones(4, 2)

    def update() -> Batch:
        out = policy(obs)
        (out.inner.logits[0].sum() + out.dist.log_prob(torch.zeros(4)).sum()).backward()
        return out

    recorded(recognition, update)
    stage = recognition.stages["forward + backward"]
    assert stage.cannot_replace is None
    under(recognition, Arm("free", {"forward + backward": FREE}))
    out = update()
    assert out.inner.logits[0].requires_grad
    assert out.dist.logits.requires_grad
    assert out.name == "policy"
    expected = nn.functional.linear(obs, *_of(policy.inner))
    torch.testing.assert_close(out.inner.logits[0].detach(), expected)


def test_a_replayed_optimiser_leaves_the_parameters(recognition) -> None:
    module = nn.Linear(2, 3)
    optimiser = torch.optim.Adam(module.parameters(), 0.1)

    def update() -> None:
        optimiser.zero_grad()
        module(torch.ones(4, 2)).sum().backward()
        optimiser.step()

    recorded(recognition, update)
    before = module.weight.detach().clone()
    under(recognition, Arm("free", {"optimiser step": FREE}))
    update()
    assert torch.equal(module.weight, before)
    under(recognition, Arm("real", rest=REAL))
    update()
    assert not torch.equal(module.weight, before)


def test_a_scaler_s_work_is_replaced_with_the_step_and_schedules_go_back(recognition) -> None:
    module = nn.Linear(2, 3)
    optimiser = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=1, gamma=0.5)

    def update() -> None:
        optimiser.zero_grad()
        scaler.scale(module(torch.ones(4, 2)).sum()).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
        schedule.step()

    def held() -> list[object]:
        state = (scaler.state_dict(), schedule.state_dict(), optimiser.state_dict())
        return copy.deepcopy([*state, module.state_dict()])

    recorded(recognition, update)
    before = module.weight.detach().clone()
    under(recognition, Arm("free", {"optimiser step": FREE}))
    for _ in range(3):
        update()
    assert torch.equal(module.weight, before)
    under(recognition, Arm("real", rest=REAL))
    update()
    assert not torch.equal(module.weight, before)
    snapshot, then = Snapshot(recognition.state()), held()
    for _ in range(5):
        update()
    assert held()[:2] != then[:2]
    snapshot.restore()
    torch.testing.assert_close(held(), then, rtol=0, atol=0)


def test_of_a_module_its_numbers_go_back_and_its_mode_stays(recognition) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.is_within_training_step = False
    module(torch.ones(4, 2)).sum().backward()
    module.eval()
    state = FoundIterations(recognition).state()
    snapshot, then = Snapshot(state), copy.deepcopy(module.state_dict())
    gradient = module[0].weight.grad.clone()
    module.train()
    module.is_within_training_step = True
    module(torch.randn(4, 2)).square().sum().backward()
    with torch.no_grad():
        module[0].weight.add_(1)
    snapshot.restore()
    torch.testing.assert_close(module.state_dict(), then, rtol=0, atol=0)
    assert torch.equal(module[0].weight.grad, gradient)
    assert module.training
    assert module.is_within_training_step


def test_hooks_of_an_optimiser_that_was_made_meanwhile_are_called_once_and_ever_after() -> None:
    class Own(torch.optim.Optimizer):
        """Of a class that PyTorch has not put its call of hooks around yet."""

        def __init__(self) -> None:
            super().__init__([torch.zeros(1, requires_grad=True)], {})

        def step(self, closure=None):
            called.append("step")

    control, called = SharedControl(), []
    control.set(Arm("real", rest=REAL))
    with Recognition(control):
        optimiser = Own()
        optimiser.register_step_post_hook(lambda *_: called.append("hook"))
        optimiser.step()
    optimiser.step()
    with Recognition(control):
        optimiser.step()
    assert called == ["step", "hook"] * 3
    control.set(Arm("off", rest=OFF))


def test_an_optimiser_s_closure_holds_stages_of_its_own(recognition) -> None:
    module = nn.Linear(2, 1)
    optimiser = torch.optim.LBFGS(module.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = module(torch.ones(4, 2)).square().sum()
        loss.backward()
        return loss

    recognition.control.drain_events()
    optimiser.step(closure)
    names = recognition.control.names()
    seen = [names[event.stage] for event in recognition.control.drain_events()]
    assert {"forward", "backward", "optimiser step"} <= set(seen)
    starts = seen.index("optimiser step")
    assert seen.index("backward") < starts


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.LBFGS])
def test_a_replayed_step_returns_the_loss_of_its_own_closure(recognition, make) -> None:
    """The loss carries a graph, so no recorded one could stand for it."""
    module, batch = nn.Linear(2, 1), torch.ones(4, 2)
    optimiser = make(module.parameters())

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = module(batch).square().sum()
        loss.backward()
        return loss

    recorded(recognition, lambda: optimiser.step(closure))
    assert recognition.stages["optimiser step"].tape.problem is None
    before = module.weight.detach().clone()
    under(recognition, Arm("free", {"optimiser step": FREE}))
    for size in (1.0, 2.0):
        batch = torch.full((4, 2), size)
        loss = optimiser.step(closure)
        assert torch.equal(loss, module(batch).square().sum())
        assert loss.requires_grad
    assert torch.equal(module.weight, before)


def test_the_outermost_env_is_the_stage_and_its_steps_are_counted(recognition) -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    env.reset(seed=1)
    recognition.control.drain_events()
    for _ in range(5):
        env.step(0)
    names = recognition.control.names()
    seen = [names[event.stage] for event in recognition.control.drain_events()]
    assert seen == ["env step"] * 5
    assert recognition.units == {"env steps": 5.0}
    assert recognition.objects["env step"] == [env]


def test_a_vector_env_s_steps_are_those_of_its_envs(recognition) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
    envs.reset(seed=1)
    for _ in range(4):
        envs.step(envs.action_space.sample())
    assert recognition.units["env steps"] == 12
    envs.close()


def test_a_replayed_env_does_not_move(recognition) -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=1)
    recorded(recognition, lambda: env.step(0), 2)
    state = env.unwrapped.state.copy()
    under(recognition, Arm("free", {"env step": FREE}))
    assert len(env.step(0)) == 5
    assert (env.unwrapped.state == state).all()


class GraphBatch:
    """Several graphs as one, whose nodes are more than they."""

    def __init__(self, graphs: list[int]) -> None:
        self._nodes, self.batch_size = torch.zeros(7 * len(graphs), 2), len(graphs)


@pytest.mark.parametrize(
    ("collate", "count"),
    [
        (None, 10),
        (GraphBatch, 10),
        (lambda graphs: (GraphBatch(graphs), torch.tensor(graphs)), 10),
        (lambda graphs: list(map(str, graphs)), 10),
        (lambda graphs: {"x": np.array(graphs)}, 10),
        (lambda graphs: GraphBatch, 3),  # nothing says how many: three batches
    ],
)
def test_the_samples_of_a_batch_are_counted(recognition, collate, count) -> None:
    for _ in DataLoader(list(range(10)), batch_size=4, collate_fn=collate):
        pass
    assert recognition.units["samples"] == count


def test_saving_is_left_out_where_it_is_replaced(recognition, tmp_path) -> None:
    recorded(recognition, lambda: torch.save({"x": 1}, tmp_path / "a.pt"), 2)
    under(recognition, Arm("free", {"checkpoint": FREE}))
    torch.save({"x": 1}, tmp_path / "b.pt")
    assert (tmp_path / "a.pt").exists()
    assert not (tmp_path / "b.pt").exists()


def test_a_checkpoint_that_is_renamed_is_there_also_where_saving_is_left_out(
    recognition, tmp_path
) -> None:
    recognition.folder = tmp_path / "own"
    recognition.folder.mkdir()
    best = tmp_path / "best.pt"

    def save(step: int) -> None:
        torch.save({"step": step}, tmp_path / f"step-{step}.tmp")
        (tmp_path / f"step-{step}.tmp").replace(best)

    recorded(recognition, lambda: save(1))
    under(recognition, Arm("free", {"checkpoint": FREE}))
    best.unlink()
    for step in (2, 3):
        save(step)
        assert torch.load(best) == {"step": 1}
    torch.save({"step": 4}, tmp_path / "missing" / "a.pt")  # is not saved, and raises nothing


@pytest.fixture
def with_accelerator(monkeypatch) -> Iterator[Recognition]:
    """As where torch sees a card: the device "meta" stands for it, whose tensors have no memory."""
    monkeypatch.setattr(torch_transfers, "has_accelerator", lambda _cuda: True)
    control = SharedControl()
    control.set(Arm("real", rest=REAL))
    with Recognition(control) as made:
        yield made
    control.set(Arm("off", rest=OFF))


def calls_of(recognition: Recognition, call) -> list[str]:
    recognition.control.drain_events()
    call()
    names = recognition.control.names()
    return [names[event.stage] for event in recognition.control.drain_events()]


@pytest.mark.parametrize(
    ("call", "stages"),
    [
        (lambda x: x.to("meta"), ["transfer"]),
        (lambda x: x.to(torch.device("meta"), torch.float64), ["transfer"]),
        (lambda x: x.to(device="meta"), ["transfer"]),
        (lambda x: x.to(torch.ones(1, device="meta")), ["transfer"]),
        (lambda x: x.to("cpu"), []),
        (lambda x: x.to(torch.float64), []),
        (lambda x: x.to(dtype=torch.float64), []),
        (lambda x: x.cpu(), []),
        (lambda x: (x.sum().item(), x.tolist(), x.numpy()), []),
        (lambda x: x.requires_grad_().to("meta"), []),
    ],
)
def test_what_crosses_devices_is_a_transfer(with_accelerator, call, stages) -> None:
    assert calls_of(with_accelerator, lambda: call(torch.ones(3))) == stages


def test_reading_a_tensor_elsewhere_waits_for_it(with_accelerator) -> None:
    away = torch.ones(3, device="meta")

    def read() -> None:
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            away.tolist()  # it has no numbers

    assert torch.Tensor.tolist.__name__ == "tolist"
    read()
    monitored = calls_of(with_accelerator, lambda: torch.ones(3).to("meta"))
    assert monitored == ["transfer"]
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.synchronize()  # no card here: its own error, as without hotloop


def test_a_replayed_transfer_returns_what_was_recorded(with_accelerator) -> None:
    recorded(with_accelerator, lambda: torch.ones(4, 2).to("meta"), 2)
    under(with_accelerator, Arm("free", {"transfer": FREE}))
    replayed = torch.zeros(4, 2).to("meta")
    assert replayed.device.type == "meta"
    assert replayed.shape == (4, 2)
    assert torch.ones(5).to("meta").shape == (5,)  # no such shape was recorded: it runs


def test_without_an_accelerator_tensors_stay_as_they_are(recognition) -> None:
    assert "to" not in vars(torch.Tensor)
    assert "transfer" not in recognition.stages


def test_a_library_s_own_saving_is_one_call_with_all_that_it_does(recognition, tmp_path) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    model = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8)
    recorded(recognition, lambda: model.save(tmp_path / "a"), 2)
    assert len(recognition.stages["checkpoint"].tape) == 2  # torch.save within it is a part of it
    under(recognition, Arm("free", {"checkpoint": FREE}))
    model.save(tmp_path / "b")
    assert (tmp_path / "a.zip").exists()
    assert not (tmp_path / "b.zip").exists()


def test_logging_is_left_out_where_it_is_replaced(recognition, tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        recorded(recognition, lambda: writer.add_scalar("x", 1.0), 2)
        seen = len(recognition.stages["log"].tape)
        assert seen == 2
        under(recognition, Arm("free", {"log": FREE}))
        assert writer.add_scalar("x", 2.0) is None


def test_a_wait_of_the_script_s_own_thread_is_seen(recognition) -> None:
    import queue

    items: queue.Queue[int] = queue.Queue()
    items.put(1)
    recognition.control.drain_events()
    assert items.get() == 1
    names = recognition.control.names()
    assert [names[e.stage] for e in recognition.control.drain_events()] == ["wait"]


def test_a_wait_for_a_socket_is_seen_and_sockets_are_theirs_again(recognition) -> None:
    near, far = socket.socketpair()
    with near, far:
        recognition.control.drain_events()
        far.sendall(b"1")
        into = bytearray(1)
        assert near.recv_into(into) == 1
        assert near.getsockname() is not None
    names = recognition.control.names()
    seen = [names[e.stage] for e in recognition.control.drain_events()]
    assert seen == ["wait", "wait"]
    recognition.__exit__()
    assert "recv_into" not in vars(socket.socket)


def test_while_nothing_is_measured_nothing_is_seen(recognition) -> None:
    under(recognition, Arm("off", rest=OFF))
    recognition.control.drain_events()
    nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    assert recognition.control.drain_events() == []


def test_a_call_that_is_counted_is_counted_once_and_not_timed(recognition) -> None:
    """An env within four others, an optimiser whose closure has a pass of its own, and a thread."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    module = nn.Linear(1, 1)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = module(torch.ones(1, 1)).sum()
        loss.backward()
        return loss

    names = (ENV_STEP, OPTIMISER_STEP, FORWARD)
    stages = [recognition.stages[name] for name in names]
    counted = dict.fromkeys((*names, ACT), COUNTED)
    under(recognition, Arm("counted", counted, rest=OFF))
    recognition.control.drain_events()
    assert torch.is_tensor(optimiser.step(closure))
    optimiser.step()
    for _ in range(3):
        env.step(0)
    module(torch.ones(1, 1))
    assert [stage.counting.number for stage in stages] == [3, 2, 2]
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        other.submit(env.step, 0).result()
    assert stages[0].counting.number == 3
    assert recognition.control.drain_events() == []


def test_what_a_call_holds_from_which_on_calls_are_counted_is_a_part_of_it(recognition) -> None:
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    counting = Arm("counting", {OPTIMISER_STEP: COUNTED}, rest=OFF)
    recognition.control.watcher = lambda _stage: recognition.control.set(counting)
    optimiser = Outer(nn.Linear(1, 1).parameters(), 0.1)
    optimiser.step()
    recognition.control.watcher = None
    assert recognition.stages[OPTIMISER_STEP].counting.number == 0  # the watcher has counted it
    optimiser.step()
    assert recognition.stages[OPTIMISER_STEP].counting.number == 1


def test_an_act_in_inference_mode_is_recorded_and_replayed(recognition) -> None:
    module = nn.Linear(2, 2)
    with torch.inference_mode():
        recorded(recognition, lambda: module(torch.ones(4, 2)))
        under(recognition, Arm("free", {"act": FREE}))
        before = recognition.stages["act"].tape.missed
        replayed = module(torch.ones(4, 2))
        assert recognition.stages["act"].tape.missed == before
        assert replayed.is_inference()
        torch.testing.assert_close(replayed, nn.functional.linear(torch.ones(4, 2), *_of(module)))


def test_a_class_of_the_script_is_sent_to_another_process_as_it_was(recognition) -> None:
    class Own(gymnasium.Env):
        def step(self, action):
            return action, 1.0, False, False, {}

    # Its methods are sent as a whole, not by name, as they are of no module that can be imported.
    sent = cloudpickle.loads(cloudpickle.dumps(Own.step))
    assert sent(Own(), 3)[0] == 3
    assert recognition.control.drain_events() == []
    assert Own().step(3)[0] == 3
    assert len(recognition.control.drain_events()) == 1


def test_what_a_pool_or_an_executor_has_not_done_yet_is_waited_for(recognition) -> None:
    with multiprocessing.pool.ThreadPool(1) as pool:
        pool.map(abs, [1, 2])
        list(pool.imap(abs, [1, 2]))
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        executor.submit(abs, 1).result()
    names = recognition.control.names()
    waits = [e for e in recognition.control.drain_events() if names[e.stage] == "wait"]
    assert len(waits) == 1 + 2 + 1
