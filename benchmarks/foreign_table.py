"""The scripts that `foreign_scripts.py` measures: how each is started, and what is true of it.

What is true was written down before hotloop saw the scripts: the stages that one who knows the
library would name, by hotloop's names for them; what the script makes in a loop; and the stage that
`--fix` is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "foreign"
UNLIMITED = 1_000_000  # steps: no experiment gets so far

_TORCH = "torch==2.13.0"
# Packages that live together in a virtual environment, beside hotloop itself.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "rl": (_TORCH, "stable-baselines3", "tianshou", "joblib", "scipy", "arch", "rliable"),
    "language": (_TORCH, "lightning", "transformers", "accelerate", "trl"),
    "images": (_TORCH, "timm"),
    "torchrl": (_TORCH, "torchrl", "skrl", "rl_zoo3"),
    "jax": (_TORCH, "sbx-rl", "jax"),
    "mesa": ("mesa",),
    "covasim": ("covasim",),
    "ray": (_TORCH, "ray[train]"),
}

_ACTING = ("act", "env step")
_LEARNING = ("forward", "backward", "optimiser step")


@dataclass(frozen=True)
class Script:
    """One script, in two versions: as it stands, and with its bottleneck removed.

    group: whose virtual environment it needs. package: whose version is noted with its results.
    stages, unit: what hotloop is to recognise. stage: what the fix is about.
    steps: of a short and of a long run. Their difference in time has no imports in it, no start
    and no warm-up; it is the truth.
    target: what `python` is given, {script} for the file. file: in which the bottleneck is; empty:
    the script's name. before: arguments before the number of
    steps; without: after it, as it stands; fix: after it, with the bottleneck removed. options: of
    hotloop.
    """

    group: str
    package: str
    stages: tuple[str, ...]
    unit: str
    stage: str
    steps: tuple[int, int]
    target: tuple[str, ...] = ("{script}",)
    file: str = ""
    before: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fix: tuple[str, ...] = ("--fix",)
    options: tuple[str, ...] = ()


_PPO = (*_ACTING, "forward", "backward", "clip", "optimiser step")
_SUPERVISED = ("data", *_LEARNING)

TABLE: Mapping[str, Script] = {
    "sb3_ppo": Script("rl", "stable-baselines3", _PPO, "env steps", "env step", (2_048, 20_480)),
    "sb3_dqn": Script(
        "rl",
        "stable-baselines3",
        (*_ACTING, *_LEARNING, "clip", "checkpoint"),
        "env steps",
        "checkpoint",
        (1_000, 9_000),
    ),
    "sb3_sac": Script(
        "rl", "stable-baselines3", (*_ACTING, *_LEARNING), "env steps", "env step", (200, 1_000)
    ),
    "tianshou_highlevel": Script(
        "rl", "tianshou", (*_ACTING, *_LEARNING), "env steps", "env step", (2_048, 16_384)
    ),
    "tianshou_dqn": Script(
        "rl", "tianshou", (*_ACTING, *_LEARNING), "env steps", "env step", (1_000, 5_000)
    ),
    "cleanrl_ppo": Script(
        "rl",
        "torch",
        ("choose_actions", *_PPO[1:]),
        "env steps",
        "choose_actions",
        (1_024, 16_384),
        # A good part of it is Python beside the modules, which nobody but the user has a name for.
        options=("--stage", "__main__:choose_actions"),
    ),
    "cleanrl_dqn": Script(
        "rl",
        "torch",
        (*_ACTING, *_LEARNING, "log"),
        "env steps",
        "log",
        (6_000, 20_000),  # as in the experiment, it no longer acts by chance
    ),
    "torch_images": Script("rl", "torch", _SUPERVISED, "samples", "data", (64, 864)),
    "ddp": Script(
        "rl",
        "torch",
        (*_SUPERVISED, "communication"),
        "samples",
        "data",
        (32, 432),
        target=("-m", "torch.distributed.run"),
        # Both versions take turns, and each needs a port of its own.
        before=("--standalone", "--nproc-per-node", "2", "{script}"),
    ),
    "lightning_fit": Script("language", "lightning", _SUPERVISED, "samples", "data", (64, 864)),
    "transformers_trainer": Script(
        "language",
        "transformers",
        (*_SUPERVISED, "clip", "checkpoint"),
        "samples",
        "checkpoint",
        (10, 110),
    ),
    "trl_grpo": Script(
        "language",
        "trl",
        ("data", "generation", "reward", "logprob", *_LEARNING),
        "samples",
        "reward",
        (4, 124),
    ),
    "accelerate_loop": Script(
        "language", "accelerate", (*_SUPERVISED, "clip"), "samples", "data", (20, 420)
    ),
    "timm_images": Script("images", "timm", _SUPERVISED, "samples", "data", (16, 176)),
    "torchrl_ppo": Script("torchrl", "torchrl", _PPO, "env steps", "env step", (512, 4_608)),
    "skrl_ppo": Script(
        "torchrl", "skrl", (*_PPO, "checkpoint"), "env steps", "checkpoint", (1_024, 9_216)
    ),
    "rl_zoo3": Script(
        "torchrl",
        "rl_zoo3",
        _PPO,
        "env steps",
        "env step",
        (2_048, 20_480),
        target=("-m", "rl_zoo3.train"),
        file="zoo_wrapper.py",
        before=(
            "--algo",
            "ppo",
            "--env",
            "CartPole-v1",
            "--eval-freq",
            "-1",
            "--verbose",
            "0",
            "--num-threads",
            "1",
            "-f",
            "zoo",
            "-n",
        ),
        without=("-params", "env_wrapper:'zoo_wrapper.Ranked'"),
        fix=(),
    ),
    "sbx_ppo": Script(
        "jax",
        "sbx-rl",
        ("jitted _predict_all", "env step", "jitted _one_update"),
        "env steps",
        "env step",
        (2_048, 20_480),
    ),
    "mesa_wealth": Script("mesa", "mesa", ("env step",), "env steps", "env step", (20, 1_020)),
    "covasim_calibration": Script(
        "covasim", "covasim", ("env step",), "env steps", "env step", (2, 12)
    ),
    "ray_train": Script("ray", "ray", _SUPERVISED, "samples", "data", (16, 176)),
}
