import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.tags import Tag, check_tag, clean_name, parse_tag

words = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,8}", fullmatch=True)
paths = st.lists(words, min_size=1, max_size=4).map("/".join)
places = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=40
)  # printable, "@" and "/" included


@given(paths, st.none() | places)
def test_a_tag_survives_being_printed_and_parsed(path: str, where: str | None) -> None:
    tag = Tag(path, where)
    assert parse_tag(str(tag)) == tag
    check_tag(str(tag))


@given(st.text(max_size=30) | st.text("ab/@.-+_ \n", max_size=12))
def test_the_fast_check_agrees_with_the_parser_on_any_text(text: str) -> None:
    def verdict(judge: object) -> str:
        try:
            judge(text)  # type: ignore[operator]
        except FormatError as error:
            return str(error)
        return "accepted"

    assert verdict(check_tag) == verdict(parse_tag)


@given(st.text(max_size=30))
def test_a_text_that_parses_prints_as_it_was(text: str) -> None:
    try:
        tag = parse_tag(text)
    except FormatError:
        return
    assert str(tag) == text


def test_everything_behind_the_first_at_sign_is_the_place() -> None:
    assert parse_tag("grad/norm@a@b/c d") == Tag("grad/norm", "a@b/c d")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must begin with words"),
        ("@layer", "must begin with words"),
        ("grad//norm", "got the path 'grad//norm'"),
        ("grad/", "must begin with words"),
        ("/grad", "must begin with words"),
        ("grad norm", "must begin with words"),
        ("loss\n", "must begin with words"),
        ("-loss", "must begin with words"),
        ("größe", "must begin with words"),
        ("loss@", "ends in '@'"),
        ("loss@a\nb", "control character"),
        ("loss@a\x00", "control character"),
        ("loss@a\u2028b", "control character"),
        ("loss@\ud800", "control character"),
        ("loss@" + "x" * 1020, "1025 characters; at most 1024"),
    ],
)
def test_a_text_that_is_no_tag_is_refused_with_the_reason(text: str, complaint: str) -> None:
    for judge in (parse_tag, check_tag):
        with pytest.raises(FormatError, match=complaint):
            judge(text)


def test_a_tag_may_have_just_as_many_characters_as_allowed() -> None:
    check_tag("loss@" + "x" * 1019)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("blocks.0.attn.weight", "blocks.0.attn.weight"),
        ("_orig_mod.head.bias", "head.bias"),
        ("module.head.bias", "head.bias"),
        ("module._orig_mod.module.head.bias", "head.bias"),
        ("_fsdp_wrapped_module.blocks.0._checkpoint_wrapped_module.up.weight", "blocks.0.up.weight"),
        ("_forward_module.up.weight", "up.weight"),
        ("modules.submodule.weight", "modules.submodule.weight"),
        ("module", "module"),
        ("", ""),
    ],
)
def test_names_lose_what_wrappers_inserted_and_nothing_else(name: str, clean: str) -> None:
    assert clean_name(name) == clean


@given(st.lists(st.sampled_from(["_orig_mod", "module", "a", "b", "_forward_module"]), max_size=6).map(".".join))
def test_cleaning_a_clean_name_changes_nothing(name: str) -> None:
    assert clean_name(clean_name(name)) == clean_name(name)
