"""Scripts as they stand: their parts, their iterations and the verdict, with nothing marked."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from hotloop.errors import LoopError, SettingError
from hotloop.loop.figures import Interval
from hotloop.results.benchmark import run_benchmark
from hotloop.results.simplify import SimplifyResult, run_simplify
from support.growing_budget import gains_more_than, has_verdict, simplify_until

SUPERVISED = """
    import sys, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Waits(Dataset):
        def __len__(self):
            return 512
        def __getitem__(self, index):
            if {wait_s}:  # a sleep of 0 s gives the core away, if others want it
                time.sleep({wait_s})
            return torch.full((8,), float(index % 7)), index % 3

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    compute_loss = nn.CrossEntropyLoss()

    def report(loss):
        sum(range({report_sums}))
        return loss

    for epoch in range(int(sys.argv[1])):
        for x, y in DataLoader(Waits(), batch_size=4, shuffle=True):
            optimiser.zero_grad()
            loss = compute_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            report(loss.item())
    print("learned", sum(p.double().sum().item() for p in model.parameters()))
"""
GOES_ON = """
    import itertools, time

    import hotloop

    def simulate(hidden):
        time.sleep(0.002)
        return next(hidden)

    hidden = (n for n in range(10_000_000))
    step = hotloop.stage("env step", simulate, effect="stateful")
    hotloop.state([hidden], may_go_on=True)
    for _ in hotloop.iterations(itertools.count()):
        step(hidden)
"""
MARKED = """
    import itertools, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    import hotloop

    class Waits(Dataset):
        def __len__(self):
            return 512
        def __getitem__(self, index):
            time.sleep(0.003)
            return torch.full((8,), float(index % 7)), index % 3

    model = nn.Linear(8, 3)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    batches = (b for _ in itertools.count() for b in DataLoader(Waits(), batch_size=4))
    for pair in hotloop.iterations(
        zip(batches, batches), unit="lines", units=lambda pair: sum(len(y) for _, y in pair)
    ):
        for x, y in pair:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
"""
MARKED_LATE = """
    import torch

    import hotloop

    model = torch.nn.Linear(8, 1)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        optimiser.zero_grad()
        model(torch.rand(4, 8)).sum().backward()
        optimiser.step()

    for _ in range(20_000):  # for longer than it takes to find that
        step()
    for _ in hotloop.iterations(range(100)):
        step()
"""
ASKING = """
    import sys, time
    import gymnasium as gym
    import torch
    from torch import nn

    env = gym.make("CartPole-v1")
    model = nn.Linear(4, 2)

    @torch.no_grad()
    def choose(obs):
        time.sleep(0.002)
        return int(sum(model(torch.as_tensor(obs)) for _ in range(3)).argmax())

    obs, _ = env.reset(seed=0)
    for step in range(int(sys.argv[1])):
        obs, _, terminated, truncated, _ = env.step(choose(obs))
        if terminated or truncated:
            obs, _ = env.reset()
