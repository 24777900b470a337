"""Loss heads whose loss is more than one cross entropy: what sg-chunk --auto meets outside of plain language models.

Each function of LOSSES takes the hidden states [batch, length, width] of a Head and its batch, and returns a loss, or
several values of which the first is the loss.
"""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, VOCABULARY = 3, 8, 6, 40


class Head(nn.Module):
    """A small trunk, a head of many classes, and what the losses ask for beside it."""

    def __init__(self, loss):
        super().__init__()
        self.trunk = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.second = nn.Linear(WIDTH, VOCABULARY)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("class_weight", torch.linspace(0.5, 1.5, VOCABULARY))
        self.loss = loss

    def forward(self, x, labels, soft):
        return self.loss(self, torch.tanh(self.trunk(x)), labels, soft)


def _flat(logits, labels):
    return logits.flatten(0, -2), labels.flatten()


def plain(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels))


def chunked_by_pytorch(m, h, labels, soft):
    """PyTorch's own chunks, where it has them: one call for loss and gradients, whose parts are chunked again."""
    if not hasattr(F, "linear_cross_entropy"):
        return plain(m, h, labels, soft)
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    options = LinearCrossEntropyOptions(batch_chunk_size=5)
    at = labels.flatten().masked_fill(labels.flatten() % 7 == 0, -100)
    return F.linear_cross_entropy(h.flatten(0, 1), m.second.weight, at, linear_bias=m.second.bias, options=options)


def label_smoothing(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels), label_smoothing=0.1)


def weighted_smoothing(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels), weight=m.class_weight, label_smoothing=0.1)


def z_loss(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    return F.cross_entropy(logits, at) + 1e-2 * torch.logsumexp(logits, -1).square().mean()


def z_loss_of_counted_rows(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    counted = at != -100
    z = torch.where(counted, torch.logsumexp(logits, -1).square(), 0.0).sum() / counted.sum()
    return F.cross_entropy(logits, at) + 1e-2 * z


def two_losses(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    return F.cross_entropy(logits, at) + 0.3 * F.mse_loss(logits.softmax(-1), soft.flatten(0, -2))


def two_heads(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels)) + 0.5 * F.cross_entropy(*_flat(m.second(h), labels.roll(1, 1)))


def two_heads_shifted(m, h, labels, soft):
    """Tokens ahead: the second head has fewer rows."""
    return F.cross_entropy(*_flat(m.head(h), labels)) + 0.5 * F.cross_entropy(
        *_flat(m.second(h[:, :-1]), labels[:, 1:])
    )


def one_head_twice(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels)) + 0.5 * F.cross_entropy(*_flat(m.head(h.square()), labels))


def shifted(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h)[:, :-1], labels[:, 1:]))


def shifted_and_padded(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), F.pad(labels[:, 1:], (0, 1), value=-100)))


def distillation(m, h, labels, soft):
    """A second head teaches the first."""
    student, at = _flat(m.head(h), labels)
    teacher = m.second(h.detach()).flatten(0, -2)
    kl = F.kl_div(
        F.log_softmax(student / 2, -1), F.log_softmax(teacher / 2, -1), log_target=True, reduction="batchmean"
    )
    return F.cross_entropy(student, at) + 4 * kl


def kl_of_given(m, h, labels, soft):
    return F.kl_div(F.log_softmax(m.head(h), -1), soft, reduction="batchmean")


def kl_mean(m, h, labels, soft):
    return F.kl_div(F.log_softmax(m.head(h), -1), soft)


def soft_labels(m, h, labels, soft):
    return F.cross_entropy(m.head(h).flatten(0, -2), soft.flatten(0, -2))


def soft_labels_smoothed(m, h, labels, soft):
    return F.cross_entropy(m.head(h).flatten(0, -2), soft.flatten(0, -2), weight=m.class_weight, label_smoothing=0.2)


