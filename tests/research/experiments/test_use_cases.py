"""The paper's two use cases as the examples tell them."""

EXPERIMENT = "use_cases"
NEEDS = ("compas", "german")


def test_both_cases_are_told_in_words_and_numbers(experiment, quick):
    assert quick["not_run"] == {}
    assert all(case["text"] in experiment.show(quick) for case in quick["cases"].values())
    policing, credit = (quick["cases"][name]["found"] for name in ("policing", "credit"))
    assert "the model does not take" in policing["unawareness"]
    assert len(policing["models"]) == 3
    assert credit["agreement"].keys() == {"sex", "age<25"}
    assert credit["through"].keys() <= {"sex=female", "sex=male", "age<25", "not age<25"}
    sections = [make(quick) for make in experiment.SECTIONS.values()]
    assert policing["unawareness"] in sections[0]
    assert f"| accuracy | {credit['models']['without sex and age']['accuracy']:.3f} |" in sections[1]