"""
ACTING = """
    import sys, time
    import gymnasium as gym
    import torch
    from torch import nn

    class Waits(gym.Wrapper):
        def step(self, action):
            time.sleep(0.004)  # most of the time, also where others have the core
            return super().step(action)

    env = Waits(gym.make("CartPole-v1"))
    env.hidden = {hidden}
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimiser = torch.optim.SGD(policy.parameters(), 1e-3)
    observation, _ = env.reset(seed=1)
    while True:
        rewards, kept = [], []
        for _ in range(4):
            with torch.no_grad():
                logits = policy(torch.as_tensor(observation))
            action = int(torch.distributions.Categorical(logits=logits).sample())
            kept.append((observation, action))
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            if terminated or truncated:
                observation, _ = env.reset()
        for observed, chosen in kept[:2]:
            loss = -torch.log_softmax(policy(torch.as_tensor(observed)), -1)[chosen]
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
"""


TRIED_NOW_AND_THEN = """
    import sys, time
    import gymnasium as gym
    import torch
    from torch import nn

    env = gym.make("CartPole-v1")
    policy = nn.Linear(4, 2)
    optimiser = torch.optim.SGD(policy.parameters(), 1e-3)

    def score():
        obs, _ = env.reset(seed=1)
        for steps in range(30):
            with torch.no_grad():
                action = int(policy(torch.as_tensor(obs)).argmax())
            obs, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
        return steps

    for step in range(int(sys.argv[1])):
        if step % 20_000 == 0:
            score()
        loss = policy(torch.rand(64, 4)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        time.sleep(0.001)
"""
ON_ANOTHER_THREAD = """
    import threading
    import torch

    def train():
        model = torch.nn.Linear(8, 1)
        for _ in range(50):
            model(torch.rand(4, 8)).sum().backward()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
"""


def written(folder: Path, text: str, **values: object) -> str:
    text = textwrap.dedent(text)
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


def most_gaining(found: SimplifyResult) -> str:
    rows = [row for row in found.verdict.rows if isinstance(row.gain, Interval)]
    return max(rows, key=lambda row: row.gain.value).name


@pytest.mark.long
def test_what_a_policy_is_tried_on_now_and_then_is_not_what_is_counted(tmp_path: Path) -> None:
    script = written(tmp_path, TRIED_NOW_AND_THEN)
    found = run_benchmark(script, seconds=2, arguments=["1000000"]).summary
    assert found.unit == "iterations"
    assert found.units_per_s.value > 10


@pytest.mark.long
def test_a_loader_that_waits_is_found_in_a_script_that_marks_nothing(tmp_path: Path) -> None:
    script = written(tmp_path, SUPERVISED, wait_s=0.008, report_sums=0)
    found = simplify_until(has_verdict, script, arguments=["100000"])
    verdict = found.verdict
    assert verdict.unit == "samples"
    assert verdict.units_per_iteration == pytest.approx(4)
    names = {row.name for row in verdict.rows}
    assert names >= {"data", "forward", "backward", "clip", "optimiser step", "forward + backward"}
    assert most_gaining(found) == "data"
    data = next(row for row in verdict.rows if row.name == "data")
    assert data.gain.value > 0.5
    forward = next(row for row in verdict.rows if row.name == "forward")
    assert "together" in str(forward.not_replaced)
    assert forward.inside == "forward + backward"


@pytest.mark.long
def test_the_parts_of_a_script_that_marks_its_iterations_are_found(tmp_path: Path) -> None:
    """Two batches are an iteration here, which the order of the calls does not show."""
    script = written(tmp_path, MARKED)
    found = simplify_until(has_verdict, script)
    verdict = found.verdict
    assert found.run.facts["iterations_marked_by"] == "hotloop.iterations"
    assert verdict.unit == "lines"
    assert verdict.units_per_iteration == pytest.approx(8)
    assert {row.name for row in verdict.rows} >= {"data", "optimiser step", "forward + backward"}
    assert most_gaining(found) == "data"
    assert not [note for note in verdict.warnings if "not declared" in note]
    assert found.run.facts["redirected"]  # the run is a throw-away copy
    with pytest.raises(SettingError, match=r"mark no iterations; .*hotloop\.iterations"):
        run_simplify(script, iteration="data")


@pytest.mark.long
def test_what_a_script_lets_go_on_is_replaced_and_named(tmp_path: Path) -> None:
    verdict = simplify_until(has_verdict, written(tmp_path, GOES_ON)).verdict
    (row,) = verdict.rows
    assert row.not_replaced is None
    (notice,) = [note for note in verdict.warnings if "hides its content" in note]
    assert notice.startswith("goes on from experimental steps: state[0] (list)[0]: ")


@pytest.mark.long
def test_marks_that_come_after_another_loop_was_taken_for_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoopError, match="had been taken as the mark of an iteration before"):
        run_benchmark(written(tmp_path, MARKED_LATE), seconds=500)


@pytest.mark.long
def test_an_env_that_waits_is_found_and_its_steps_are_counted(tmp_path: Path) -> None:
    found = simplify_until(gains_more_than(0.3, "env step"), written(tmp_path, ACTING, hidden=None))
    verdict = found.verdict
    assert verdict.unit == "env steps"
    assert verdict.units_per_iteration == pytest.approx(4, rel=0.01)
    assert most_gaining(found) == "env step"
    step = next(row for row in verdict.rows if row.name == "env step")
    assert step.calls_per_iteration == pytest.approx(4, rel=0.1)
    act = next(row for row in verdict.rows if row.name == "act")
    assert act.calls_per_iteration == pytest.approx(4, rel=0.1)


@pytest.mark.long
def test_an_env_that_hides_its_state_is_delayed_only_unless_it_may_go_on(tmp_path: Path) -> None:
    script = written(tmp_path, ACTING, hidden="(n for n in range(3))")
    (row,) = [
        row for row in simplify_until(has_verdict, script).verdict.rows if row.name == "env step"
    ]
    why = "its state cannot be put back: Waits, a builtins.generator hides its content"
    assert row.not_replaced == f"{why}; see --may-go-on"
    found = simplify_until(gains_more_than(0.3, "env step"), script, may_go_on=("env step",))
    assert most_gaining(found) == "env step"
    assert "goes on from experimental steps: __main__.Waits" in found.verdict.warnings
    with pytest.raises(SettingError, match=r"--may-go-on 'env stop': .* it has .*env step"):
        run_simplify(script, may_go_on=("env stop",))


@pytest.mark.long
def test_what_was_put_in_the_place_of_torch_s_functions_is_gone_afterwards(tmp_path: Path) -> None:
    before = (torch.nn.Module.__call__, torch.Tensor.backward, torch.optim.Adam.step)
    run_benchmark(written(tmp_path, ACTING, hidden=None), seconds=0.5)
    assert (torch.nn.Module.__call__, torch.Tensor.backward, torch.optim.Adam.step) == before


@pytest.mark.long
def test_a_script_that_is_only_measured_learns_the_same_bits(tmp_path: Path) -> None:
    script = written(tmp_path, SUPERVISED, wait_s=0.0001, report_sums=0)
    alone = subprocess.run(
        [sys.executable, script, "4"], capture_output=True, text=True, check=True
    ).stdout
    command = [sys.executable, "-m", "hotloop.cli.main", "benchmark", script, "--seconds", "500"]
    measured = subprocess.run(
        [*command, "--", "4"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "learned" in alone
    assert alone.strip() in measured.stdout, measured.stdout + measured.stderr


@pytest.mark.long
def test_a_function_of_the_script_s_own_can_be_a_stage(tmp_path: Path) -> None:
    # It computes as the rest does: on a busy machine, too, it stays the largest part.
    script = written(tmp_path, SUPERVISED, wait_s=0, report_sums=100_000)
    found = simplify_until(
        gains_more_than(0.3, "report"), script, arguments=["100000"], stage=("__main__:report",)
    )
    report = next(row for row in found.verdict.rows if row.name == "report")
    assert report.share > 0.3
    assert report.gain.value > 0.3


@pytest.mark.long
def test_calls_within_a_function_of_the_script_s_own_begin_no_iteration(tmp_path: Path) -> None:
    """While the function is replaced they are not made: iterations would have no end."""
    script = written(tmp_path, ASKING)
    found = simplify_until(
        gains_more_than(0.3, "choose"), script, arguments=["100000"], stage=("__main__:choose",)
    )
    rows = {row.name: row for row in found.verdict.rows}
    assert rows["act"].inside == "choose"
    assert rows["act"].calls_per_iteration == pytest.approx(3, rel=0.2)
    assert rows["choose"].gain.value > 0.3


@pytest.mark.long
def test_a_function_that_the_script_does_not_define_is_refused_with_the_nearest(
    tmp_path: Path,
) -> None:
    script = written(tmp_path, SUPERVISED, wait_s=0, report_sums=0)
    with pytest.raises(SettingError, match="did you mean 'report'"):
        run_simplify(script, arguments=["1"], stage=("__main__:reprot",))


@pytest.mark.long
def test_the_stage_that_begins_an_iteration_can_be_chosen(tmp_path: Path) -> None:
    found = run_benchmark(written(tmp_path, ACTING, hidden=None), seconds=1, iteration="env step")
    steps = next(stage for stage in found.summary.stages if stage.name == "env step")
    assert steps.calls_per_iteration == pytest.approx(1)


@pytest.mark.long
def test_a_stage_that_there_is_not_begins_no_iteration(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="'env step'"):
        run_benchmark(written(tmp_path, ACTING, hidden=None), seconds=1, iteration="env stpe")


def test_settings_of_recognition_are_refused_where_nothing_is_recognised() -> None:
    with pytest.raises(SettingError, match="for scripts"):
        run_benchmark("ppo:CartPole-v1", seconds=1, iteration="env step")


@pytest.mark.long
def test_a_script_that_ends_early_is_said_to(tmp_path: Path) -> None:
    script = written(tmp_path, SUPERVISED, wait_s=0, report_sums=0)
    with pytest.raises(LoopError, match="no iterations were found"):
        run_simplify(script, arguments=["0"], budget=1)


def test_a_training_on_another_thread_is_refused_with_the_reason(tmp_path: Path) -> None:
    script = written(tmp_path, ON_ANOTHER_THREAD)
    with pytest.raises(LoopError, match="came from another thread than the script's own"):
        run_simplify(script, budget=1)
