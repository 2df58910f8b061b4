"""Sample Factory's APPO under the rule, in its serial mode: sampler and learner in one process.

On two cores that mode is faster for envs as light as CartPole-v1 than its processes are, and its
policy can be judged between two updates. With `num_workers` it runs in processes of its own, as it
is made for: so many that step envs, one that acts, one that learns. Then only its speed is told,
as no policy is here to be judged. For vectors, images and discrete actions; the settings have
hotloop's names. Where settings fall, only the learning rate does, and it is set here: the command
line of 2.1.1 refuses the schedule. It wants a Gymnasium below 1.0, which has no LunarLander-v3.
"""

import contextlib
import os
import sys
import tempfile
from typing import Any

import gymnasium
import psutil
import torch
from rule import asked
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from shares import Shares


class Judge(AlgoObserver):
    """Looks at the policy after every update."""

    before = 0  # env steps before the clock, where the first update waits for processes

    def on_start(self, _runner: Any) -> None:
        if not workers:
            self.start()

    def start(self) -> None:
        watch.start()
        self.shares = Shares()

    def on_training_step(self, runner: Any, _iteration: int) -> None:
        if workers:
            steps = runner.env_steps.get(0, 0)
            if not self.before:
                self.before = steps
                self.start()
            elif watch.judge(steps - self.before, self.greedy):
                self.end()
            return
        learner = runner.learners[0].learner
        self.network = learner.actor_critic
        if s["anneal"]:
            learner.curr_lr = s["learning_rate"] * max(0, 1 - learner.env_steps / s["total_steps"])
        if watch.judge(learner.env_steps, self.greedy):
            self.end()

    def end(self) -> None:
        watch.stop()
        with contextlib.redirect_stdout(said):
            watch.report(**self.shares.read())
        said.flush()
        for process in psutil.Process().children(recursive=True):
            process.kill()
        os._exit(0)  # its own end would write checkpoints first

    def greedy(self, obs: Any) -> Any:
        with torch.no_grad():
            inputs = prepare_and_normalize_obs(self.network, {"obs": torch.as_tensor(obs)})
            outputs = self.network(inputs, torch.zeros(len(obs), 1))
        return outputs["action_logits"].argmax(1).numpy()


def make_env(name: str, *_unused: Any, **_also_unused: Any) -> Any:
    return gymnasium.make(name)


torch.set_num_threads(1)
seed, watch, s = asked()
batch = s["num_envs"] * s["fragment_steps"]
layers = map(str, [s["hidden_size"]] * s["hidden_layers"])
workers = s.get("num_workers", 0)
of_images = len(watch.envs[0].observation_space.shape) == 3
options = {
    "algo": "APPO",
    "env": watch.rule.env_id,
    "experiment": "learning",
    "train_dir": tempfile.mkdtemp(),
    "seed": seed,
    "device": "cpu",
    "serial_mode": not workers,
    "async_rl": bool(workers),
    "use_rnn": False,
    "with_vtrace": False,
    "num_workers": workers or 1,
    "num_envs_per_worker": s["num_envs"] // (workers or 1),
    "worker_num_splits": 2 if workers else 1,  # one half acts while the other is stepped
    "rollout": s["fragment_steps"],
    "batch_size": batch // s["minibatches"],
    "num_batches_per_epoch": s["minibatches"],
    "num_epochs": s["epochs"],
    "gamma": s["gamma"],
    "gae_lambda": s["gae_lambda"],
    "ppo_clip_ratio": s["clip"],
    "ppo_clip_value": 1e9,
    "learning_rate": s["learning_rate"],
    "lr_schedule": "constant",
    "exploration_loss_coeff": s["entropy_weight"],
    "value_loss_coeff": s["value_weight"],
    "max_grad_norm": s["max_grad_norm"],
    "nonlinearity": "relu" if of_images else "tanh",
    "actor_critic_share_weights": of_images,
    "encoder_conv_architecture": "convnet_atari",  # that of DQN, with 512 features
    "obs_scale": 255.0 if of_images else 1.0,
    "normalize_input": False,
    "normalize_returns": False,
    "value_bootstrap": True,
    "train_for_env_steps": s["total_steps"],
    "save_every_sec": 10**6,
}
said = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # its log may go to the ordinary output
if __name__ == "__main__":  # it starts a process for a look at the env, which imports this file
    arguments = [f"--{name}={value}" for name, value in options.items()]
    arguments += ["--encoder_mlp_layers", *layers]
    register_env(watch.rule.env_id, make_env)
    parser, _ = parse_sf_args(argv=arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))
    runner.register_observer(Judge())
    runner.init()
    runner.run()
