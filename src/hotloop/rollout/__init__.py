"""Collect experience from envs with a policy: fragments or whole episodes, here or in workers."""

from hotloop.rollout.episodes import Episode, EpisodeCollector
from hotloop.rollout.fragments import FragmentCollector
from hotloop.rollout.steps import Counts, StepCollector

__all__ = ["Counts", "Episode", "EpisodeCollector", "FragmentCollector", "StepCollector"]
