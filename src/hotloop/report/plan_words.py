"""The words of plans: the first lines, and the cells of their tables. Apart from how they are laid
out in the terminal and on the page.
"""

from collections.abc import Sequence
from statistics import median

from hotloop.plan.modes import MODES, STEP
from hotloop.plan.summary import Plan, Prediction, Smallest
from hotloop.report.numbers import factor, figure, measured, number, percent, seconds
from hotloop.report.sentence import Amount, Name, Sentence


def answer_lines(plan: Plan) -> list[tuple[str, Sentence]]:
    """The first lines: what the head costs, how good the model is, what reaches the target."""
    lines: list[tuple[str, Sentence]] = []
    for model in plan.models:
        mode: Sentence = [Name(model.mode), ": "] if len(plan.models) > 1 else []
        words: Sentence = [
            *mode,
            "the head works ",
            Amount(model.call_s, seconds),
            " for each env step, so at most ",
            Amount(model.most_sps, number),
            " SPS, however many nodes there are",
        ]
        lines.append(("head", words))
    lines += [("open", _gap_words(plan, place)) for place in range(len(plan.gaps))]
    errors = plan.errors
    if errors:
        lines.append(("checked", _error_words(errors)))
    lines += [("target", _target_words(plan, group)) for group in _by_place(plan.smallest)]
    return lines


def _gap_words(plan: Plan, place: int) -> Sentence:
    gap = plan.gaps[place]
    return [
        f"the points do not determine {gap.of}: ",
        Amount(gap.seconds, seconds),
        "; to know, measure ",
        Name(str(gap.measure)),
    ]


def _error_words(errors: Sequence[float]) -> Sentence:
    many = len(errors)
    return [
        f"{many} forecast{'s' if many > 1 else ''} of cells that were measured and not fitted: ",
        "off by ",
        Amount(median(errors), percent),
        " in the median, ",
        Amount(max(errors), percent),
        " at worst",
    ]


def _by_place(smallest: Sequence[Smallest]) -> list[list[Smallest]]:
    """The modes of each duration of a step and number of cores."""
    places: dict[tuple[float, int], list[Smallest]] = {}
    for each in smallest:
        places.setdefault((each.step_s, each.cores_per_node), []).append(each)
    return list(places.values())


def _target_words(plan: Plan, group: Sequence[Smallest]) -> Sentence:
    """Say which mode reaches the target with the fewest nodes; of equals, the first one."""
    where = f"{number(plan.settings.target_sps or 0.0)} SPS at steps of {group[0].step_s:g} s: "
    reached = [each for each in group if each.nodes is not None]
    if not reached:
        return [where, "no mode reaches it with any number of nodes"]
    best = min(reached, key=lambda each: each.nodes or 0)
    words: Sentence = [
        where,
        Name(best.mode),
        f" with {nodes_text(best.nodes or 0)}, ",
        _surely(best),
    ]
    if best.forecast is not None and best.forecast.money is not None:
        words = [*words, "; a million steps cost ", Amount(best.forecast.money, number)]
    return words


def _surely(smallest: Smallest) -> str:
    if smallest.nodes_surely == smallest.nodes:
        return "also by the lower end of the interval"
    if smallest.nodes_surely is None:
        return "but by the lower end of the interval never"
    return f"by the lower end of the interval {smallest.nodes_surely:,}"


def smallest_cells(plan: Plan) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The table of smallest clusters as text: its columns, and the rows."""
    columns = [("step", "right"), ("mode", "left"), ("nodes", "right"), ("at worst", "right")]
    columns += [("SPS", "right"), ("1M steps", "right")]
    rows = []
    for each in plan.smallest:
        found = each.forecast
        rows.append(
            [
                f"{each.step_s:g} s",
                each.mode,
                "never" if each.nodes is None else f"{each.nodes:,}",
                "never" if each.nodes_surely is None else f"{each.nodes_surely:,}",
                "" if found is None else figure(found.sps),
                "" if found is None or found.money is None else measured(found.money),
            ]
        )
    return columns, rows


def nodes_text(count: int) -> str:
    """A number of nodes: 1 node, 1,000 nodes."""
    return f"{count:,} node{'s' if count != 1 else ''}"


def forecast_cells(plan: Plan) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The table of forecasts as text: its columns, and the rows; columns without content are left
    out.
    """
    columns: dict[tuple[str, str], list[str]] = {
        ("nodes", "right"): [f"{p.forecast.cell.nodes:,}" for p in plan.predictions],
        ("cores", "right"): [f"{p.forecast.cell.cores_per_node:,}" for p in plan.predictions],
        ("step", "right"): [f"{p.forecast.cell.step_s:g} s" for p in plan.predictions],
        ("mode", "left"): [p.forecast.cell.mode for p in plan.predictions],
        ("SPS", "right"): [figure(p.forecast.sps) for p in plan.predictions],
        ("efficiency", "right"): [percent(p.forecast.efficiency) for p in plan.predictions],
        ("limited by", "left"): [p.forecast.limited_by for p in plan.predictions],
        ("lifted by", "left"): [_lift_text(p) for p in plan.predictions],
        ("1M steps", "right"): [_money_text(p) for p in plan.predictions],
        ("lag", "right"): [_lag_text(p) for p in plan.predictions],
        ("simulated", "right"): [_simulated_text(p) for p in plan.predictions],
        ("measured", "right"): [_measured_text(p) for p in plan.predictions],
    }
    same_mode = {p.forecast.cell.mode for p in plan.predictions} == {STEP}
    kept = {
        column: texts
        for column, texts in columns.items()
        if any(texts) and not (column[0] == "mode" and same_mode)
    }
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _lift_text(prediction: Prediction) -> str:
    lift = prediction.forecast.lift
    return "" if lift is None else f"{lift.mode} {factor(lift.gain.value)}"


def _money_text(prediction: Prediction) -> str:
    money = prediction.forecast.money
    return "" if money is None else number(money.value)


def _lag_text(prediction: Prediction) -> str:
    """The lag in updates, and how long a fragment waits."""
    found = prediction.forecast.staleness
    return "" if found is None else f"{found.lag:.1f}, {seconds(found.wait_s)}"


def _simulated_text(prediction: Prediction) -> str:
    found = prediction.simulated_sps
    if found is None:
        return ""
    return f"{number(found)} ({prediction.forecast.sps.value / found - 1:+.1%})"


def _measured_text(prediction: Prediction) -> str:
    """What was measured, and how far the forecast is off."""
    if prediction.measured_sps is None or prediction.error is None:
        return ""
    return f"{number(prediction.measured_sps)} ({prediction.error:+.1%})"


def about_modes(plan: Plan) -> list[str]:
    """What the modes that are named mean."""
    named = [p.forecast.cell.mode for p in plan.predictions]
    named += [p.forecast.lift.mode for p in plan.predictions if p.forecast.lift]
    named += [smallest.mode for smallest in plan.smallest]
    return [f"{mode}: {MODES[mode].about}" for mode in MODES if mode in named]
