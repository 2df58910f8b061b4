"""hotloop's PPO under the rule: with its defaults, or with the settings of the peers (`zoo`)."""

import sys

from rule import Watch

from hotloop.learn.ppo import PPO, PPOSettings

seed, which = int(sys.argv[1]), sys.argv[2]
if which == "zoo":
    settings = PPOSettings(
        seed=seed, total_steps=100_000, epochs=20, learning_rate=1e-3, gae_lambda=0.8
    )
else:
    settings = PPOSettings(seed=seed)
learner, watch = PPO(settings), Watch()
watch.start()
while not watch.over:
    learner.iterate()
    watch.judge(learner.progress.env_steps, learner.policy.greedy)
watch.report()
