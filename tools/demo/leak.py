"""A small training that leaks: at every step it keeps a copy of a layer's output, and never lets go of one.

pleat trace record -o leak.trace -- python tools/demo/leak.py
pleat trace summary leak.trace
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
seen = []


def watch(layer, inputs, output):
    # Only its mean is asked for at the end: output.mean() would have been enough.
    seen.append(output.detach().clone())


model[1].register_forward_hook(watch)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    images, labels = torch.randn(512, 256), torch.randint(10, (512,))
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

mean = sum(one.mean().item() for one in seen) / len(seen)
print(f"loss {loss.item():.3f}, mean output of the layer {mean:.3f}")
