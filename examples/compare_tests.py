"""Ask several fairness tests about one torch model, and compare them with the truth of generated people."""

import torch
from torch import nn

from fairfox import make_test
from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.benchmark.judge import spearman
from fairfox.benchmark.worlds import LENDING
from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.models.protocol import predict
from fairfox.models.torch import TorchModel

people = LENDING.sample(3000, seed=0)
encoding = fit_encoding(load_table(people.table), protected=["sex"], label="approved")
data, others = encoding.encode(load_table(people.table)), encoding.encode(load_table(people.counterfactual))

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(data.x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(net(data.x)[:, 0], data.y.float()).backward()
    optimizer.step()

model = TorchModel(nn.Sequential(net, nn.Sigmoid()))
truth = (predict(model, data.x) - predict(model, others.x)).abs()
trained = AuxiliaryModel(refits=2).fit(data)
auxiliary = FixedAuxiliary(trained.members, trained.held_out)  # shared by all tests
for name in ("rank", "move", "faux", "faux+ng", "fta"):
    scores = make_test(name, auxiliary=auxiliary, refits=2).fit(data).score(model, data)
    print(f"{name:8}  rank correlation with the truth: {spearman(scores, truth):5.2f}")
