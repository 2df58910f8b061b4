"""The names of an experiment's arms: by its name an arm is found in a saved run."""

BASELINE = "baseline"


def aa_name(number: int) -> str:
    """Name one of the arms that are the same as the baseline."""
    return f"A/A {number}"


def free_name(stage: str) -> str:
    """Name the arm in which one stage is free."""
    return f"free {stage}"


def only_name(stage: str) -> str:
    """Name the arm in which every replaceable stage but one is free."""
    return f"only {stage}"


def pad_name(stage: str) -> str:
    """Name the arm in which a stage waits instead of working."""
    return f"pad {stage}"


def faster_name(stage: str, how: str, k: float) -> str:
    """Name the arm in which a stage is k times faster; how: "burn" or "wait"."""
    return f"{how}({k:g}) {stage}"


def delay_name(stage: str, number: int) -> str:
    """Name one of the arms in which a stage is delayed."""
    return f"delay {stage} #{number}"


def pair_name(first: str, second: str) -> str:
    """Name the arm in which two stages are free together."""
    return f"free {first} + {second}"


ALL_FREE = "free all"


def is_aa(arm: str) -> bool:
    """Whether an arm is one of those that are the same as the baseline."""
    return arm.startswith("A/A ")


def is_free(arm: str) -> bool:
    """Whether an arm makes one stage free, a pair, or all."""
    return arm.startswith("free ")


def is_only(arm: str) -> bool:
    """Whether an arm makes every replaceable stage but one free."""
    return arm.startswith("only ")
