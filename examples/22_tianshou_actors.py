"""You will see Tianshou's PPO learn CartPole from worker processes: the episodes get longer.

    python examples/22_tianshou_actors.py

Nothing of Tianshou is changed. In `09_tianshou.py` the trainer's process acts and envs step
elsewhere; here `ActorCollector` sends the policy to the envs, and whole fragments come back.
"""

from functools import partial

import gymnasium
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import VectorReplayBuffer
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from hotloop.envs import make_vec
from hotloop.integrations.tianshou import ActorCollector

WORKERS, ENVS, STEPS, EPOCHS = 2, 8, 64, 24

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    body = Net(state_shape=4, hidden_sizes=[64, 64])
    actor = DiscreteActor(preprocess_net=body, action_shape=2, softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=gymnasium.spaces.Discrete(2))
    critic, optim = DiscreteCritic(preprocess_net=body), AdamOptimizerFactory(lr=3e-3)
    algorithm = PPO(policy=policy, critic=critic, max_grad_norm=0.5, optim=optim)
    make_envs = partial(make_vec, "CartPole-v1", ENVS, backend="serial", autoreset_mode="same_step")
    total = WORKERS * ENVS * STEPS
    buffer = VectorReplayBuffer(total, WORKERS * ENVS)
    collector = ActorCollector(
        algorithm, make_envs, buffer, fragment_steps=STEPS, num_workers=WORKERS
    )
    params = OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=EPOCHS,
        epoch_num_steps=total,
        collection_step_num_env_steps=total,
        batch_size=256,
        update_step_num_repetitions=6,
        show_progress=False,
    )
    trainer = algorithm.create_trainer(params)
    trainer.reset()
    counted = 0
    for epoch in range(EPOCHS):
        trainer.execute_epoch()
        if epoch % 6 == 5:
            episodes, counted = collector.collect_episode - counted, collector.collect_episode
            print(f"epoch {epoch:2d}  steps of an episode {6 * total / max(episodes, 1):6.1f}")
    collector.close()
