"""The plain twin of how PPO collects: one loop over steps, on Gymnasium's own vector env."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Layout
from hotloop.envs.ids import make_env
from hotloop.learn.ppo import PPO, PPOSettings

FLOAT = np.dtype(np.float32)


class PlainCollector:
    """Stores the unclipped action, and observations and rewards in single precision."""

    def __init__(self, learner: PPO) -> None:
        s = learner.settings
        self.learner = learner
        self.envs = SyncVectorEnv(
            [lambda: make_env(s.env_id)] * s.num_envs, autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.obs = self.envs.reset(seed=s.seed)[0]
        self.fragment = Fragment.empty(
            FragmentSpec(
                steps=s.fragment_steps,
                envs=s.num_envs,
                obs=Layout(FLOAT, self.obs.shape[1:]),
                action=Layout(learner.policy.action_dtype, self.envs.single_action_space.shape),
                reward=Layout(FLOAT, ()),
                extras=(("log_prob", Layout(FLOAT, ())), ("value", Layout(FLOAT, ()))),
            )
        )

    def collect(self) -> Fragment:
        """Step all envs `fragment_steps` times."""
        policy, fragment = self.learner.policy, self.fragment
        fragment.begin(self.obs)
        for t in range(self.learner.settings.fragment_steps):
            outputs, value = policy.outputs(self.obs)
            action, log_prob = policy.distribution.sample(outputs, self.learner.rng)
            obs, reward, terminated, truncated, infos = self.envs.step(policy.for_env(action))
            fragment.action[t], fragment.reward[t] = action, reward
            fragment.terminated[t], fragment.truncated[t] = terminated, truncated
            fragment.extras["log_prob"][t], fragment.extras["value"][t] = log_prob, value
            fragment._rows[t + 1] = obs
            for b in np.flatnonzero(terminated | truncated):
                fragment.end(t, int(b), infos["final_obs"][b])
            self.obs = obs
        return fragment


def plain_parameters(settings: PPOSettings, iterations: int) -> Any:
    """Return the parameters after so many iterations on fragments of the plain loop."""
    learner = PPO(settings)
    learner.envs.close()
    plain: Any = PlainCollector(learner)
    learner.collector = plain
    for _ in range(iterations):
        learner.iterate()
    plain.envs.close()
    return learner.policy.flat.detach().numpy().copy()
