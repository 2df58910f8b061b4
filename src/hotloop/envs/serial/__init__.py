"""Envs of this process, stepped one after the other."""

from hotloop.envs.serial.engine import SerialVectorEnv

__all__ = ["SerialVectorEnv"]
