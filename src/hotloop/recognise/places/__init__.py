"""The places where libraries meet, by the module that holds them: one file for each kind of place.

A library that a script does not import is not imported.
"""

from collections.abc import Mapping

PLACES: Mapping[str, str] = {
    "gymnasium.core": "gymnasium_envs",
    "gymnasium.vector.vector_env": "library_envs",
    "stable_baselines3.common.vec_env.base_vec_env": "library_envs",
    "torch.nn.modules.module": "torch_modules",
    "torch.optim.optimizer": "torch_optimisers",
    "keras.src.backend.torch.optimizers.torch_optimizer": "library_optimisers",
    "fastai.optimizer": "library_optimisers",
    "torch.optim.lr_scheduler": "torch_schedulers",
    "torch.amp.grad_scaler": "torch_scalers",
    "torch.autograd": "torch_backward",
    "torch._tensor": "left_gradients",
    "torch._functorch.apis": "torch_functions",
    "torch._functorch.functional_call": "torch_functions",
    "torch.cuda": "torch_transfers",
    "torch.nn.utils.clip_grad": "torch_clip",
    "torch.utils.data.dataloader": "torch_loaders",
    "torch.distributed.distributed_c10d": "torch_distributed",
    "torch.nn.parallel.distributed": "torch_data_parallel",
    "torch.serialization": "checkpoints",
    "safetensors.torch": "checkpoints",
    "stable_baselines3.common.base_class": "checkpoints",
    "stable_baselines3.common.off_policy_algorithm": "checkpoints",
    "transformers.trainer": "checkpoints",
    "lightning.pytorch.trainer.trainer": "checkpoints",
    "pytorch_lightning.trainer.trainer": "checkpoints",
    "accelerate.accelerator": "checkpoints",
    "skrl.agents.torch.base": "checkpoints",
    "torch.utils.tensorboard.writer": "loggers",
    "tensorboardX.writer": "loggers",
    "wandb.sdk.wandb_run": "loggers",
    "mlflow.tracking.fluent": "loggers",
    "stable_baselines3.common.logger": "loggers",
    "lightning.pytorch.loggers.logger": "loggers",
    "pytorch_lightning.loggers.logger": "loggers",
    "gym.core": "gymnasium_envs",
    "tianshou.env.venvs": "library_envs",
    "tianshou.data.collector": "acting",
    "pettingzoo.utils.env": "library_envs",
    "envpool.python.envpool": "library_envs",
    "dm_env._environment": "library_envs",
    "stable_baselines3.common.buffers": "replay_buffers",
    "tianshou.data.buffer.buffer_base": "replay_buffers",
    "tianshou.data.buffer.manager": "replay_buffers",
    "torchrl.data.replay_buffers.replay_buffers.base": "replay_buffers",
    "skrl.memories.torch.base": "replay_buffers",
    "transformers.generation.utils": "language_models",
    "trl.trainer.grpo_trainer": "language_models",
    "trl.trainer.rloo_trainer": "language_models",
    "mesa.model": "simulations",
    "starsim.loop": "simulations",
    "datasets.iterable_dataset": "iterators",
    "webdataset.pipeline": "iterators",
    "grain._src.python.data_loader": "iterators",
    "queue": "waits",
    "multiprocessing.queues": "waits",
    "multiprocessing.connection": "waits",
    "multiprocessing.pool": "waits",
    "concurrent.futures._base": "waits",
    "socket": "waits",
    "ray": "waits",
    "jax": "jax_jit",
}
"""By the name of a module, the file of this package whose `install` changes it."""

# The names of the stages, as reports show them.
ENV_STEP, ENV_RESET = "env step", "env reset"
DATA = "data"
ACT, FORWARD, BACKWARD, CLIP = "act", "forward", "backward", "clip"
FORWARD_AND_BACKWARD = "forward + backward"
OPTIMISER_STEP = "optimiser step"
UPDATE = "update"  # no stage, but the work on gradients and the steps that follow, together
GENERATION, REWARD, LOGPROB = "generation", "reward", "logprob"
LOG, CHECKPOINT = "log", "checkpoint"
COMMUNICATION, WAIT = "communication", "wait"
TRANSFER, SYNC = "transfer", "sync"
# What is kept of compiled functions: the names of those that return what they were given, changed.
UPDATES = "updates"
# What is kept of modules whose gradients are summed over the ranks: they, and how many of their
# forward passes led to such a sum.
DATA_PARALLEL, SUMMED_PASSES = "data parallel", "summed passes"
# What is kept of the gradients that backward passes leave.
LEFT_GRADIENTS = "left gradients"
# What is kept of calls within `torch.func`, whose work is no stage's: how many there were.
TRANSFORMED = "transformed"
# What is kept of the exchange of gradients in the backward pass that runs.
EXCHANGE = "exchange"
