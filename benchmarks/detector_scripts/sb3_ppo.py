"""PPO of Stable-Baselines3: no fault of the script's own."""

from stable_baselines3 import PPO

import hotloop

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=2, device="cpu")
model.train = hotloop.stage("train", model.train)
model.learn(10_000_000)
