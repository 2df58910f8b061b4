    def _look(self):
        """How far each beam reaches, as a share of REACH: all beams and walls at once."""
        angles = self.heading + 2 * math.pi * np.arange(BEAMS) / BEAMS
        dx, dy = np.cos(angles)[:, None], np.sin(angles)[:, None]  # (beams, 1)
        x1, y1, x2, y2 = self.walls.T
        wx, wy = x2 - x1, y2 - y1
        from_x, from_y = x1 - self.place[0], y1 - self.place[1]
        across = dx * wy - dy * wx  # (beams, walls)
        across = np.where(abs(across) > 1e-9, across, np.inf)
        along = (from_x * wy - from_y * wx) / across
        within = (from_x * dy - from_y * dx) / across
        hit = (along >= 0.0) & (within >= 0.0) & (within <= 1.0) & np.isfinite(across)
        return np.where(hit, along, REACH).min(1, initial=REACH) / REACH
