"""Envs in worker processes of this machine, with all step data in shared memory."""

from hotloop.envs.process.engine import ProcessVectorEnv

__all__ = ["ProcessVectorEnv"]
