"""Steps in the styles of papers and of training code: updates by hand, packed documents, sparse and linear attention, quantised weights, filters,
world models, renderers, vocoders. Sizes are odd ones."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class _Fn(nn.Module):
    """`fn(self, *inputs)` is the loss; `parts` are modules, parameters and buffers of its own."""

    def __init__(self, fn, parts):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, (nn.Module, nn.Parameter)):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)
        self.fn = fn

    def forward(self, *inputs):
        return self.fn(self, *inputs)


def _step(fn, *inputs, **parts):
    return dict(model=_Fn(fn, parts), loss_fn=None, inputs=inputs)


def _weights(*shape):
    return nn.Parameter(torch.randn(shape) * 0.3)


def _next_tokens(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


# Updates in the step

class _Moments(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 13), nn.SELU(), nn.Linear(13, 5))
        self.register_buffer("time", torch.zeros((), dtype=torch.int64))
        for name, parameter in self.body.named_parameters():
            self.register_buffer(f"mean_{name.replace('.', '_')}", torch.zeros_like(parameter))
            self.register_buffer(f"curve_{name.replace('.', '_')}", torch.zeros_like(parameter))

    def of(self, kind, name):
        return self.get_buffer(f"{kind}_{name.replace('.', '_')}")


def lion():
    model = _Moments()

    def train(x, y):
        loss = F.smooth_l1_loss(model.body(x), y)
        loss.backward()
        with torch.no_grad():
            for name, p in model.body.named_parameters():
                mean = model.of("mean", name)
                p.mul_(1 - 1e-4).add_(torch.sign(mean * 0.9 + p.grad * 0.1), alpha=-1e-3)
                mean.lerp_(p.grad, 0.01)
        return loss

    return dict(model=model, train_step=train, inputs={"x": torch.randn(9, 7), "y": torch.randn(9, 5)})


def sophia():
    """The Hessian's diagonal by products with signs, through a second backward."""
    model = _Moments()

    def train(x, y, signs):
        loss = F.mse_loss(model.body(x), y)
        parameters = list(model.body.parameters())
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        along = sum((g * signs[: g.numel()].view_as(g)).sum() for g in grads)
        curves = torch.autograd.grad(along, parameters)
        with torch.no_grad():
            model.time += 1
            for (name, p), g, h in zip(model.body.named_parameters(), grads, curves):
                mean, curve = model.of("mean", name), model.of("curve", name)
                mean.mul_(0.96).add_(g, alpha=0.04)
                curve.mul_(0.99).add_(signs[: h.numel()].view_as(h) * h, alpha=0.01)
                p.grad = g.detach().clone()
                p.sub_((mean / curve.clamp_min(1e-4)).clamp_(-1, 1) / (1 - 0.96**model.time) * 1e-2)
        return loss.detach()

    signs = torch.randint(0, 2, (91,)).float() * 2 - 1
    return dict(model=model, train_step=train, inputs={"x": torch.randn(9, 7), "y": torch.randn(9, 5), "signs": signs})


class _Moco(nn.Module):
    """A queue of keys as a ring, and a second network that follows the first."""

    def __init__(self):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 9))  # noqa: E731
        self.queries, self.keys = make(), make().requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(9, 25), dim=0))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, a, b):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.keys.parameters()), list(self.queries.parameters()), 0.01)
            k = F.normalize(self.keys(b), dim=1)
        q = F.normalize(self.queries(a), dim=1)
        scores = torch.cat([torch.einsum("nc,nc->n", q, k)[:, None], q @ self.queue.clone()], 1) / 0.07
        with torch.no_grad():
            self.queue.index_copy_(1, (self.at + torch.arange(5)) % 25, k.T)
            self.at.copy_((self.at + 5) % 25)
        return F.cross_entropy(scores, torch.zeros(5, dtype=torch.long))


def moco():
    return dict(model=_Moco(), loss_fn=None, inputs=(torch.randn(5, 12), torch.randn(5, 12)))


# Sequences

