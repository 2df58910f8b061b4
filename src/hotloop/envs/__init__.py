"""Vector envs: Gymnasium's contract, several envs stepped as one.

The engines: `serial`, `process`, `ray`, each a `vector.VectorEnv`; `make` picks one. `synthetic`
and `conformance` are for testing; `adapters` for those who use another library's faces.
"""

from hotloop.envs.make import make_env, make_vec
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.register import register
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.vector import VectorEnv

register()  # ids that Gymnasium knows once this package is imported

__all__ = ["ProcessVectorEnv", "SerialVectorEnv", "VectorEnv", "make_env", "make_vec"]
