"""DQN in one file, in the manner of CleanRL; it writes histograms of its weights all the time."""

import argparse
import random
import tempfile

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.tensorboard import SummaryWriter

BATCH, SIZE, GAMMA = 128, 10_000, 0.99
TRAIN_EVERY, WRITE_EVERY, LEARNING_STARTS = 2, 20, 500


def network():
    return nn.Sequential(
        nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)
    )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=1_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="write nothing while it trains")
    chosen = options.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    env = gym.make("CartPole-v1")
    q_network, target_network = network(), network()
    optimizer = torch.optim.Adam(q_network.parameters(), lr=2.5e-4)
    rows = {"obs": 4, "next_obs": 4, "action": 1, "reward": 1, "done": 1}
    replay = {name: np.zeros((SIZE, width), np.float32) for name, width in rows.items()}
    folder = tempfile.TemporaryDirectory()
    writer = SummaryWriter(folder.name)
    obs, _ = env.reset(seed=1)
    for step in range(chosen.steps):
        if random.random() < max(0.05, 1 - step / 5_000):
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = q_network(torch.as_tensor(obs)).argmax().item()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        values = (obs, next_obs, action, reward, terminated)
        for column, value in zip(replay.values(), values, strict=True):
            column[step % SIZE] = value
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step < LEARNING_STARTS or step % TRAIN_EVERY:
            continue
        chosen_rows = np.random.randint(0, min(step, SIZE), BATCH)
        batch = {name: torch.as_tensor(column[chosen_rows]) for name, column in replay.items()}
        with torch.no_grad():
            best = target_network(batch["next_obs"]).max(1, keepdim=True).values
            goal = batch["reward"] + GAMMA * best * (1 - batch["done"])
        loss = mse_loss(q_network(batch["obs"]).gather(1, batch["action"].long()), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not chosen.fix and step % WRITE_EVERY == 0:
            writer.add_scalar("losses/td_loss", loss.item(), step)
            for name, weights in q_network.named_parameters():
                writer.add_histogram(name, weights, step)
        if step % 500 == 0:
            target_network.load_state_dict(q_network.state_dict())
    writer.close()
    folder.cleanup()


if __name__ == "__main__":
    main()
