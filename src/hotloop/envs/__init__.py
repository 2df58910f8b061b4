"""Vector envs: Gymnasium's contract, several envs stepped as one."""

from hotloop.envs.make import make_env
from hotloop.envs.serial import SerialVectorEnv

__all__ = ["SerialVectorEnv", "make_env"]
