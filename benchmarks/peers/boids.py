"""Boids as mesa-frames and Mesa would have them: the rules, sizes and start of `hotloop.models`.

    pip install mesa-frames mesa        # in a venv of its own: mesa-frames wants numpy 1
    python boids.py mesa-frames START.npz     # one "steps" a line on stdin, {"seconds", …} back

mesa-frames has grids of discrete cells only, and no flocking among its examples. So the birds are
an agent set, and their neighbours come from joins on cells of one radius, as frames are good at.
Mesa has a continuous space that finds the neighbours of one agent; all birds hear before any moves.
Both compute in single precision where the library lets them.
"""

import json
import sys
import time

import numpy as np


def mesa_frames_model(start, s):
    import polars as pl
    from mesa_frames import AgentSetPolars, ModelDF

    f = pl.Float32
    sides = {"x": float(s["width"]), "y": float(s["height"])}
    counts = {axis: int(side / s["radius"]) for axis, side in sides.items()}
    offsets = pl.DataFrame(
        {
            "over_x": [i for i in (-1, 0, 1) for _ in range(3)],
            "over_y": [j for _ in range(3) for j in (-1, 0, 1)],
        }
    )

    def cell(axis):
        return (
            (pl.col(axis) * (counts[axis] / sides[axis])).cast(pl.Int32).clip(0, counts[axis] - 1)
        )

    def wrapped(axis):
        near = pl.col(f"cell_{axis}") + pl.col(f"over_{axis}")
        shift = (
            pl.when(near < 0).then(-sides[axis]).when(near >= counts[axis]).then(sides[axis])
        ).otherwise(0.0)
        return [
            (near % counts[axis]).cast(pl.Int32).alias(f"near_{axis}"),
            shift.cast(f).alias(f"shift_{axis}"),
        ]

    class Birds(AgentSetPolars):
        def __init__(self, model):
            super().__init__(model)
            names = ("x", "y", "vx", "vy")
            columns = {name: pl.Series(start[name], dtype=f) for name in names}
            self.add(pl.DataFrame({"unique_id": np.arange(len(start["x"])), **columns}))

        def step(self):
            birds = self.agents.select(
                "unique_id", "x", "y", "vx", "vy", cell_x=cell("x"), cell_y=cell("y")
            ).lazy()
            seen = birds.select(
                near_x="cell_x", near_y="cell_y", other="unique_id", other_x="x", other_y="y",
                other_vx="vx", other_vy="vy",
            )  # fmt: skip
            pairs = (
                birds.join(offsets.lazy(), how="cross")
                .with_columns(wrapped("x") + wrapped("y"))
                .join(seen, on=["near_x", "near_y"])
                .select(
                    "unique_id", "other", "other_vx", "other_vy",
                    dx=(pl.col("other_x") - pl.col("x")) + pl.col("shift_x"),
                    dy=(pl.col("other_y") - pl.col("y")) + pl.col("shift_y"),
                )
                .with_columns(d2=pl.col("dx") ** 2 + pl.col("dy") ** 2)
                .filter(pl.col("d2") <= s["radius"] ** 2, pl.col("unique_id") != pl.col("other"))
                .with_columns(
                    push=pl.when(pl.col("d2") < s["separation_radius"] ** 2)
                    .then(1 / (pl.col("d2") + s["softening"] ** 2))
                    .otherwise(0.0)
                )
            )  # fmt: skip
            heard = pairs.group_by("unique_id").agg(
                centre_x=pl.col("dx").mean(),
                centre_y=pl.col("dy").mean(),
                mean_vx=pl.col("other_vx").mean(),
                mean_vy=pl.col("other_vy").mean(),
                push_x=-(pl.col("dx") * pl.col("push")).sum(),
                push_y=-(pl.col("dy") * pl.col("push")).sum(),
            )

            def steered(axis):
                change = (
                    s["cohesion"] * pl.col(f"centre_{axis}")
                    + s["alignment"] * (pl.col(f"mean_v{axis}") - pl.col(f"v{axis}"))
                    + s["separation"] * pl.col(f"push_{axis}")
                )
                return (pl.col(f"v{axis}") + change.fill_null(0.0)).alias(f"v{axis}")

            speed = (pl.col("vx") ** 2 + pl.col("vy") ** 2).sqrt()
            factor = speed.clip(s["min_speed"], s["max_speed"]) / speed
            moved = (
                birds.join(heard, on="unique_id", how="left", maintain_order="left")
                .with_columns(steered("x"), steered("y"))
                .with_columns(vx=pl.col("vx") * factor, vy=pl.col("vy") * factor)
                .with_columns(
                    ((pl.col(axis) + pl.col(f"v{axis}")) % sides[axis]).cast(f).alias(axis)
                    for axis in ("x", "y")
                )
                .select("x", "y", pl.col("vx").cast(f), pl.col("vy").cast(f))
                .collect()
            )
            self.set({name: moved[name] for name in moved.columns})

    class Flock(ModelDF):
        def __init__(self):
            super().__init__(seed=0)
            self.birds = Birds(self)
            self.agents += self.birds

        def step(self):
            self.agents.do("step")

        def positions(self):
            birds = next(iter(self.agents._agentsets)).agents.sort("unique_id")
            return np.stack([birds["x"].to_numpy(), birds["y"].to_numpy()])

    return Flock()


