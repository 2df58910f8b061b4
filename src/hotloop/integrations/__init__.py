"""Integrations: classes of other libraries on the backends of hotloop, one module a library.

    from hotloop.integrations.gymnasium import AsyncVectorEnv, SyncVectorEnv
    from hotloop.integrations.stable_baselines3 import DummyVecEnv, SubprocVecEnv
    from hotloop.integrations.tianshou import SubprocVectorEnv, VenvFactory, FragmentCollector
    from hotloop.integrations.tianshou import ActorCollector
    from hotloop.integrations.torchrl import ActorCollector
    from hotloop.integrations.pettingzoo import parallel_vector_env
    from hotloop.integrations.envpool import envpool_vector_env

Each module imports its library, so import the one that you use; nothing is imported here.
"""