class _Packed(nn.Module):
    """Documents end to end: who sees whom, and places for the rotation, follow from where they begin."""

    def __init__(self, width=30, heads=3):
        super().__init__()
        self.heads, self.words, self.norm = heads, nn.Embedding(53, width), nn.RMSNorm(width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 53)

    def forward(self, ids, begins):
        n = ids.shape[0]
        at = torch.arange(n)
        document = torch.bucketize(at, begins[1:], right=True)
        x = self.words(ids)
        q, k, v = self.qkv(self.norm(x)).view(n, 3, self.heads, -1).permute(1, 2, 0, 3)
        angle = torch.outer((at - begins[document]).float(), 1e4 ** (-torch.arange(5).float() / 5))
        turn = torch.polar(torch.ones_like(angle), angle)
        turned = lambda t: torch.view_as_real(torch.view_as_complex(t.unflatten(2, (5, 2))) * turn).flatten(2)  # noqa: E731
        seen = (document[:, None] == document) & (at[:, None] >= at)
        y = F.scaled_dot_product_attention(turned(q)[None], turned(k)[None], v[None], attn_mask=seen)
        return self.head(x + self.out(y[0].transpose(0, 1).reshape(n, -1)))


def packed_documents():
    ids = torch.randint(0, 53, (23,))
    return dict(model=_Packed(), loss_fn=_next_tokens, inputs={"ids": ids, "begins": torch.tensor([0, 5, 6, 17, 23])}, targets=ids.roll(-1),
                dynamic={"ids": {0: "tokens"}, "targets": {0: "tokens"}})


