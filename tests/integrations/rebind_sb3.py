"""A pytest plugin: bind the names of Stable-Baselines3's vector envs to the classes here.

PYTHONPATH=<here>/tests pytest -p integrations.rebind_sb3 tests/test_vec_envs.py
"""

import importlib
import pkgutil
import sys

import stable_baselines3

from hotloop.integrations import stable_baselines3 as ours

NAMES = ("DummyVecEnv", "SubprocVecEnv")

for module in pkgutil.walk_packages(stable_baselines3.__path__, "stable_baselines3."):
    importlib.import_module(module.name)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "stable_baselines3" and module is not None:
        for known in NAMES:
            if hasattr(module, known):
                setattr(module, known, getattr(ours, known))
