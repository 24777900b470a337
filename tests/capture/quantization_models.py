"""Steps of quantization-aware training, by torch.ao.quantization: observers that follow ranges, numbers rounded to places."""

import functools

import torch
from torch import nn
from torch.ao import quantization as ao
from torch.nn import functional as F


class _Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantized, self.floating = ao.QuantStub(), ao.DeQuantStub()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.head = nn.Linear(6 * 49, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(self.quantized(x))))
        return self.floating(self.head(x.flatten(1)))


def _step(qconfig):
    model = _Small().train()
    model.qconfig = qconfig
    ao.prepare_qat(model, inplace=True)
    x = torch.randn(5, 3, 7, 7)
    model(0.7 * x + 0.1)  # its range is not that of the step
    return dict(model=model, loss_fn=F.cross_entropy, inputs=(x,), targets=torch.randint(5, (5,)))


def observed():
    """Ranges, scales, zero points and rounding in one operator; weights by channel."""
    return _step(ao.get_default_qat_qconfig("fbgemm"))


def observed_apart():
    """The same in operators of their own, with switches that are read."""
    return _step(ao.get_default_qat_qconfig("fbgemm", version=0))


def observed_weights_whole():
    return _step(ao.get_default_qat_qconfig("qnnpack"))


def learned_scales():
    from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize

    learned = functools.partial(_LearnableFakeQuantize.with_args, observer=ao.MovingAverageMinMaxObserver)
    weight = learned(quant_min=-128, quant_max=127, scale=0.05, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    return _step(ao.QConfig(activation=learned(quant_min=0, quant_max=255, scale=0.1, use_grad_scaling=True), weight=weight))


QUANTIZATION_MODELS = (observed, observed_apart, observed_weights_whole, learned_scales)
