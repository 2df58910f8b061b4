"""A model of Mesa in which agents give and take; how unequal they are is computed all the time."""

import argparse

import mesa

AGENTS = 300


def gini(model):
    """How unequal the wealth is, by all pairs of agents."""
    wealth = [agent.wealth for agent in model.agents]
    apart = sum(abs(mine - other) for mine in wealth for other in wealth)
    return apart / (2 * len(wealth) * sum(wealth))


class Person(mesa.Agent):
    def __init__(self, model):
        super().__init__(model)
        self.wealth = 1

    def give(self):
        if self.wealth > 0:
            self.wealth -= 1
            self.random.choice(self.model.people).wealth += 1


class Economy(mesa.Model):
    def __init__(self, fix):
        super().__init__(seed=1)
        Person.create_agents(self, AGENTS)
        self.people = list(self.agents)
        reporters = {} if fix else {"gini": gini}
        self.collector = mesa.DataCollector(model_reporters=reporters)

    def step(self):
        for _ in range(20):
            self.agents.shuffle_do("give")
        self.collector.collect(self)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=200_000, help="steps of the model")
    options.add_argument("--fix", action="store_true", help="collect nothing")
    chosen = options.parse_args()
    model = Economy(chosen.fix)
    for _ in range(chosen.steps):
        model.step()
    print(f"gini {gini(model):.2f}")


if __name__ == "__main__":
    main()
