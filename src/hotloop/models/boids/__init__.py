"""Boids: birds that keep apart, fly as their neighbours do, and stay together."""

from hotloop.models.boids.flock import PATHS
from hotloop.models.boids.model import model
from hotloop.models.boids.settings import BoidsSettings, box_for
from hotloop.models.boids.spec import MODEL

__all__ = ["MODEL", "PATHS", "BoidsSettings", "box_for", "model"]
