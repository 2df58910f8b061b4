"""From envs and a policy to experience: fragments, whole episodes, from here or from workers."""

from hotloop.rollout.episodes import Episode, EpisodeCollector
from hotloop.rollout.fragments import FragmentCollector
from hotloop.rollout.steps import Counts, StepCollector

__all__ = ["Counts", "Episode", "EpisodeCollector", "FragmentCollector", "StepCollector"]
