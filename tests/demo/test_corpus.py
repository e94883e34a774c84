import re

from sonde.demo import corpus


def test_the_text_is_always_the_same() -> None:
    assert corpus.text(5_000) == corpus.text(5_000)
    assert corpus.text(20_000).startswith(corpus.text(5_000))


def test_the_text_is_as_long_as_asked_and_of_whole_entries() -> None:
    text = corpus.text()
    assert 250_000 <= len(text) < 252_000
    assert text.endswith(".\n\n")


def test_the_alphabet_is_small_and_plain() -> None:
    alphabet = set(corpus.text())
    assert len(alphabet) < 65
    assert all(character == "\n" or " " <= character <= "~" for character in alphabet)
    assert not alphabet & set("{}")


def test_whoever_keeps_the_watch_signs_the_entry_and_balloons_drift_with_the_wind() -> None:
    text = corpus.text()
    entries = text.strip().split("\n\n")
    ascents = [int(re.findall(r"^.*\. Ascent (\d+)\.$", entry, re.MULTILINE)[0]) for entry in entries]
    assert ascents == list(range(ascents[0], ascents[0] + len(entries)))
    watches = re.findall(r"\n(\w+) had the .*Signed, (\w+)\.", text)
    assert len(watches) > 50
    assert all(opened == signed for opened, signed in watches)
    winds = re.findall(r"wind from the ([\w-]+) carried it to the ([\w-]+)\.", text)
    opposite = {"north": "south", "south": "north", "east": "west", "west": "east"}
    assert len(winds) > 50
    assert all("-".join(opposite[word] for word in wind.split("-")) == drift for wind, drift in winds)
