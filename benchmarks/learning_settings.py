"""What `learning.py` trains: the envs with their targets, the systems, and the settings of each.

Settings have hotloop's names; the scripts in `peers/` translate them. Those of the peers are what
the SB3 zoo publishes (rl-baselines3-zoo, hyperparams/ppo.yml), written once: `ZOO`. Those of
hotloop were tuned on seeds from 1001 up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
OWN_VENVS = Path(__file__).parents[1] / ".peers"  # unless --peers says otherwise
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Env:
    """How an env is judged; `target`, `margin`, `episodes`, `evaluate_every`: as `peers/rule.py`.

    limit_s: of training; a longer one ends unsolved. note: what the page says of the target.
    published: what others have published of it. env_id: where the name is not the env's.
    """

    target: float | None
    evaluate_every: int
    note: str
    margin: float = 0.0
    episodes: int = 20
    limit_s: float = 600.0
    published: str = ""
    env_id: str = ""


@dataclass(frozen=True)
class System:
    """What trains: a script in `peers/` and its arguments.

    package: whose version is noted with each result; None for what is written here. venv: a
    folder with a virtual environment of its own; None for that of hotloop. module: of a learner of
    hotloop, whose version is a hash of what the module loads.
    """

    script: str
    package: str | None = None
    venv: str | None = None
    arguments: tuple[str, ...] = ()
    module: str | None = None

    @property
    def is_hotloop(self) -> bool:
        """Whether it is a learner of hotloop."""
        return self.module is not None


PONG = "pong:PongPixels-v0"
PONG_WON = "PongPixels-v0 to 18"

ENVS: Mapping[str, Env] = {
    "CartPole-v1": Env(475, 2_048, "mean of 20 episodes at least 475"),
    "Acrobot-v1": Env(-100, 4_096, "mean of 20 episodes at least -100, Gymnasium's threshold"),
    "LunarLander-v3": Env(200, 10_240, "mean of 20 episodes at least 200, Gymnasium's threshold"),
    "Pendulum-v1": Env(
        -200, 4_096, "mean of 20 episodes at least -200; Gymnasium has no threshold"
    ),
    "HalfCheetah-v5": Env(
        None,
        50_000,
        "no target: the course of learning, up to a million steps",
        episodes=10,
        limit_s=3_600,
        published="PPO with the zoo's settings has 5,819 at a million steps of HalfCheetah-v3, one "
        "training, 150 episodes whose returns have a standard deviation of 664 (`benchmark.md` of "
        "rl-baselines3-zoo)",
    ),
    # 2.262: 97.5% of Student's t with 9 degrees of freedom.
    PONG: Env(
        -19,
        50_000,
        "lower limit of the 95% interval of 10 episodes above -19",
        margin=2.262,
        episodes=10,
        limit_s=7_200,
    ),
    PONG_WON: Env(
        18,
        250_000,
        "lower limit of the 95% interval of 10 episodes at least 18",
        margin=2.262,
        episodes=10,
        limit_s=7_200,
        env_id=PONG,
    ),
}

SYSTEMS: Mapping[str, System] = {
    "PPO": System("hotloop_learner.py", module="hotloop.learn.ppo"),
    "IMPALA": System("hotloop_learner.py", module="hotloop.learn.impala"),
    "APPO": System("hotloop_learner.py", module="hotloop.learn.appo"),
    "Ape-X": System("hotloop_learner.py", module="hotloop.learn.apex"),
    "PPO, zoo settings": System("hotloop_learner.py", module="hotloop.learn.ppo"),
    "CleanRL-style PPO": System("cleanrl_style_ppo.py"),
    "SB3 PPO": System("sb3_ppo.py", "stable-baselines3"),
    "Tianshou PPO": System("tianshou_ppo.py", "tianshou"),
    "SB3 DQN": System("sb3_dqn.py", "stable-baselines3"),
    "Tianshou DQN": System("tianshou_dqn.py", "tianshou"),
    "sbx PPO": System("sb3_ppo.py", "sbx-rl", venv="sbx", arguments=("sbx",)),
    "Sample Factory APPO": System("sample_factory_appo.py", "sample-factory", venv="sf"),
    "RLlib PPO": System("rllib_ppo.py", "ray", venv="rllib"),
}

_ZOO: Settings = {  # what the zoo's entries leave to Stable-Baselines3
    "hidden_size": 64,
    "hidden_layers": 2,
    "learning_rate": 3e-4,
    "anneal": False,
    "clip": 0.2,
    "epochs": 10,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "entropy_weight": 0.0,
    "value_weight": 0.5,
    "max_grad_norm": 0.5,
    "normalise_observations": False,
    "normalise_values": False,
}
ZOO: Mapping[str, Settings] = {
    "CartPole-v1": {
        **_ZOO,
        "total_steps": 100_000,
        "num_envs": 8,
        "fragment_steps": 32,
        "minibatches": 1,
        "epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "learning_rate": 1e-3,
        "anneal": True,
    },
    "Acrobot-v1": {
        **_ZOO,
        "total_steps": 1_000_000,
        "num_envs": 16,
        "fragment_steps": 256,
        "minibatches": 64,
        "epochs": 4,
        "gae_lambda": 0.94,
        "normalise_observations": True,
        "normalise_values": True,
    },
    "LunarLander-v3": {
        **_ZOO,
        "total_steps": 1_000_000,
        "num_envs": 16,
        "fragment_steps": 1024,
        "minibatches": 256,
        "epochs": 4,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "entropy_weight": 0.01,
    },
    "Pendulum-v1": {
        **_ZOO,
        "total_steps": 100_000,
        "num_envs": 4,
        "fragment_steps": 1024,
        "minibatches": 64,
        "gamma": 0.9,
        "learning_rate": 1e-3,
        "sb3": {"use_sde": True, "sde_sample_freq": 4},
    },
    "HalfCheetah-v5": {
        **_ZOO,
        "total_steps": 1_000_000,
        "num_envs": 1,
        "fragment_steps": 512,
        "minibatches": 8,
        "epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.92,
        "learning_rate": 2.0633e-5,
        "clip": 0.1,
        "entropy_weight": 0.000401762,
        "value_weight": 0.58096,
        "max_grad_norm": 0.8,
        "hidden_size": 256,
        "normalise_observations": True,
        "normalise_values": True,
        "sb3": {"activation": "ReLU", "log_std_init": -2, "ortho_init": False},
    },
    PONG: {
        **_ZOO,
        "total_steps": 1_000_000,  # a tenth of the zoo's
        "num_envs": 8,
        "fragment_steps": 128,
        "minibatches": 4,
        "epochs": 4,
        "learning_rate": 2.5e-4,
        "clip": 0.1,
        "anneal": True,
        "entropy_weight": 0.01,
    },
}

# The zoo's entries for DQN, by Stable-Baselines3's names; but for the env steps, of which there are
# as many as the others have.
SB3_DQN: Mapping[str, Settings] = {
    "CartPole-v1": {
        "total_steps": 400_000,
        "sb3": {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16 * 50_000 / 400_000,
            "exploration_final_eps": 0.04,
            "net_arch": [256, 256],
        },
    },
    "LunarLander-v3": {
        "total_steps": 500_000,
        "sb3": {
            "learning_rate": 6.3e-4,
            "batch_size": 128,
            "buffer_size": 50_000,
            "learning_starts": 0,
            "gamma": 0.99,
            "target_update_interval": 250,
            "train_freq": 4,
            "gradient_steps": -1,
            "exploration_fraction": 0.12 * 100_000 / 500_000,
            "exploration_final_eps": 0.1,
            "net_arch": [256, 256],
        },
    },
}

_TIANSHOU_DQN: Settings = {
    "hidden_layers": 2,
    "dueling": True,
    "priority_exponent": 0.6,
    "importance_exponent": 0.4,
    "gamma": 0.99,
}
# As in Tianshou's own examples of these envs, with prioritised replay and a dueling network.
TIANSHOU_DQN: Mapping[str, Settings] = {
    "CartPole-v1": {
        **_TIANSHOU_DQN,
        "total_steps": 400_000,
        "num_envs": 10,
        "fragment_steps": 1,
        "hidden_size": 128,
        "learning_rate": 1e-3,
        "gamma": 0.9,
        "n_step": 3,
        "target_every": 320,
        "replay_size": 20_000,
        "learn_after": 640,
        "batch_size": 64,
        "updates_per_step": 0.1,
        "epsilon": 0.1,
        "epsilon_decay": 1.0,
        "epsilon_end": 0.1,
        "epoch_steps": 1_000,
    },
    "LunarLander-v3": {
        **_TIANSHOU_DQN,
        "total_steps": 500_000,
        "num_envs": 16,
        "fragment_steps": 1,
        "hidden_size": 128,
        "learning_rate": 0.013,
        "n_step": 4,
        "target_every": 500,
        "replay_size": 100_000,
        "learn_after": 2_048,
        "batch_size": 128,
        "updates_per_step": 0.0625,
        "epsilon": 0.73,
        "epsilon_decay": 1 - 5e-6,
        "epsilon_end": 0.01,
        "epoch_steps": 2_000,
    },
}

_PONG: Mapping[str, Settings] = {
    "PPO": {
        "algorithm": "ppo",
        "total_steps": 1_000_000,
        "num_envs": 8,
        "fragment_steps": 128,
        "minibatches": 8,
        "epochs": 4,
        "learning_rate": 1e-3,
        "clip": 0.2,
        "gamma": 0.99,
        "entropy_weight": 0.001,
    },
    "Ape-X": {
        "algorithm": "apex",
        "network": "nature_cnn_layer_norm",
        "total_steps": 300_000,
        "num_envs": 8,
        "fragment_steps": 40,
        "n_step": 8,
        "gamma": 0.95,
        "learning_rate": 5e-4,
        "batch_size": 64,
        "replay_size": 100_000,
        "replay_ratio": 16.0,
        "target_every": 500,
        "learn_after": 5_000,
        "epsilon": 0.8,
        "epsilon_spread": 9.0,
    },
}

TRAININGS: Mapping[str, Mapping[str, Settings]] = {
    "CartPole-v1": {
        "PPO": {"algorithm": "ppo", "total_steps": 80_000},
        "IMPALA": {"algorithm": "impala", "total_steps": 400_000},
        "APPO": {"algorithm": "appo", "total_steps": 200_000},
        "Ape-X": {"algorithm": "apex", "total_steps": 400_000},
        "PPO, zoo settings": {**ZOO["CartPole-v1"], "algorithm": "ppo"},
        "CleanRL-style PPO": ZOO["CartPole-v1"],
        "SB3 PPO": ZOO["CartPole-v1"],
        "Tianshou PPO": ZOO["CartPole-v1"],
        "sbx PPO": ZOO["CartPole-v1"],
        "RLlib PPO": ZOO["CartPole-v1"],
        "Sample Factory APPO": ZOO["CartPole-v1"],
        "SB3 DQN": SB3_DQN["CartPole-v1"],
        "Tianshou DQN": TIANSHOU_DQN["CartPole-v1"],
    },
    "Acrobot-v1": {
        "PPO": {
            "algorithm": "ppo",
            "total_steps": 200_000,
            "num_envs": 16,
            "fragment_steps": 64,
            "minibatches": 4,
            "epochs": 4,
            "learning_rate": 2.5e-3,
            "clip": 0.2,
            "gamma": 0.99,
            "normalise_observations": True,
            "normalise_values": True,
        },
    },
    "Pendulum-v1": {
        "PPO": {
            "algorithm": "ppo",
            "total_steps": 200_000,
            "num_envs": 8,
            "fragment_steps": 128,
            "minibatches": 8,
            "epochs": 10,
            "learning_rate": 1e-3,
            "clip": 0.2,
            "gamma": 0.95,
            "gae_lambda": 0.9,
            "anneal": False,
            "normalise_observations": True,
            "normalise_values": True,
        },
    },
    "LunarLander-v3": {
        "PPO": {
            "algorithm": "ppo",
            "total_steps": 500_000,
            "num_envs": 16,
            "fragment_steps": 128,
            "minibatches": 16,
            "epochs": 4,
            "learning_rate": 1e-3,
            "clip": 0.2,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "entropy_weight": 0.01,
            "normalise_values": True,
        },
        "Ape-X": {
            "algorithm": "apex",
            "total_steps": 600_000,
            "num_envs": 16,
            "n_step": 3,
            "learning_rate": 7e-4,
            "anneal": True,
            "batch_size": 128,
            "replay_size": 100_000,
            "replay_ratio": 16.0,
            "hidden_size": 256,
            "target_every": 250,
            "learn_after": 5_000,
        },
        "PPO, zoo settings": {**ZOO["LunarLander-v3"], "algorithm": "ppo"},
        "CleanRL-style PPO": ZOO["LunarLander-v3"],
        "SB3 PPO": ZOO["LunarLander-v3"],
        "Tianshou PPO": ZOO["LunarLander-v3"],
        "sbx PPO": ZOO["LunarLander-v3"],
        "RLlib PPO": ZOO["LunarLander-v3"],
        "SB3 DQN": SB3_DQN["LunarLander-v3"],
        "Tianshou DQN": TIANSHOU_DQN["LunarLander-v3"],
    },
    "HalfCheetah-v5": {
        "PPO": {
            "algorithm": "ppo",
            "total_steps": 1_000_000,
            "num_envs": 8,
            "fragment_steps": 256,
            "minibatches": 16,
            "epochs": 10,
            "learning_rate": 1e-3,
            "clip": 0.2,
            "gae_lambda": 0.92,
            "hidden_size": 128,
            "initial_std": 0.135,
            "normalise_observations": True,
            "normalise_values": True,
        },
        "SB3 PPO": ZOO["HalfCheetah-v5"],
    },
    PONG: {**_PONG, "SB3 PPO": ZOO[PONG]},
    PONG_WON: {
        "PPO": {  # on one core of a processor
            **_PONG["PPO"],
            "network": "pong:strided",
            "total_steps": 7_500_000,
            "num_envs": 16,
            "learning_rate": 3e-4,
            "clip": 0.1,
            "entropy_weight": 0.005,
        },
        "Ape-X": {  # on one core of a processor
            **_PONG["Ape-X"],
            "network": "pong:strided_layer_norm",
            "backend": "serial",
            "total_steps": 1_000_000,
            "n_step": 5,
            "gamma": 0.99,
            "learning_rate": 4e-4,
            "anneal": True,
            "replay_size": 200_000,
            "learn_after": 10_000,
            "epsilon": 0.4,
            "epsilon_spread": 7.0,
        },
    },
}
"""By env and system; in every entry `total_steps` is where training ends unsolved."""

LEFT_OUT: Mapping[str, str] = {
    "LunarLander-v3, Sample Factory APPO": "its newest version, 2.1.1, wants a Gymnasium below "
    "1.0, which has no LunarLander-v3.",
    "PongPixels-v0 to 18": "five seeds take seven hours of a core, and have not been trained. "
    "PPO with the settings "
    "below and one seed, on one core of an AMD EPYC (`pong_to_18.jsonl`): a lower limit of 10 "
    "greedy episodes of -9.3 after a million env steps, +13.9 after 1.25, +17.1 after 4.25 "
    "(3,239 s), 18.4 after 6.5 and 18.7 after 6.75 million (mean 19.5), where it counts as "
    "solved: 5,153 s. What came before, each with one seed: 32 envs and the Nature CNN -7 after "
    "400,000 steps, no more after 800,000; a learning rate of 1e-3 -6 after two million; "
    "IMPALA's network -21 after 200,000; the zoo's settings with five million steps +5.5 after "
    "4.75 million; with 6.5 million and a network of four convolutions with stride 2, which "
    "leave 3 by 3 pixels, +14.2 after four, +16.5 after 5.5 million (5,161 s), no more after "
    "6.5. Ape-X with the settings below, seed 1, on one core beside busy programs: +8.9 after "
    "300,000 env steps, +15.5 after 800,000, +14.6 after 950,000 and 18.7 (mean 19.5) after a "
    "million, where the learning rate is 0: 3,331 s, 2,913 s of the processor; the rule wants it "
    "twice, so that it does not count as solved. Another seed with 700,000 steps, +12.8 after "
    "300,000 and 16.3 at its end; with a learning rate that stays, +12.2 after 350,000 and no "
    "more after 500,000. With the Nature CNN, on an NVIDIA H200 and 5 cores, -13 after 400,000.",
    "HalfCheetah-v5 and PongPixels-v0": "one peer each, as a training takes minutes to hours.",
}
"""What is not trained, and why."""
