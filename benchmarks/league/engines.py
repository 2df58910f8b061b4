"""Our own engines as they are measured by name: PPO, the covid model, a vector env with a policy.

A stage is made free by outputs that were kept from real calls; less of an update is fewer epochs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hotloop.loop import Loop, stage
from league.entry import Draws, Entry, Fixes, Prepared

KEPT = 128  # outputs that stand for a stage that is free


def prepared(fixes: Fixes, name: str, function: Any) -> Prepared:
    """The function, or if the stage is to be free, what it returned the first times."""
    return Prepared(function, 0 if fixes[name] else KEPT)


def run_in(body: Any, *functions: Prepared) -> None:
    """Run a loop until all that is to be replayed has been kept."""
    while not all(function.complete for function in functions):
        body()


@contextmanager
def ppo(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """`ppo:CartPole-v1` as it is; half of an update is half of its epochs."""
    from hotloop.learn.ppo import PPO, PPOSettings

    settings = PPOSettings(epochs=fixes.count("update", 6), seed=draws.seed())
    learner = PPO(settings)
    collector = learner.collector
    acts = prepared(fixes, "act", collector._call_policy)
    steps = prepared(fixes, "env step", collector._step_all)
    collector._act = stage("act", acts, effect="stateful")
    collector._step = stage("env step", steps, effect="stateful")
    learner.progress.env_steps = settings.total_steps  # the policy rests, the work stays
    run_in(learner.iterate, acts, steps)
    state = [learner.policy, learner.optimizer, *collector.state]
    try:
        yield Loop(
            body=learner.iterate,
            name="ppo:CartPole-v1",
            unit="env steps",
            batches=settings.epochs * settings.minibatches,
            state=[*state, learner.progress, learner.rng],
        )
    finally:
        learner.envs.close()


@contextmanager
def covid(fused: bool, fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """`covid:astoria`: an episode an iteration; or not fused, a step an iteration."""
    from hotloop.models.epidemic import covid as model
    from hotloop.sim import Executor
    from hotloop.sim.loop import loop

    runner = Executor(model, "astoria", fused=fused, threads=1).runner
    made = loop(runner, steps=None if fused else 1, name="covid:astoria")
    # The runner has no place to put another stage in; a substep that is free leaves all as it is.
    if not fixes["step"]:
        runner._advance = stage("step", lambda *_args: None, effect="stateful")
    for k, substep in enumerate(runner.substeps):
        if not fixes[substep.name]:
            runner._stages[k] = stage(substep.name, lambda: None, effect="stateful")
    try:
        yield made
    finally:
        runner.close()


@contextmanager
def vector_env(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Sixteen CartPoles stepped in this process, and a policy in torch of two layers."""
    import torch

    import hotloop

    torch.set_num_threads(1)
    torch.manual_seed(draws.seed())
    envs = hotloop.make_vec("CartPole-v1", 16, backend="serial")
    hidden = [torch.nn.Linear(128, 128), torch.nn.Tanh()] * fixes.count("act", 4)
    policy = torch.nn.Sequential(
        torch.nn.Linear(4, 128), torch.nn.Tanh(), *hidden, torch.nn.Linear(128, 2)
    )

    def choose(obs: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            logits = policy(torch.from_numpy(obs))
            return torch.distributions.Categorical(logits=logits).sample().numpy()

    acts = prepared(fixes, "act", choose)
    steps = prepared(fixes, "env step", envs.step)
    act = stage("act", acts, effect="pure")
    step = stage("env step", steps, effect="stateful")
    at = [envs.reset(seed=draws.seed())[0]]

    def body() -> int:
        at[0] = step(act(at[0]))[0]
        return 16

    run_in(body, acts, steps)
    try:
        yield Loop(body=body, name="vector-env", unit="env steps", state=[envs, at])
    finally:
        envs.close()


COVID = ("hotloop.models.epidemic.covid", "hotloop.sim.loop")
LOOPS = {
    "ppo": Entry(
        ppo,
        "engine",
        (("update", 0.5), ("env step", 0.0), ("act", 0.0)),
        needs=("hotloop.learn.ppo",),
    ),
    "covid": Entry(
        lambda fixes, draws: covid(True, fixes, draws), "engine", (("step", 0.0),), needs=COVID
    ),
    "covid-substeps": Entry(
        lambda fixes, draws: covid(False, fixes, draws),
        "engine",
        (("new_transmission", 0.0), ("seirm_progression", 0.0)),
        period=21,
        needs=COVID,
    ),
    "vector-env": Entry(
        vector_env, "engine", (("env step", 0.0), ("act", 0.0)), needs=("hotloop.envs", "torch")
    ),
}
