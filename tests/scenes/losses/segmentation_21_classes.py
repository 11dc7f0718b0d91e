"""Cross entropy over 21 classes of every pixel at full resolution: log_softmax over a dimension with a stride."""

import torch


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 21, 1),
        torch.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
    )  # fmt: skip

    def step(i):
        data = torch.Generator().manual_seed(i)
        image = torch.randn(2, 3, 20, 20, generator=data)
        target = torch.randint(21, (2, 40, 40), generator=data)
        target[:, :4] = 255
        return torch.nn.functional.cross_entropy(5 * model(image), target, ignore_index=255)

    return model, step
