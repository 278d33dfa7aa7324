"""Networks that see their inputs through a fixed projection."""

import torch
from torch import Tensor, nn


def behind(projection: Tensor, net: nn.Sequential) -> nn.Sequential:
    """Return the network on x (N, D) that equals `net` on x @ projection (D, P): a plain network, Linear first.

    Both linear layers become one: columns that the projection leaves out have the weight zero.
    """
    first = net[0]
    assert isinstance(first, nn.Linear)
    assert first.bias is not None
    # skip_init: initial weights would be drawn from the global generator
    merged = nn.utils.skip_init(
        nn.Linear, len(projection), first.out_features, device=first.weight.device, dtype=first.weight.dtype
    )
    with torch.no_grad():
        merged.weight.copy_(first.weight.double() @ projection.to(first.weight.device, torch.float64).T)
        merged.bias.copy_(first.bias)
    return nn.Sequential(merged, *list(net)[1:]).eval()
