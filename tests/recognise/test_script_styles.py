"""Scripts in other styles than the usual ones: their iterations are found, and nothing breaks."""

import textwrap
from pathlib import Path

import pytest

from hotloop.errors import LoopError, SettingError
from hotloop.results.benchmark import BenchmarkResult, run_benchmark
from hotloop.results.simplify import run_simplify
from support.growing_budget import has_verdict, simplify_until

# A validation of 80 batches after 20 of the training takes most of the time.
VALIDATING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    rows = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
    model = nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    while True:
        for x, y in DataLoader(rows, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimiser.step()
        with torch.no_grad():
            for x, y in DataLoader(rows, batch_size=8):
                model(x)
"""
# Two batches: the validation is shorter than ten iterations.
VALIDATING_BRIEFLY = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def slowly(rows):
        time.sleep(0.02)
        return tuple(map(torch.stack, zip(*rows)))

    training = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
    validation = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    model = nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    while True:
        for x, y in DataLoader(training, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimiser.step()
        with torch.no_grad():
            for x, y in DataLoader(validation, batch_size=8, collate_fn=slowly):
                model(x)
"""
FUNCTIONAL = """
    import torch
    from torch import nn
    from torch.func import functional_call, grad, vmap

    model = nn.Linear(4, 1)
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def compute_loss(weights, x, y):
        return (functional_call(model, weights, (x,)) - y).square().mean()

    gradients = vmap(grad(compute_loss), in_dims=(None, 0, 0))

    def train_step(weights, x):
        found = gradients(weights, x, x.sum(1, keepdim=True))
        return {name: each - 0.01 * found[name].mean(0) for name, each in weights.items()}

    for _ in range({steps}):
        weights = train_step(weights, torch.randn(16, 4))
"""
GAN = """
    import torch
    from torch import nn

    make = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    judge = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    of_make, of_judge = (torch.optim.Adam(each.parameters()) for each in (make, judge))
    while True:
        made = make(torch.randn(16, 8))
        loss = judge(torch.randn(16, 8)).mean() - judge(made.detach()).mean()
        of_judge.zero_grad()
        loss.backward()
        of_judge.step()
        of_make.zero_grad()
        judge(made).mean().backward()
        of_make.step()
"""
TASKS = """
    import asyncio
    import gymnasium as gym

    async def act(steps):
        env = gym.make("CartPole-v1")
        env.reset(seed=0)
        while True:
            step = env.step(env.action_space.sample())
            await steps.put(step)
            if step[2]:
                env.reset()

    async def main():
        steps = asyncio.Queue(2)
        tasks = [asyncio.create_task(act(steps)) for _ in range(2)]
        while True:
            await steps.get()

    asyncio.run(main())
"""
IN_INFERENCE_MODE = """
    import gymnasium as gym
    import torch
    from torch import nn

    env, policy = gym.make("CartPole-v1"), nn.Linear(4, 2)
    optimiser = torch.optim.SGD(policy.parameters(), 1e-3)
    seen, _ = env.reset(seed=0)
    while True:
        with torch.inference_mode():  # an iteration begins in it, and so does every arm
            values = policy(torch.as_tensor(seen))
        seen, _, terminated, truncated, _ = env.step(int(values.numpy().argmax()))
        if terminated or truncated:
            seen, _ = env.reset()
        optimiser.zero_grad()
        policy(torch.randn(8, 4)).square().mean().backward()
        optimiser.step()
"""
SPARSE = """
    import time
    import torch
    from torch import nn

    def some_words():
        time.sleep(0.005)
        return torch.randint(0, 50, (8, 3))

    words = nn.EmbeddingBag(50, 4, sparse=True)
    optimiser = torch.optim.SparseAdam(words.parameters())
    while True:
        loss = words(some_words()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
"""
WITHOUT_OPTIMISER = """
    import torch

    weights = torch.zeros(4, requires_grad=True)
    for _ in range({iterations}):
        (torch.randn(8, 4) @ weights - 1).square().mean().backward()
        with torch.no_grad():
            weights -= 0.01 * weights.grad
            weights.grad.zero_()
"""
# It uses hotloop's envs, and watches itself.
WITH_HOTLOOP = """
    import itertools
    import torch
    from torch import nn

    import hotloop

    envs = hotloop.make_vec("CartPole-v1", 4)
    model = nn.Linear(4, 2)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    observations, _ = envs.reset(seed=1)
    with hotloop.watch(run="{run}"):
        for step in itertools.count():
            scores = model(torch.as_tensor(observations, dtype=torch.float32))
            observations, *_ = envs.step(scores.argmax(-1).numpy())
            optimiser.zero_grad()
            scores.square().mean().backward()
            optimiser.step()
"""

STAGED = """
    import itertools, time

    import hotloop

    @hotloop.stage("simulate", effect="pure")
    def simulate(n):
        time.sleep(0.002)
        return n

    def learn(n):
        time.sleep(0.004)
        return n

    for n in hotloop.iterations(itertools.count()):
        learn(simulate(n))
"""


def written(folder: Path, text: str, **values: object) -> str:
    text = textwrap.dedent(text)
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


def stages_of(found: BenchmarkResult) -> set[str]:
    return {stage.name for stage in found.summary.stages if stage.calls_per_iteration}


@pytest.mark.long
def test_a_long_validation_is_left_out_however_much_of_the_time_it_has(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, VALIDATING), seconds=2)
    assert stages_of(found) == {
        "data",
        "forward",
        "backward",
        "forward + backward",
        "optimiser step",
    }
    summary = found.summary
    assert summary.units_per_s.value == pytest.approx(32 * summary.iterations_per_s.value, rel=0.05)


