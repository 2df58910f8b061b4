"""A pytest plugin: bind the names of Gymnasium's vector envs to the classes here.

PYTHONPATH=<here>/tests pytest -p integrations.rebind_gymnasium tests/vector
"""

import gymnasium
import gymnasium.vector.async_vector_env
import gymnasium.vector.sync_vector_env

from hotloop.integrations.gymnasium import AsyncVectorEnv, SyncVectorEnv

gymnasium.vector.SyncVectorEnv = SyncVectorEnv
gymnasium.vector.AsyncVectorEnv = AsyncVectorEnv
gymnasium.vector.sync_vector_env.SyncVectorEnv = SyncVectorEnv
gymnasium.vector.async_vector_env.AsyncVectorEnv = AsyncVectorEnv