def mesa_model(start, s):
    import mesa
    from mesa.experimental.continuous_space import ContinuousSpace, ContinuousSpaceAgent

    class Bird(ContinuousSpaceAgent):
        def __init__(self, model, position, velocity):
            super().__init__(model.space, model)
            self.position, self.velocity = position, velocity

        def hear(self):
            others, _ = self.get_neighbors_in_radius(radius=s["radius"])
            others = [other for other in others if other is not self]
            self.change = np.zeros(2)
            if others:
                # The difference that this Mesa gives is another's place seen from here.
                offset = self.space.calculate_difference_vector(self.position, agents=others)
                d2 = (offset**2).sum(1)
                near = d2 < s["separation_radius"] ** 2
                push = np.where(near, 1 / (d2 + s["softening"] ** 2), 0.0)
                flow = np.mean([other.velocity for other in others], axis=0) - self.velocity
                self.change = (
                    s["cohesion"] * offset.mean(0)
                    + s["alignment"] * flow
                    - s["separation"] * (offset * push[:, None]).sum(0)
                )

        def move(self):
            velocity = self.velocity + self.change
            speed = np.linalg.norm(velocity)
            self.velocity = velocity * (np.clip(speed, s["min_speed"], s["max_speed"]) / speed)
            self.position = (self.position + self.velocity) % self.space.size

    class Flock(mesa.Model):
        def __init__(self):
            super().__init__(seed=0)
            dimensions = [[0, float(s["width"])], [0, float(s["height"])]]
            self.space = ContinuousSpace(
                dimensions, torus=True, random=self.random, n_agents=len(start["x"])
            )
            places = np.stack([start["x"], start["y"]], 1).astype(float)
            velocities = np.stack([start["vx"], start["vy"]], 1).astype(float)
            for place, velocity in zip(places, velocities, strict=True):
                Bird(self, place, velocity)

        def step(self):
            self.agents.do("hear")
            self.agents.do("move")

        def positions(self):
            return np.stack([bird.position for bird in self.agents], 1)

    return Flock()


MODELS = {"mesa-frames": mesa_frames_model, "mesa": mesa_model}


def main() -> None:
    name, path = sys.argv[1:]
    start = np.load(path)
    model = MODELS[name](start, json.loads(str(start["settings"])))
    for line in sys.stdin:
        words = line.split()
        begin = time.perf_counter()
        for _ in range(int(words[0])):
            model.step()
        seconds = time.perf_counter() - begin
        if len(words) > 1:
            np.save(words[1], model.positions())
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
