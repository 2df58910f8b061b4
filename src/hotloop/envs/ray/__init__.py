"""Envs in Ray actors, on any node of a cluster. Needs the `ray` extra."""

from hotloop.envs.ray.engine import RayVectorEnv

__all__ = ["RayVectorEnv"]
