"""Atari games as learners are used to see them: importing this registers `Atari84/GAME-v5`.

    hotloop train impala:hotloop.integrations.atari:Atari84/Pong-v5

Four frames of 84 x 84 grey pixels, each the maximum of the last two of four frames that the game
plays in a step; up to 30 random no-ops at the start; sticky actions, as of `ALE/GAME-v5`; whole
games, whatever lives are lost; rewards as they are.
Source: Mnih et al. 2015, and Machado et al. 2018 for the sticky actions.
"""

from typing import Any

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from hotloop.envs.ids import AnyEnv
from hotloop.errors import TargetError

try:
    import ale_py  # noqa: F401 - registers the games
except ModuleNotFoundError as error:
    raise TargetError(
        "Atari's games need a package that is not installed (ale_py): pip install 'hotloop[atari]'"
    ) from error

FRAMES, FRAME_SKIP = 4, 4
_GAMES, _VERSION = "ALE/", "-v5"
# A game ends after half an hour of play, as in the sources: 108,000 frames.
_MAX_STEPS = 27_000


def atari_env(game: str, **kwargs: Any) -> AnyEnv:
    """Make a game such as "Pong"; kwargs: of ALE, such as `repeat_action_probability`."""
    env: AnyEnv = gymnasium.make(f"{_GAMES}{game}{_VERSION}", frameskip=1, **kwargs)
    return FrameStackObservation(AtariPreprocessing(env, frame_skip=FRAME_SKIP), FRAMES)


for _game in [name for name in gymnasium.registry if name.startswith(_GAMES)]:
    if _game.endswith(_VERSION):
        _name = _game.removeprefix(_GAMES).removesuffix(_VERSION)
        gymnasium.register(
            f"Atari84/{_name}{_VERSION}",
            entry_point=f"{__name__}:{atari_env.__name__}",
            kwargs={"game": _name},
            max_episode_steps=_MAX_STEPS,
        )
