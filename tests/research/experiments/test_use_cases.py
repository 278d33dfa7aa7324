"""The paper's two use cases as the examples tell them."""

EXPERIMENT = "use_cases"


def test_both_cases_are_told_in_words_and_numbers(experiment, quick_run, need):
    need("compas", "german")
    found = quick_run(experiment.EXPERIMENT)
    assert found["not_run"] == {}
    assert all(case["text"] in experiment.show(found) for case in found["cases"].values())
    policing, credit = (found["cases"][name]["found"] for name in ("policing", "credit"))
    assert "the model does not take" in policing["unawareness"]
    assert len(policing["models"]) == 3
    assert credit["agreement"].keys() == {"sex", "age<25"}
    assert credit["through"].keys() <= {"sex=female", "sex=male", "age<25", "not age<25"}
    sections = [make(found) for make in experiment.SECTIONS.values()]
    assert policing["unawareness"] in sections[0]
    assert f"| accuracy | {credit['models']['without sex and age']['accuracy']:.3f} |" in sections[1]
