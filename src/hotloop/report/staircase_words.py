"""What the journal says about a target, in words: the same in the terminal and on the page."""

from hotloop.loop.figures import Figure, Interval
from hotloop.repeat.entries import OVERLAP, Metric
from hotloop.repeat.overview import Overview
from hotloop.repeat.stop import (
    GAINS,
    MISSING,
    NEAR_CEILING,
    NOT_WORTH_IT,
    RATE_NOW,
    TARGET_MET,
    TARGET_NOT_MET,
    WORTH_IT,
    Lever,
)
from hotloop.report.numbers import Form, factor, figure, number, percent
from hotloop.report.sentence import Amount, Name, Sentence

Words = list[str | Name | Amount]
_ENOUGH_PREDICTIONS = 3  # to expect of the next one what became of them


def figure_of(metric: Metric) -> Figure:
    """A metric as reports write numbers."""
    if metric.low is None or metric.high is None:
        return metric.value
    return Interval(metric.value, metric.low, metric.high)


def said(metric: Metric | None, form: Form = number) -> str:
    """A metric as text, a dash where there is none."""
    return "–" if metric is None else figure(figure_of(metric), form)


def as_text(sentence: Sentence) -> str:
    """A sentence without any styling."""
    return "".join(
        word if isinstance(word, str) else word.text if isinstance(word, Name) else _amount(word)
        for word in sentence
    )


def stand(found: Overview) -> Sentence:
    """Say how many tries there were, and how far they have brought it."""
    steps = found.staircase.steps
    kept = sum(step.kept for step in steps)
    if not steps:
        return ["no try is noted yet; `hotloop repeat try` measures a change and notes it"]
    words: Words = [f"{_counted(len(steps), 'try', 'tries')}, {kept} kept"]
    if kept:
        words += [": ", Amount(1 / found.staircase.time, factor), " the speed at the start"]
    rate = found.decision.rate
    if rate is not None:
        words += ["; now ", Amount(figure_of(rate), number), f" {rate.unit}"]
    return words


def why(found: Overview) -> Sentence:
    """Say why to stop or to go on, with every price that it depends on."""
    return _REASONS[found.decision.because](found)


def next_try(found: Overview) -> Sentence:
    """Say which stage gains most, and what that is worth."""
    lever = found.next_try
    if lever is None:
        return [f"no gain is known: `hotloop simplify {found.target}` finds out"]
    words: Words = [Name(lever.name), ": up to ", Amount(figure_of(lever.gain), percent)]
    words.append(" of the time, if it were free")
    for times, gain in lever.faster.items():
        words += [f"; {times}, ", Amount(figure_of(gain), percent)]
    experiment = found.experiment
    if experiment is not None and experiment.overlap is not None:
        gain = experiment.overlap.gain
        words += ["; all stages side by side, ", Amount(figure_of(gain), percent)]
    return words


def cost(found: Overview) -> Sentence:
    """Say what runs and efforts have cost so far."""
    spent, limits = found.spent, found.limits
    words: Words = [Amount(spent.total, number), " so far: "]
    words += [Amount(spent.runs, number), f" for {_counted(found.runs, 'run', 'runs')}"]
    if spent.runs_without_price:
        words.append(f" ({spent.runs_without_price} of them without a price, left out)")
    words += [", ", Amount(spent.effort, number), " for ", Amount(spent.effort_hours, number)]
    words += [" h of work at ", Amount(limits.effort_price_per_hour, number), " an hour"]
    return words


def predictions(found: Overview) -> str:
    """Say how predictions came true."""
    known = found.calibration
    if not known.predictions:
        return "No try has both a prediction and what it achieved."
    parts = [_counted(len(known.predictions), "prediction", "predictions")]
    if known.held is not None:
        parts.append(f"{percent(known.held)} within the interval of what was achieved")
    if known.ratio is not None:
        parts.append(f"achieved over predicted is {number(known.ratio)} on average")
    return f"{'; '.join(parts)}."


def notes(found: Overview) -> list[str]:
    """What a reader must know besides."""
    decision, limits, said = found.decision, found.limits, []
    if decision.value_met and not decision.rate_met and decision.rate is not None:
        limit = "is not known" if decision.rate.low is None else "does not"
        said.append(
            f"the value of the rate meets the target rate, its lower limit {limit}: `hotloop "
            f"benchmark {found.target} --seconds 60` would tell"
        )
    if found.experiment is not None and found.experiment.before_change:
        said.append(
            "the gains were measured before the last change that was kept: `hotloop simplify "
            f"{found.target}` measures them anew"
        )
    ratio, expected = found.calibration.ratio, decision.expected_saving
    enough = len(found.calibration.predictions) >= _ENOUGH_PREDICTIONS
    if decision.because == WORTH_IT and enough and ratio is not None and expected is not None:
        said.append(
            f"tries achieved {number(ratio)} of what was predicted, on average; at that rate "
            f"{number(max(0.0, ratio) * expected)} would be saved"
        )
    if found.price_noted and limits.price_per_hour is not None:
        said.append(
            f"the machine's price, {number(limits.price_per_hour)} an hour, is that of the newest "
            "run with one; --price-per-hour sets another"
        )
    if decision.because == TARGET_NOT_MET and decision.missing:
        said.append(f"whether that is worth its effort cannot be said without {_missing(found)}")
    if found.other_targets:
        said.append(f"also noted: {', '.join(found.other_targets)} (--target shows another)")
    return said