class _OfPieces(nn.Module):
    """Users' histories of unlike lengths as nested tensors: attention within each, and what is liked next beside each item."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.items, self.when, self.heads = nn.Embedding(37, width), nn.Linear(1, width), heads
        self.norm, self.qkv, self.out, self.user = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, items, times):
        x = self.items(items) + self.when(times.unsqueeze(-1))
        q, k, v = (t.unflatten(-1, [self.heads, -1]).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        users = self.user(torch.nested.to_padded_tensor(x, -100.0).amax(1))
        return (x * users.unsqueeze(1)).values() @ self.items.weight.T


def histories():
    items = torch.nested.nested_tensor([torch.randint(0, 37, (n,)) for n in (5, 1, 8, 3)], layout=torch.jagged)
    times = torch.nested.nested_tensor_from_jagged(torch.rand(17), items.offsets())
    return dict(model=_OfPieces(), loss_fn=F.cross_entropy, inputs={"items": items, "times": times}, targets=items.values().roll(-1))


class _Differential(nn.Module):
    """Two softmaxes, one taken from the other, on unit vectors; a selective checkpoint keeps the products."""

    def __init__(self, width=24):
        super().__init__()
        self.words, self.head = nn.Embedding(43, width), nn.Linear(width, 43, bias=False)
        self.qk, self.v, self.o = nn.Linear(width, 4 * width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.mix, self.norm = nn.Parameter(torch.randn(4, 12) * 0.1), nn.RMSNorm(width, elementwise_affine=False)

    def block(self, x):
        rows, n, width = x.shape
        q, k = self.qk(x).view(rows, n, 2, 4, width // 2).permute(2, 0, 3, 1, 4)
        v = self.v(x).view(rows, n, 2, width).transpose(1, 2)
        scores = q @ k.mT * 12**-0.5 + torch.full((n, n), -torch.inf).triu(1)
        p = scores.softmax(-1, dtype=torch.float32).type_as(scores).view(rows, 2, 2, n, n)
        less = (self.mix[0] * self.mix[1]).sum().exp() - (self.mix[2] * self.mix[3]).sum().exp() + 0.2
        y = self.norm((p[:, :, 0] - less * p[:, :, 1]) @ v).transpose(1, 2).flatten(2)
        return F.normalize(x + 0.1 * (F.normalize(self.o(y), dim=-1) - x), dim=-1)

    def forward(self, ids):
        products = (torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)

        def policy(_, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE

        x = F.normalize(self.words(ids), dim=-1)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return self.head(x)


def differential_attention():
    ids = torch.randint(0, 43, (3, 9))
    return dict(model=_Differential(), loss_fn=_next_tokens, inputs={"ids": ids}, targets=ids.roll(-1, 1))


class _Delta(nn.Module):
    """The delta rule in chunks: the inverse of a unit triangle row by row, in place."""

    def __init__(self, width=22, chunk=5):
        super().__init__()
        self.chunk, self.qkv, self.beta, self.out = chunk, nn.Linear(width, 3 * width), nn.Linear(width, 1), nn.Linear(width, width)

    def forward(self, x):
        c = self.chunk
        q, k, v = F.silu(self.qkv(x)).chunk(3, -1)
        q, k, beta = F.normalize(q, dim=-1), F.normalize(k, dim=-1), self.beta(x).sigmoid()
        q, k, v, kb, vb = (t.unflatten(1, (-1, c)) for t in (q, k, v, k * beta, v * beta))
        t = -(kb @ k.mT).masked_fill(torch.ones(c, c, dtype=torch.bool).triu(), 0)
        for i in range(1, c):
            t[..., i, :i] = t[..., i, :i].clone() + (t[..., i, :, None].clone() * t[..., :, :i].clone()).sum(-2)
        t = t + torch.eye(c)
        w, u = t @ kb, t @ vb
        state, out = x.new_zeros(x.shape[0], x.shape[2], x.shape[2]), torch.zeros_like(v)
        for i in range(q.shape[1]):
            fresh = u[:, i] - w[:, i] @ state
            out[:, i] = q[:, i] @ state + (q[:, i] @ k[:, i].mT).tril() @ fresh
            state = state + k[:, i].mT @ fresh
        return self.out(out.flatten(1, 2))


def delta_rule():
    return dict(model=_Delta(), loss_fn=F.mse_loss, inputs=torch.randn(3, 15, 22), targets=torch.randn(3, 15, 22))


class _Scan(nn.Module):
    """A recurrence as sums of logarithms, under autocast; its target is wider than what it gives."""

    def __init__(self):
        super().__init__()
        self.both, self.out = nn.Linear(11, 34), nn.Linear(17, 11)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h, gate = self.both(x).chunk(2, -1)
            keep, take = (-F.softplus(gate)).cumsum(1), -F.softplus(-gate)
            inside = torch.where(h >= 0, (F.relu(h) + 0.5).log(), -F.softplus(-h))
            return self.out((keep + (take + inside - keep).float().logcumsumexp(1)).exp())


def scan_in_logarithms():
    return dict(model=_Scan(), loss_fn=F.mse_loss, inputs=torch.randn(3, 14, 11), targets=torch.randn(3, 14, 11))


class _Adaptive(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn = nn.Embedding(60, 16), nn.RNN(16, 16, nonlinearity="relu", batch_first=True)
        self.out = nn.AdaptiveLogSoftmaxWithLoss(16, 60, [10, 25], div_value=2.0)

    def forward(self, ids, targets):
        return self.out(self.rnn(self.words(ids))[0].flatten(0, 1), targets.flatten()).loss


def adaptive_softmax():
    return dict(model=_Adaptive(), loss_fn=None, inputs=(torch.randint(0, 60, (3, 8)), torch.randint(0, 60, (3, 8))))


# Narrow weights, and experts that are full

class _Bytes(nn.Module):
    """Products of bytes with a scale each row, straight through; below them four bits a weight by a table, and what is learned beside it."""

    def __init__(self):
        super().__init__()
        self.w, self.head = nn.Parameter(torch.randn(24, 20) / 5), nn.Linear(24, 8)
        self.register_buffer("nibbles", torch.randint(0, 256, (200,), dtype=torch.uint8))
        self.register_buffer("scales", torch.randint(1, 127, (20,), dtype=torch.int8))
        self.register_buffer("table", torch.linspace(-1, 1, 16))
        self.down, self.up = nn.Parameter(torch.randn(3, 20) * 0.1), nn.Parameter(torch.randn(20, 3) * 0.1)

    def forward(self, x):
        codes = torch.stack([self.nibbles >> 4, self.nibbles & 0xF], 1).flatten().int()
        frozen = (self.table[codes].view(-1, 20) * self.scales[:, None] / 127).view(20, 20)
        x = x + F.linear(x, frozen) + F.linear(F.linear(x, self.down), self.up)
        by_row, by_column = (t.detach().abs().amax(1, keepdim=True) / 127 for t in (x, self.w))
        a, b = ((t.detach() / s).round().to(torch.int8) for t, s in ((x, by_row), (self.w, by_column)))
        near, exact = torch._int_mm(a, b.t()).float() * by_row * by_column.t(), x @ self.w.t()
        return self.head((exact + (near - exact).detach()).relu())


def bytes_and_nibbles():
    return dict(model=_Bytes(), loss_fn=F.cross_entropy, inputs=torch.randn(34, 20), targets=torch.randint(0, 8, (34,)))


class _Capacity(nn.Module):
    """Experts with room for so many rows; the rest goes past them. How many follows from the batch, through a fraction."""

    def __init__(self, width=18, experts=5):
        super().__init__()
        self.experts, self.gate, self.head = experts, nn.Linear(width, experts, bias=False), nn.Linear(width, 11)
        self.up, self.down = _weights(experts, width, 28), _weights(experts, 28, width)

    def forward(self, x):
        room = math.ceil(1.25 * x.shape[0] / self.experts)
        logits = self.gate(x)
        p = logits.softmax(-1)
        weight, which = p.max(-1)
        hot = F.one_hot(which, self.experts)
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        at = torch.where(place < room, which * room + place, self.experts * room)
        slots = torch.zeros(self.experts * room + 1, x.shape[1]).index_copy(0, at, x)[:-1]
        y = torch.bmm(F.gelu(torch.bmm(slots.view(self.experts, room, -1), self.up)), self.down).flatten(0, 1)
        out = torch.cat([y, y.new_zeros(1, y.shape[1])])[at] * weight[:, None]
        even = self.experts * (p.mean(0) * hot.float().mean(0)).sum()
        return self.head(x + out), 0.01 * even + 1e-3 * logits.logsumexp(-1).square().mean()


def full_experts():
    return dict(model=_Capacity(), loss_fn=lambda out, t: F.cross_entropy(out[0], t) + out[1], inputs={"x": torch.randn(34, 18)},
                targets=torch.randint(0, 11, (34,)), dynamic={"x": {0: "rows"}, "targets": {0: "rows"}})


# Of other fields

def particle_filter():
    """Resampling by where a running sum passes; the gradient by soft weights."""
    def loss(m, seen, noise, where):
        x, total = noise[0], 0.0
        weight = torch.full((17,), -math.log(17))
        for t in range(seen.shape[0]):
            x = m.net(x) + m.spread.exp() * noise[t + 1]
            weight = weight + torch.distributions.Normal(x[:, 0], m.error.exp()).log_prob(seen[t])
            total, p = total + weight.logsumexp(0), weight.softmax(0)
            soft = 0.5 * p + 0.5 / 17
            i = torch.searchsorted(soft.detach().cumsum(0), (torch.arange(17) + where[t]) / 17).clamp_max(16)
            x, weight = x[i], (p[i] / soft[i]).log()
            weight = weight - weight.logsumexp(0)
        return -total

    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    return _step(loss, torch.randn(5), torch.randn(6, 17, 2), torch.rand(5), net=net, spread=_weights(2), error=_weights())


def transducer():
    """All paths through a lattice of frames and labels, row by row."""
    def loss(m, audio, text):
        rows, frames, labels = *audio.shape[:2], text.shape[1]
        joint = m.out(torch.tanh(m.listen(audio)[0][:, :, None] + m.words(F.pad(text, (1, 0)))[:, None])).log_softmax(-1)
        blank, label = joint[..., 0], joint[:, :, :labels].gather(3, text[:, None, :, None].expand(rows, frames, -1, 1))[..., 0]
        alpha = F.pad(label[:, 0].cumsum(1), (1, 0))
        for t in range(1, frames):
            stay = alpha + blank[:, t - 1]
            row = [stay[:, 0]]
            for u in range(labels):
                row.append(torch.logaddexp(stay[:, u + 1], row[-1] + label[:, t, u]))
            alpha = torch.stack(row, 1)
        return -(alpha[:, -1] + blank[:, -1, -1]).mean()

    return _step(loss, torch.randn(2, 5, 6), torch.randint(1, 9, (2, 3)), listen=nn.GRU(6, 10, batch_first=True), words=nn.Embedding(9, 10), out=nn.Linear(10, 9))


def vocoder():
    """A wave from magnitudes and phases, and how far its spectra are from another's."""
    def loss(m, mel, wave):
        size, phase = m.net(mel).split(17, 1)
        y = torch.istft(torch.polar(size.exp().clamp(max=1e2), phase), 32, 8, window=m.window, center=True)
        total = F.l1_loss(y, wave)
        for n, hop in ((16, 5), (32, 11)):
            a, b = (torch.stft(t, n, hop, window=torch.hann_window(n), return_complex=True).abs().clamp(min=1e-5) for t in (y, wave))
            total = total + torch.linalg.matrix_norm(b - a).mean() / torch.linalg.matrix_norm(b).mean() + (a.log() - b.log()).abs().mean()
        return total

    return _step(loss, torch.randn(2, 5, 9), torch.randn(2, 64), net=nn.Conv1d(5, 34, 3, padding=1), window=torch.hann_window(32))


