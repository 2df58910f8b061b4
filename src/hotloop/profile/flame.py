"""Stacks as a tree of what calls what, and as a file for speedscope."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotloop.loop.named_call import FRAME
from hotloop.profile.stacks import Frame, Lane, Stacks

# What is rarer is not kept in a run.
LEAST_SHARE = 0.002
DEEPEST = 60
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@dataclass
class Node:
    """A function with what it calls. count: samples in it and below; is_stage: a stage's frame."""

    name: str
    file: str = ""
    count: int = 0
    is_stage: bool = False
    children: list["Node"] = field(default_factory=list)


def tree(stacks: Stacks) -> Node:
    """The calls of the loop's own lane, and of each other lane beside it, without the rarest."""
    root = Node("all")
    for lane, counts in sorted(stacks.counts.items(), key=lambda item: not item[0].is_loop):
        top = root
        if not lane.is_loop:
            top = Node(lane.name)
            root.children.append(top)
        for stack, count in counts.items():
            node = top
            node.count += count
            for frame in stack[:DEEPEST]:
                node = _child(node, frame)
                node.count += count
        if top is not root:
            root.count += top.count
    _prune(root, LEAST_SHARE * root.count)
    return root


def _child(node: Node, frame: Frame) -> Node:
    for child in node.children:
        if child.name == frame.function and child.file == frame.file:
            return child
    node.children.append(Node(frame.function, frame.file, 0, frame.function.startswith(FRAME)))
    return node.children[-1]


def _prune(node: Node, least: float) -> None:
    node.children = [child for child in node.children if child.count >= least]
    node.children.sort(key=lambda child: -child.count)
    for child in node.children:
        _prune(child, least)


def write_speedscope(stacks: Stacks, path: Path, name: str) -> None:
    """Write the stacks as a file that speedscope.app opens, a profile for each lane."""
    frames: dict[Frame, int] = {}
    profiles = [_profile(lane, counts, frames) for lane, counts in stacks.counts.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "$schema": _SCHEMA,
                "name": name,
                "exporter": "hotloop",
                "shared": {"frames": [_speedscope_frame(frame) for frame in frames]},
                "profiles": profiles,
            }
        )
    )


def _profile(lane: Lane, counts: dict[Any, int], frames: dict[Frame, int]) -> dict[str, Any]:
    samples = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in counts]
    weights = list(counts.values())
    return {
        "type": "sampled",
        "name": lane.name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _speedscope_frame(frame: Frame) -> dict[str, Any]:
    return {"name": frame.function, "file": frame.file, "line": frame.line}
