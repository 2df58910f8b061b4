"""A market of objects that know each other: cycles for the collector in each step."""

import random

import hotloop


class Trader:
    def __init__(self, market):  # fault: reference cycles
        self.market = market
        self.cash = random.random()
        self.history = [self.cash]


class Market:
    def __init__(self, size):  # fault: reference cycles
        self.traders = [Trader(self) for _ in range(size)]

    def clear(self):
        for buyer in self.traders:
            seller = random.choice(self.traders)
            amount = 0.1 * seller.cash
            buyer.cash, seller.cash = buyer.cash - amount, seller.cash + amount
            buyer.history.append(buyer.cash)
        return sum(trader.cash for trader in self.traders)


for _ in hotloop.iterations(range(1_000_000), unit="days"):
    [Market(4).clear() for _ in range(300)]
