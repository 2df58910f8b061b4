"""A pytest plugin: Gymnasium's vector envs are this package's, for whatever is collected after.

PYTHONPATH=<here>/tests pytest -p envs.rebind_gymnasium tests/vector
"""

import gymnasium
import gymnasium.vector.async_vector_env
import gymnasium.vector.sync_vector_env

from hotloop.envs.adapters.gymnasium import AsyncVectorEnv, SyncVectorEnv

gymnasium.vector.SyncVectorEnv = SyncVectorEnv
gymnasium.vector.AsyncVectorEnv = AsyncVectorEnv
gymnasium.vector.sync_vector_env.SyncVectorEnv = SyncVectorEnv
gymnasium.vector.async_vector_env.AsyncVectorEnv = AsyncVectorEnv
