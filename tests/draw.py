"""Selects the part of a long set of samples that runs today, and its deadline.

    PLEAT_TEST_DRAW=2026-11-26   as on that day; all, or not set: every sample
    PLEAT_TEST_UNTIL=1795689600  seconds since the epoch after which no further test of the rotating part starts

A set has a fixed shuffled order. Each day takes the next tenth of it, rounded up, and goes round. So ten days in a row draw
every sample, and every day draws at least one of each set. A set can request fewer days. It does not depend on pytest:
scripts draw with it, too.
"""

import datetime
import os
import random
import time

DAYS = 10


class Draw:
    def __init__(self, text="all", until=None):
        """text: a date, or "all"; until: seconds since the epoch, None without end."""
        self.text, self.until = text, until
        self.day = None if text == "all" else datetime.date.fromisoformat(text).toordinal()

    @classmethod
    def of_environment(cls):
        until = os.environ.get("PLEAT_TEST_UNTIL")
        return cls(os.environ.get("PLEAT_TEST_DRAW") or "all", float(until) if until else None)

    @property
    def everything(self):
        return self.day is None

    def samples(self, name, count, days=DAYS):
        """The samples of today among `count` of the set `name`: indices, in order. `days` in a row draw all of them."""
        if self.everything:
            return list(range(count))
        share = -(-count // days)
        shuffled = random.Random(name).sample(range(count), count)
        return sorted(shuffled[(self.day * share + i) % count] for i in range(share))

    def includes(self, name):
        """Whether today is the day, of ten in a row, of the single sample `name`."""
        return self.everything or random.Random(name).randrange(DAYS) == self.day % DAYS

    def in_turn(self, things):
        """The order of items whose last ones can be missed: another order each day."""
        things = list(things)
        if not self.everything:
            random.Random(self.text).shuffle(things)
        return things

    def time_is_up(self):
        return self.until is not None and time.time() >= self.until
