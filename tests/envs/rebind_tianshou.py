"""A pytest plugin: Tianshou's vector envs are this package's, for whatever is collected after.

PYTHONPATH=<here>/tests pytest -p envs.rebind_tianshou test/base/test_env.py
"""

import tianshou.env
import tianshou.env.venvs

from hotloop.envs.adapters import tianshou as faces

for name in ("DummyVectorEnv", "SubprocVectorEnv", "ShmemVectorEnv", "RayVectorEnv"):
    setattr(tianshou.env, name, getattr(faces, name))
    setattr(tianshou.env.venvs, name, getattr(faces, name))