@pytest.mark.long
def test_a_brief_validation_is_left_out_too(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, VALIDATING_BRIEFLY), seconds=2)
    assert "act" not in stages_of(found)
    data = next(stage for stage in found.summary.stages if stage.name == "data")
    assert data.calls_per_iteration == pytest.approx(1, abs=0.01)


def test_a_loop_within_torch_func_is_refused_with_that_reason(tmp_path: Path) -> None:
    with pytest.raises(LoopError, match=r"torch\.func .*--stage __main__:train_step"):
        run_simplify(written(tmp_path, FUNCTIONAL, steps=200), budget=1)


@pytest.mark.long
def test_a_loop_within_torch_func_is_measured_by_a_function_that_is_named(tmp_path: Path) -> None:
    script = written(tmp_path, FUNCTIONAL, steps=10**9)
    found = run_benchmark(script, seconds=1, stage=("__main__:train_step",))
    assert stages_of(found) == {"train_step"}


@pytest.mark.long
def test_both_networks_of_a_gan_are_updated_in_an_iteration(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, GAN), seconds=1)
    steps = next(stage for stage in found.summary.stages if stage.name == "optimiser step")
    assert steps.calls_per_iteration == pytest.approx(2)


@pytest.mark.long
def test_arms_begin_while_a_graph_waits_for_its_backward_pass(tmp_path: Path) -> None:
    found = run_simplify(written(tmp_path, GAN), budget=4)
    assert {row.name for row in found.verdict.rows} >= {"forward + backward", "optimiser step"}


@pytest.mark.long
def test_operations_are_not_counted_where_an_iteration_begins_in_inference_mode(
    tmp_path: Path,
) -> None:
    found = run_simplify(written(tmp_path, IN_INFERENCE_MODE), budget=4)
    assert {row.name for row in found.verdict.rows} >= {"act", "env step"}


@pytest.mark.long
def test_gradients_that_are_sparse_are_counted_by_their_values(tmp_path: Path) -> None:
    script = written(tmp_path, SPARSE)
    found = simplify_until(lambda found: bool(found.verdict.rest_places), script)
    assert {row.name for row in found.verdict.rows} >= {"forward + backward", "optimiser step"}
    outside = found.verdict.rest_places[0]
    assert outside.stage == "__main__:some_words", "it has most of what no stage has"
    assert outside.share > 0.1


@pytest.mark.long
def test_calls_in_tasks_of_asyncio_are_the_script_s_own(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, TASKS), seconds=1)
    assert found.summary.unit == "env steps"
    assert "env step" in stages_of(found)


@pytest.mark.long
def test_a_loop_that_changes_its_weights_by_itself(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, WITHOUT_OPTIMISER, iterations=10**9), seconds=1)
    assert stages_of(found) >= {"backward"}


@pytest.mark.long
def test_what_was_seen_of_a_script_that_ended_before_its_iterations_were_known(
    tmp_path: Path,
) -> None:
    with pytest.raises(LoopError, match=r"was seen \d+ times, and then it ended"):
        run_simplify(written(tmp_path, WITHOUT_OPTIMISER, iterations=60), budget=3)


@pytest.mark.long
def test_hotloop_s_envs_are_recognised_and_a_watch_within_a_measurement_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "watched.run"
    found = run_benchmark(written(tmp_path, WITH_HOTLOOP, run=run), seconds=1)
    assert found.summary.unit == "env steps"
    assert stages_of(found) >= {"env step", "backward", "optimiser step"}
    assert "the script is being measured, so this watch is off" in capsys.readouterr().err
    assert not run.exists(), "the watch has saved a run"


@pytest.mark.long
def test_a_function_can_be_a_stage_beside_those_that_the_script_has(tmp_path: Path) -> None:
    script = written(tmp_path, STAGED)
    found = simplify_until(has_verdict, script, stage=("__main__:learn",))
    assert {row.name for row in found.verdict.rows} == {"simulate", "learn"}
    assert found.verdict.fix is not None
    assert found.verdict.fix.name == "learn"
    with pytest.raises(SettingError, match="--iteration and --may-go-on are for scripts without"):
        run_simplify(script, budget=6, iteration="learn")