def focal(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    nll = F.cross_entropy(logits, at, reduction="none")
    return ((1 - torch.exp(-nll)) ** 2 * nll).mean()


def focal_by_gather(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels.clamp(min=0))
    p = logits.softmax(-1).gather(1, at[:, None]).squeeze(1)
    return (-((1 - p) ** 1.5) * p.log()).sum() / at.numel()


def mse(m, h, labels, soft):
    return F.mse_loss(m.head(h), soft)


def huber(m, h, labels, soft):
    return F.huber_loss(m.head(h), soft, delta=0.3)


def many_yes_or_no(m, h, labels, soft):
    return F.binary_cross_entropy_with_logits(m.head(h), soft)


def weighted_yes_or_no(m, h, labels, soft):
    return F.binary_cross_entropy_with_logits(m.head(h), soft, pos_weight=m.class_weight)


def margin(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels.clamp(min=0))
    return F.multi_margin_loss(logits, at)


def entropy_bonus(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    log = logits.log_softmax(-1)
    return F.nll_loss(log, at) - 0.01 * -(log.exp() * log).sum(-1).mean()


def soft_cap(m, h, labels, soft):
    logits, at = _flat(torch.tanh(m.head(h) / 5) * 5, labels)
    return F.cross_entropy(logits, at)


def temperature(m, h, labels, soft):
    """A parameter of one number, whose gradient sums over everything."""
    return F.cross_entropy(*_flat(m.head(h) * m.scale.exp(), labels))


def weights_of_tokens(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    nll = F.cross_entropy(logits, at, reduction="none")
    weight = soft[..., 0].flatten()
    return (nll * weight).sum() / weight.sum()


def mean_of_sequences(m, h, labels, soft):
    """A mean over each sequence, then over sequences."""
    nll = F.cross_entropy(m.head(h).transpose(1, 2), labels, reduction="none")
    return (nll.sum(1) / (labels != -100).sum(1)).mean()


def policy_gradient(m, h, labels, soft):
    """Clipped ratios against old log-probabilities, as of reinforcement learning."""
    log = m.head(h).log_softmax(-1).gather(2, labels.clamp(min=0)[..., None]).squeeze(-1)
    ratio = torch.exp(log - soft[..., 0].log())
    gain = soft[..., 1] - soft[..., 1].mean()
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def preference(m, h, labels, soft):
    """Sums over whole sequences, and what is between two of them."""
    log = m.head(h).log_softmax(-1).gather(2, labels.clamp(min=0)[..., None]).squeeze(-1).sum(1)
    return -F.logsigmoid(0.1 * (log[0] - log[1]))


def square_of_the_loss(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels)).square()


def perplexity(m, h, labels, soft):
    return F.cross_entropy(*_flat(m.head(h), labels)).exp()


def loss_and_accuracy(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    right = (logits.argmax(-1) == at).float().mean()
    return F.cross_entropy(logits, at), right


def loss_and_largest(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    return F.cross_entropy(logits, at), {"largest": logits.detach().abs().max(), "spread": logits.detach().std()}


def over_all_tokens(m, h, labels, soft):
    """A softmax over the tokens: no row is of its own."""
    return -(m.head(h).flatten(0, -2).log_softmax(0) * soft.flatten(0, -2)).mean()


def batch_norm_of_logits(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels)
    return F.cross_entropy((logits - logits.mean(0)) / (logits.var(0) + 1e-3).sqrt(), at)


def between_rows(m, h, labels, soft):
    """Each row against the next."""
    logits, at = _flat(m.head(h), labels)
    return F.cross_entropy(logits, at) + 0.1 * (logits[1:] - logits[:-1]).square().mean()


def half_precision(m, h, labels, soft):
    logits = F.linear(h.bfloat16(), m.head.weight.bfloat16())
    return F.cross_entropy(*_flat(logits.float(), labels))


def of_images(m, h, labels, soft):
    """Classes on axis 1, as of segmentation."""
    return F.cross_entropy(m.head(h).permute(0, 2, 1), labels)


def by_row_number(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels.clamp(min=0))
    return -logits.log_softmax(-1)[torch.arange(at.numel()), at].mean()


def by_row_number_from_the_end(m, h, labels, soft):
    logits, at = _flat(m.head(h), labels.clamp(min=0))
    return -logits.log_softmax(-1)[torch.arange(at.numel()), at - VOCABULARY].mean()


def weighted_images(m, h, labels, soft):
    return F.cross_entropy(m.head(h).permute(0, 2, 1), labels, weight=m.class_weight, reduction="sum")


def cumulative(m, h, labels, soft):
    log = m.head(h).log_softmax(-1).gather(2, labels.clamp(min=0)[..., None]).squeeze(-1)
    return -log.cumsum(1).mean()


LOSSES = [f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", None) == __name__]
LOSSES = [f for f in LOSSES if not isinstance(f, type) and not f.__name__.startswith("_")]