def splats():
    """Gaussians in the plane, by depth, one over the other; blurred windows of the picture against those of the target."""
    def loss(m, target):
        y, x = torch.meshgrid(torch.arange(11.0), torch.arange(13.0), indexing="ij")
        c, s = m.turn.cos(), m.turn.sin()
        axes = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2) * m.size.exp()[:, None]
        inverse = torch.linalg.inv(axes @ axes.mT + 0.3 * torch.eye(2))
        off = torch.stack([x, y], -1) - m.place[:, None, None] * 4 - 6
        order = m.depth.argsort()
        a = (m.opacity.sigmoid()[:, None, None] * torch.exp(-0.5 * torch.einsum("ghwi,gij,ghwj->ghw", off, inverse, off)))[order].clamp_max(0.99)
        seen = torch.cat([torch.ones_like(a[:1]), torch.cumprod(1 - a, 0)[:-1]])
        picture = torch.einsum("ghw,gc->chw", a * seen, m.color.sigmoid()[order])
        k = torch.exp(-(torch.arange(5.0) - 2).square() / 2)
        blur = lambda z: F.conv2d(z[None], k.outer(k).expand(3, 1, 5, 5) / k.sum() ** 2, padding=2, groups=3)[0]  # noqa: E731
        mu, nu = blur(picture), blur(target)
        both = blur(picture * target) - mu * nu
        alike = (2 * mu * nu + 1e-4) * (2 * both + 9e-4) / ((mu * mu + nu * nu + 1e-4) * (blur(picture**2) - mu * mu + blur(target**2) - nu * nu + 9e-4))
        return 0.8 * (picture - target).abs().mean() + 0.2 * (1 - alike.mean())

    return _step(loss, torch.rand(3, 11, 13), place=_weights(9, 2), size=_weights(9, 2), turn=_weights(9), opacity=_weights(9), color=_weights(9, 3),
                 depth=torch.randn(9))


STYLE_MODELS = (
    lion, sophia, moco, packed_documents, histories, differential_attention, delta_rule, scan_in_logarithms, adaptive_softmax, bytes_and_nibbles, full_experts,
    particle_filter, transducer, vocoder, splats,
)  # fmt: skip
