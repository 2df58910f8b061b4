"""Vector envs: Gymnasium's contract, several envs stepped as one.

The backends are packages, `serial`, `process` and `ray`, each a `vector.VectorEnv`; `make` picks
one. Test envs and the conformance kit are in `hotloop.testing`, other libraries' classes in
`hotloop.integrations`.
"""

from hotloop.envs.ids import make_env
from hotloop.envs.make import make_vec
from hotloop.envs.process.engine import ProcessVectorEnv
from hotloop.envs.register import register
from hotloop.envs.serial.engine import SerialVectorEnv
from hotloop.envs.vector import VectorEnv

register()  # ids that Gymnasium knows once this package is imported

__all__ = ["ProcessVectorEnv", "SerialVectorEnv", "VectorEnv", "make_env", "make_vec"]