def _target_met(found: Overview) -> Sentence:
    return ["the target rate of ", *_target_rate(found), " is met: ", *_rate(found)]


def _not_worth_it(found: Overview) -> Sentence:
    decision = found.decision
    assert decision.best_saving is not None
    words: Words = ["at best, ", *_lever(found), " saves ", Amount(decision.best_saving, number)]
    assert decision.lever is not None
    words += [" (", Amount(decision.lever.best_case, percent), *_future(found), "), less than the "]
    return [*words, *_effort(found)]


def _worth_it(found: Overview) -> Sentence:
    decision = found.decision
    assert decision.lever is not None
    assert decision.expected_saving is not None
    assert decision.best_saving is not None
    words: Words = [*_lever(found), " may save ", Amount(decision.expected_saving, number)]
    words += [" (", Amount(figure_of(decision.lever.gain), percent), *_future(found), "), at best "]
    words += [Amount(decision.best_saving, number), "; its ", *_effort(found)]
    if decision.effort_cost is not None and decision.expected_saving < decision.effort_cost:
        words.append(": only the best case covers that")
    return words


def _near_ceiling(found: Overview) -> Sentence:
    experiment = found.experiment
    assert experiment is not None
    best = experiment.levers[0]
    words: Words = ["the ceiling is near: the best stage, ", Name(best.name), ", saves at most "]
    words += [Amount(best.best_case, percent), " of the time even if free"]
    if experiment.overlap is not None:
        words += [", all stages side by side ", Amount(experiment.overlap.gain.value, percent)]
    return [*words, "; ", Amount(found.limits.worth, percent), " would count"]


def _target_not_met(found: Overview) -> Sentence:
    sure = " for certain" if found.decision.value_met else ""
    words: Words = ["the target rate of ", *_target_rate(found), f" is not met{sure}: "]
    words += _rate(found)
    assert found.decision.lever is not None
    gain = figure_of(found.decision.lever.gain)
    return [*words, "; ", *_lever(found), " may save ", Amount(gain, percent), " of the time"]


def _not_known(found: Overview) -> Sentence:
    return [f"whether to stop, without {_missing(found)}"]


_REASONS = {
    TARGET_MET: _target_met,
    NOT_WORTH_IT: _not_worth_it,
    NEAR_CEILING: _near_ceiling,
    WORTH_IT: _worth_it,
    TARGET_NOT_MET: _target_not_met,
    MISSING: _not_known,
}


def _missing(found: Overview) -> str:
    """What would have to be known, as a list."""
    remedies = {GAINS: "simplify", RATE_NOW: "benchmark"}
    wanted = [
        f"{each} (`hotloop {remedies[each]} {found.target}`)" if each in remedies else each
        for each in found.decision.missing
    ]
    if len(wanted) < 2:
        return "".join(wanted)
    return f"{', '.join(wanted[:-1])} and {wanted[-1]}"


def _lever(found: Overview) -> Words:
    lever: Lever | None = found.decision.lever
    assert lever is not None
    return ["running all stages side by side" if lever.name == OVERLAP else Name(lever.name)]


def _target_rate(found: Overview) -> Words:
    assert found.limits.target_rate is not None
    assert found.decision.rate is not None
    return [Amount(found.limits.target_rate, number), f" {found.decision.rate.unit}"]


def _rate(found: Overview) -> Words:
    assert found.decision.rate is not None
    return [Amount(figure_of(found.decision.rate), number)]


def _future(found: Overview) -> Words:
    assert found.limits.hours is not None
    assert found.limits.price_per_hour is not None
    words: Words = [" of ", Amount(found.limits.hours, number), " h at "]
    return [*words, Amount(found.limits.price_per_hour, number), " an hour"]


def _effort(found: Overview) -> Words:
    limits, effort = found.limits, found.decision.effort_cost
    assert limits.effort_hours is not None
    assert effort is not None
    words: Words = ["effort costs ", Amount(effort, number), " ("]
    words += [Amount(limits.effort_hours, number), " h of work at "]
    return [*words, Amount(limits.effort_price_per_hour, number), " an hour)"]


def _amount(word: Amount) -> str:
    return figure(word.value, word.form)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
