"""A rover that finds its way between walls with a range finder; written plainly, as a first try."""

import math

import gymnasium
import numpy as np

BEAMS, WALLS, SIZE, REACH = 16, 24, 10.0, 4.0


class Rover(gymnasium.Env):
    """Drive to the goal: turn left, go straight, or turn right, by what the beams see."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (BEAMS + 2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        ends = self.np_random.uniform(1.0, SIZE - 1.0, (WALLS, 2))
        angles = self.np_random.uniform(0.0, math.pi, WALLS)
        steps = np.stack([np.cos(angles), np.sin(angles)], 1)
        self.walls = np.concatenate([ends, ends + steps], 1)  # x1, y1, x2, y2
        self.place = np.array([0.5, 0.5])
        self.heading = math.pi / 4
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        self.heading += 0.3 * (int(action) - 1)
        before = math.dist(self.place, (SIZE, SIZE))
        move = 0.2 * np.array([math.cos(self.heading), math.sin(self.heading)])
        if min(self.ranges) * REACH > 0.2:
            self.place = np.clip(self.place + move, 0.0, SIZE)
        left = math.dist(self.place, (SIZE, SIZE))
        return self._observe(), before - left, left < 0.5, self.steps >= 200, {}

    def _observe(self):
        self.ranges = self._look()
        bearing = math.atan2(SIZE - self.place[1], SIZE - self.place[0]) - self.heading
        seen = [*self.ranges, math.cos(bearing), math.sin(bearing)]
        return np.array(seen, np.float32)

    def _look(self):
        """How far each beam reaches, as a share of REACH: the nearest of all walls."""
        x, y = self.place
        ranges = []
        for k in range(BEAMS):
            angle = self.heading + 2 * math.pi * k / BEAMS
            dx, dy = math.cos(angle), math.sin(angle)
            nearest = REACH
            for x1, y1, x2, y2 in self.walls:
                wx, wy = x2 - x1, y2 - y1
                across = dx * wy - dy * wx
                if abs(across) > 1e-9:
                    along = ((x1 - x) * wy - (y1 - y) * wx) / across
                    within = ((x1 - x) * dy - (y1 - y) * dx) / across
                    if along >= 0.0 and 0.0 <= within <= 1.0:
                        nearest = min(nearest, along)
            ranges.append(nearest / REACH)
        return ranges
