"""Facts of stages, as a recording would have found them."""

import dataclasses
from typing import Any

from hotloop.simplify.stage_facts import StageFacts

MS = 1_000_000


def stage_facts(name: str, index: int, ms: float, **other: Any) -> StageFacts:
    """A pure stage that computes so many milliseconds of iterations of 10, once in each."""
    facts = StageFacts(
        name=name,
        index=index,
        kind="cpu",
        effect="pure",
        inside=None,
        calls_per_iteration=1.0,
        ns_per_call=ms * MS,
        tape_ns=[round(ms * MS)],
        ns_per_iteration=ms * MS,
        share=ms / 10,
        cpu_share=1.0,
        beside_main=False,
        lanes=[7],
        outputs=100,
        modes_ns=None,
        bytes_per_call=None,
        not_replaced=None,
    )
    return dataclasses.replace(facts, **other)
