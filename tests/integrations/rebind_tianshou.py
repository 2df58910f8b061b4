"""A pytest plugin: bind the names of Tianshou's vector envs to the classes here.

PYTHONPATH=<here>/tests pytest -p integrations.rebind_tianshou test/base/test_env.py
"""

import tianshou.env
import tianshou.env.venvs

from hotloop.integrations import tianshou as ours

for name in ("DummyVectorEnv", "SubprocVectorEnv", "ShmemVectorEnv", "RayVectorEnv"):
    setattr(tianshou.env, name, getattr(ours, name))
    setattr(tianshou.env.venvs, name, getattr(ours, name))
