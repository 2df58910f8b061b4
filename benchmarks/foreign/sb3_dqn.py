"""DQN of Stable-Baselines3 on CartPole; it saves the whole replay buffer again and again."""

import argparse
import tempfile

from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="save nothing on the way")
    chosen = options.parse_args()
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=200,
        train_freq=4,
        target_update_interval=500,
        seed=1,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        saving = CheckpointCallback(save_freq=100, save_path=folder, save_replay_buffer=True)
        saving._checkpoint_path = lambda kind="", extension="": f"{folder}/{kind}last.{extension}"
        model.learn(chosen.steps, callback=None if chosen.fix else saving)


if __name__ == "__main__":
    main()
