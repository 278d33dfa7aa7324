"""User-facing text is plain English: no private dialect, and sentences of a readable length (see `tests/words.py`)."""

import ast

import words


def test_no_text_has_a_phrase_that_the_style_guide_replaces():
    assert words.phrases() == []


def test_names_are_nouns_that_say_what_they_hold():
    assert words.names() == []


def test_sentences_are_short_on_average_in_every_page_and_room():
    assert {family: mean for family, (_, mean) in words.averages().items() if mean > words.AVERAGE} == {}


def test_every_long_sentence_has_a_reason_and_every_reason_a_sentence():
    long = [(place, sentence) for _, place, sentence in words.long()]
    assert [each for each in long if not words.reason(each[1])] == []
    assert [start for start in words.LONG if not any(sentence.startswith(start) for _, sentence in long)] == []


def test_sentences_end_at_full_stops_and_not_at_abbreviations():
    text = 'One, two, three, four. Five six, e.g. Seven eight (Ding et al. 2021)! "Nine ten eleven twelve."'
    assert words.sentences(text) == [
        "One, two, three, four.",
        "Five six, e.g Seven eight (Ding et al 2021)!",
        '"Nine ten eleven twelve."',
    ]


def test_code_tables_and_headings_of_a_page_are_no_sentences():
    page = "# A title of words\n\n| a | table |\n\nSome `code here` and a [link](x.md).\n\n```sh\nls a b c d\n```\n"
    assert [" ".join(text.split()) for text in words._markdown(page) if text.strip()] == ["Some X and a link."]


def test_values_in_a_message_are_one_word_and_parts_of_a_sum_are_one_text():
    tree = ast.parse('raise ValueError(f"{len(x)} rows for {y} people; " + "give one row each")')
    assert list(words._python(tree)) == [(1, "X rows for X people; give one row each")]
