"""Templates in which every value is text."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from fairfox.report.escaping import escaping_environment


def test_values_are_shown_as_text_and_a_name_that_nobody_gave_is_an_error():
    template = escaping_environment().from_string('<p title="{{ name }}">{{ name }}</p>')
    assert template.render(name='"><b>') == '<p title="&#34;&gt;&lt;b&gt;">&#34;&gt;&lt;b&gt;</p>'
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        template.render()
