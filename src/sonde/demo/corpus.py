"""The text of the demo: a year and more of a weather-balloon station's log book, written by a grammar.

An entry keeps to its facts: whoever opens it signs it, a balloon drifts where the wind blows, days and
ascents are counted on, snow falls in winter. So there is something to learn at every distance.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

_SEED = 1783  # the year of the first balloon that carried instruments; changing it changes everybody's demo
_SLOT = re.compile(r"\{(\w+)\}")

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = {
    "January": 31, "February": 28, "March": 31, "April": 30, "May": 31, "June": 30,
    "July": 31, "August": 31, "September": 30, "October": 31, "November": 30, "December": 31,
}  # fmt: skip
_SEASONS = ("winter", "spring", "summer", "autumn")
_OBSERVERS = ("Ines", "Tomas", "Aurel", "Birgit", "Okello", "Marta")
_WINDS = {
    "north": "south", "north-east": "south-west", "east": "west", "south-east": "north-west",
    "south": "north", "south-west": "north-east", "west": "east", "north-west": "south-east",
}  # fmt: skip

# The parts of an entry, in order, and how often an entry has them.
_PARTS = {
    "opening": 1.0, "inflation": 0.7, "check": 0.5, "release": 1.0, "climb": 1.0, "trouble": 0.3,
    "burst": 1.0, "landing": 0.7, "remark": 0.5, "lesson": 0.15, "closing": 1.0,
}  # fmt: skip

_GRAMMAR: Mapping[str, tuple[str, ...]] = {
    "opening": (
        "{observer} had the {watch}. {sky}",
        "{sky} {observer} opened the station at {hour}.",
        "{sky} The barometer stood at {pressure} and was {trend}.",
        "{observer} came up the hill at {hour}. {sky}",
    ),
    "watch": ("morning watch", "early watch", "night watch", "first watch of the week"),
    "hour": ("five", "half past five", "six", "a quarter to six", "six in the morning"),
    "trend": ("falling slowly", "rising", "steady", "falling fast", "rising after the night's low"),
    "winter": (
        "Snow lay on the roof of the hut.",
        "Clear and very cold, with frost on the inside of the windows.",
        "A low grey sky and a little snow from the {wind}.",
        "The tank was frozen again and had to be warmed.",
        "Ice on the antenna, which {observer} knocked off with a broom.",
    ),
    "spring": (
        "Rain in the night, clearing before dawn.",
        "Broken cloud and a smell of wet grass.",
        "Fog in the valley, but the hill was above it.",
        "A bright morning with larks over the field.",
        "Showers from the {wind} until the sun came through.",
    ),
    "summer": (
        "Hot already at sunrise, without a cloud.",
        "Haze over the fields and no wind to speak of.",
        "Thunder far off to the {drift}, moving away.",
        "A dry morning, the grass yellow around the hut.",
        "High thin cloud, and swallows under the roof.",
    ),
    "autumn": (
        "Leaves against the door, and a grey light.",
        "Mist until nine, then a pale sun.",
        "Strong gusts from the {wind} all night.",
        "Steady rain, the path to the hut under water.",
        "The first frost of the season on the launching field.",
    ),
    "inflation": (
        "The balloon was filled in {minutes} minutes and lifted the weight at once.",
        "We filled the balloon slowly, because the rubber was stiff with cold.",
        "Filling went well. The neck was tied twice, as the handbook asks.",
        "One balloon tore on the table, so we took another from the box and wrote the number down.",
        "{helper} held the neck while {observer} read the scale.",
        "The new batch of balloons fills evenly, and {helper} has stopped complaining about it.",
    ),
    "check": (
        "The sonde agreed with the {instrument} on the ground to within {tenths} of a degree.",
        "Before the release we compared the sonde with the {instrument}, and both told the same story.",
        "The humidity sensor read too high, so we dried it and tried again.",
        "The battery was weak and was changed before the release.",
        "The radio was clear on the first try.",
        "{helper} soldered one wire of the {instrument} that had come loose on the road.",
    ),
    "instrument": ("thermometer", "hygrometer", "barometer", "reference thermometer in the white box"),
    "release": (
        "Ascent {ascent} left the field at {time} in a wind from the {wind} and went off to the {drift}.",
        "We let ascent {ascent} go at {time}. A {strength} wind from the {wind} carried it to the {drift}.",
        "Released at {time}. Ascent {ascent} cleared the poplars and went {drift} until it met the cloud.",
        "At {time} ascent {ascent} went up straight, then bent to the {drift} as the {wind} wind took it.",
    ),
    "strength": ("light", "moderate", "fresh", "strong", "gusty"),
    "climb": (
        "It rose five metres in a second and kept to that.",
        "It climbed well through the cloud, which began at {low} metres and ended at {middle}.",
        "Between {low} and {middle} metres the air was warmer than below, a clean inversion.",
        "The temperature fell evenly, as the book says it should.",
        "It was slow at first and made up for it above {middle} metres.",
        "At {middle} metres the wind turned and the trace went round with it.",
    ),
    "trouble": (
        "The signal was lost for {minutes} minutes behind the ridge and came back by itself.",
        "For a while the pressure stood still, which no air does; we think that the sensor froze.",
        "Somebody in the village used our frequency to talk about potatoes.",
        "The printer ran out of paper and {helper} copied the numbers by hand.",
        "The recorder stopped, and {observer} started it again without losing more than a line.",
        "Two readings made no sense and are marked in the margin. We did not correct them.",
    ),
    "burst": (
        "It burst at {burst} metres, {judgement}.",
        "The balloon held until {burst} metres, {judgement}, and then the parachute opened.",
        "Burst at {burst} metres. {helper} had guessed well and was {mood} about it.",
    ),
    "judgement": (
        "higher than yesterday",
        "lower than we hoped",
        "the best of the month",
        "about where they all burst",
        "which is good for this rubber",
    ),
    "mood": ("pleased", "modest", "insufferable", "quiet"),
    "landing": (
        "It came down to the {drift}, near the {place}, and nobody has brought it back yet.",
        "A farmer found the sonde by the {place} and telephoned. {helper} went to fetch it.",
        "The parachute was seen over the {place}. We shall look for it on {later}.",
        "By the map it lies {far} kilometres to the {drift}, by the {place}.",
        "A child carried the sonde up to the station from the {place} and was given a pencil.",
    ),
    "place": (
        "old mill", "railway bridge", "reed beds", "quarry", "school", "pine wood", "orchard", "chapel",
    ),
    "later": _DAYS,
    "remark": (
        "The goat has eaten a piece of string again.",
        "{helper} mended the stove, and the hut is warm.",
        "Coffee is low. {helper} will bring some on {later}.",
        "A letter came from the institute: they want the tables by the end of the month.",
        "The door still sticks, and nobody has time for it.",
        "We repainted the white box and let it dry until the evening.",
        "In the evening {observer} taught {helper} to read the chart.",
        "Two visitors asked whether the balloon comes back. It does not, but the sonde sometimes does.",
        "A kite hangs in the poplars, and it is not ours.",
        "There is a wasps' nest under the stairs, which we leave alone.",
    ),
    "lesson": (
        "Note for the next watch: look at the trace before you trust the number.",
        "Note for the next watch: a value that never changes was never measured.",
        "Note for the next watch: write down what you saw, and next to it what you think.",
        "Note for the next watch: when two instruments disagree, look at the cables first.",
        "Note for the next watch: a slow drift is found by comparing with last week, not with the last hour.",
        "Note for the next watch: an alarm that rings every day is furniture.",
    ),
    "closing": (
        "Tables sent at {evening}.",
        "The numbers went out by radio at {evening}.",
        "All is written up and put away.",
        "Nothing else to report.",
    ),
    "evening": ("four", "half past four", "five", "six in the evening"),
}  # fmt: skip


def text(num_chars: int = 250_000) -> str:
    """The log book: always the same one, cut after the entry in which it reaches `num_chars` characters.

    Example:
        >>> print(text(400).splitlines()[0])
        Sunday, 1 January. Ascent 1207.
    """
    random = Random(_SEED)
    entries: list[str] = []
    num_written = 0
    while num_written < num_chars:
        entry = _entry(random, len(entries))
        entries.append(entry)
        num_written += len(entry)
    return "".join(entries)


def _entry(random: Random, day: int) -> str:
    month, date = _calendar(day)
    wind = _pick(random, tuple(_WINDS))
    observer = _pick(random, _OBSERVERS)
    facts = {
        "observer": observer,
        "helper": _pick(random, tuple(name for name in _OBSERVERS if name != observer)),
        "wind": wind,
        "drift": _WINDS[wind],
        "ascent": str(1207 + day),
        "time": f"{_between(random, 6, 7)}:{_between(random, 0, 5)}5",
        "pressure": str(_between(random, 985, 1030)),
        "minutes": str(_between(random, 3, 9)),
        "tenths": _pick(random, ("one tenth", "two tenths", "three tenths")),
        "low": f"{_between(random, 3, 9)}00",
        "middle": f"{_between(random, 2, 8)}000",
        "burst": f"{_between(random, 22, 31)}000",
        "far": str(_between(random, 11, 79)),
    }
    facts["sky"] = _expand(random, _SEASONS[(month + 1) // 3 % 4], facts)
    body = " ".join(_expand(random, part, facts) for part, often in _PARTS.items() if random.random() < often)
    heading = f"{_DAYS[(day + 6) % 7]}, {date} {tuple(_MONTHS)[month]}. Ascent {facts['ascent']}."
    return f"{heading}\n{body} Signed, {observer}.\n\n"


def _expand(random: Random, rule: str, facts: Mapping[str, str]) -> str:
    template = _pick(random, _GRAMMAR[rule])
    return _SLOT.sub(lambda slot: facts.get(slot[1]) or _expand(random, slot[1], facts), template)


def _calendar(day: int) -> tuple[int, int]:
    """Number of the month (from 0) and date of the `day`-th day (from 0) of years that all have 365."""
    day %= 365
    for month, num_days in enumerate(_MONTHS.values()):
        if day < num_days:
            return month, day + 1
        day -= num_days
    raise AssertionError("a year has twelve months")


# `Random.random` is the one method whose sequence Python promises to keep, so everything is drawn through it.
def _pick(random: Random, options: Sequence[str]) -> str:
    return options[int(random.random() * len(options))]


def _between(random: Random, low: int, high: int) -> int:
    return low + int(random.random() * (high - low + 1))
