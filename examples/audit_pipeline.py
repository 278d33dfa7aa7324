"""Audit a scikit-learn Pipeline on a raw table with text columns, and look at one person."""

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fairfox
from fairfox.benchmark.worlds import LENDING

past, new = (LENDING.sample(3000, seed=seed).table.to_pandas() for seed in (0, 1))
features = past.drop(columns=["sex", "approved"])
encode = make_column_transformer((OneHotEncoder(), ["sector", "contract"]), remainder=StandardScaler())
model = make_pipeline(encode, LogisticRegression()).fit(features, past["approved"])

result = fairfox.audit(model, new, protected="sex", label="approved", reference=past)
print(result.summary())

person = result.person(result.people["score"].idxmax())  # the largest effect
print(person)
print(pd.DataFrame({"as they are": new.loc[person.id, features.columns], "in the other group": person.counterfactual}))
