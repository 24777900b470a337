"""Models of plain torch, of kinds that models.py lacks: what the sweep takes besides those of packages."""

import torch
from torch import nn
from torch.nn import functional as F


def _pair(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = _pair(3, 8), _pair(8, 16), _pair(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1, self.head = _pair(32, 16), _pair(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.join2(torch.cat([b, self.up2(self.bottom(F.max_pool2d(b, 2)))], 1))
        return self.head(self.join1(torch.cat([a, self.up1(c)], 1)))


def unet():
    return dict(
        model=UNet(), loss_fn=F.cross_entropy, inputs=torch.randn(2, 3, 16, 16),
        targets=torch.randint(0, 2, (2, 16, 16))
    )


class Gan(nn.Module):
    """Both losses of one step; the generator's through a discriminator with spectral norms."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh()
        )
        self.critic = nn.Sequential(
            norm(nn.Conv2d(1, 8, 4, 2, 1)), nn.LeakyReLU(0.2), nn.InstanceNorm2d(8), nn.Flatten(), nn.Linear(128, 1)
        )

    def forward(self, noise, real):
        fake = self.generator(noise)
        ones = torch.ones(len(real), 1)
        seen = F.binary_cross_entropy_with_logits(self.critic(real), ones)
        caught = F.binary_cross_entropy_with_logits(self.critic(fake.detach()), torch.zeros_like(ones))
        return seen + caught + F.softplus(-self.critic(fake)).mean()


def gan():
    return dict(model=Gan(), loss_fn=None, inputs=(torch.randn(3, 8, 1, 1), torch.randn(3, 1, 8, 8)))


class SpeechCtc(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(8, 16, 3, padding=1)
        self.gru = nn.GRU(16, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 10)

    def forward(self, sounds):
        hidden, _ = self.gru(F.gelu(self.front(sounds)).transpose(1, 2))
        return self.head(hidden).log_softmax(-1)


def speech_ctc():
    lengths = torch.tensor([12, 10])
    return dict(
        model=SpeechCtc(),
        loss_fn=lambda out, targets: F.ctc_loss(out.transpose(0, 1), targets, lengths, torch.tensor([4, 3])),
        inputs=torch.randn(2, 8, 12),
        targets=torch.randint(1, 10, (2, 4)),
    )


class Gcn(nn.Module):
    """Graph convolution, then attention over edges with a softmax by scatter_reduce."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.score = nn.Linear(6, 16), nn.Linear(16, 4), nn.Linear(32, 1)

    def forward(self, x, edges):
        source, target = edges
        count = len(x)
        degree = x.new_zeros(count).index_add(0, target, x.new_ones(len(target))).clamp(min=1)
        norm = (degree[source] * degree[target]).rsqrt()
        h = self.first(x)
        h = F.relu(torch.zeros_like(h).index_add_(0, target, h[source] * norm[:, None]))
        score = F.leaky_relu(self.score(torch.cat([h[source], h[target]], 1)), 0.2).squeeze(1)
        top = torch.full((count,), -1e9).scatter_reduce(0, target, score, "amax")
        weight = (score - top[target]).exp()
        weight = weight / x.new_zeros(count).scatter_add(0, target, weight)[target]
        index = target[:, None].expand(-1, 16)
        return self.second(torch.zeros_like(h).scatter_add(0, index, h[source] * weight[:, None]))


def gcn():
    edges = torch.randint(0, 10, (2, 30))
    return dict(
        model=Gcn(), loss_fn=F.cross_entropy, inputs=(torch.randn(10, 6), edges), targets=torch.randint(0, 4, (10,))
    )


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        weight_norm = nn.utils.parametrizations.weight_norm
        self.start = nn.Conv1d(1, 8, 1)
        self.dilated = nn.ModuleList(weight_norm(nn.Conv1d(8, 16, 2, dilation=2**i)) for i in range(3))
        self.mix, self.out = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3)), nn.Conv1d(8, 20, 1)

    def forward(self, x):
        x, skips = self.start(x), 0
        for i, (dilated, mix) in enumerate(zip(self.dilated, self.mix)):
            a, b = dilated(F.pad(x, (2**i, 0))).chunk(2, 1)
            gated = mix(a.tanh() * b.sigmoid())
            x, skips = x + gated, skips + gated
        return self.out(F.elu(skips))


def wavenet():
    return dict(
        model=WaveNet(), loss_fn=F.cross_entropy, inputs=torch.randn(2, 1, 24), targets=torch.randint(0, 20, (2, 24))
    )


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(20, 16), nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 20))

    def forward(self, x, noise):
        mean, log_variance = self.enter(x).tanh().view(-1, 4, 4).mean(1), self.enter(x)[:, :4]
        posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
        apart = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(1).mean()
        logits = self.leave(mean + posterior.scale * noise)
        return apart - torch.distributions.Bernoulli(logits=logits).log_prob((x > 0).float()).sum(1).mean()


def vae():
    return dict(model=Vae(), loss_fn=None, inputs=(torch.randn(6, 20), torch.randn(6, 4)))


class Warped(nn.Module):
    """A spatial transformer, then a capsule layer with routing."""

    def __init__(self):
        super().__init__()
        self.where, self.features = nn.Linear(256, 6), nn.Conv2d(1, 8, 5, 3)
        self.votes = nn.Parameter(torch.randn(4, 3, 8, 4) * 0.1)

    def forward(self, x):
        theta = self.where(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
        capsules = F.adaptive_avg_pool2d(self.features(x), 2).flatten(2).transpose(1, 2)
        votes = torch.einsum("bic,icjd->bijd", capsules, self.votes.transpose(1, 2))
        logits = torch.zeros(votes.shape[:3])
        for _ in range(2):
            total = (logits.softmax(2)[..., None] * votes).sum(1)
            length = total.norm(dim=-1, keepdim=True)
            total = length / (1 + length**2) * total
            logits = logits + (votes * total[:, None]).sum(-1)
        return total.norm(dim=-1)


def warped():
    return dict(
        model=Warped(),
        loss_fn=lambda out, targets: F.multi_margin_loss(out, targets),
        inputs=torch.randn(3, 1, 16, 16),
        targets=torch.tensor([0, 1, 2]) % 4,
    )


class Recommender(nn.Module):
    """Bags of features, factorization machine, cross layers; sparse tables summed densely."""

    def __init__(self):
        super().__init__()
        self.table, self.bias = nn.EmbeddingBag(50, 8, mode="sum"), nn.Embedding(50, 1)
        self.cross, self.head = nn.Linear(8, 8), nn.Linear(16, 1)

    def forward(self, ids, offsets, dense):
        bags = self.table(ids, offsets)
        crossed = bags * self.cross(bags) + bags
        pairs = 0.5 * ((bags + dense).square() - bags.square() - dense.square())
        return self.head(torch.cat([crossed, pairs], 1)).squeeze(1) + self.bias(ids).mean()


def recommender():
    return dict(
        model=Recommender(),
        loss_fn=F.binary_cross_entropy_with_logits,
        inputs=(torch.randint(0, 50, (12,)), torch.tensor([0, 3, 5, 9]), torch.randn(4, 8)),
        targets=torch.tensor([0.0, 1.0, 1.0, 0.0]),
    )


class Spectral(nn.Module):
    """A Fourier neural operator with complex weights, upsampling and pixel shuffles."""

    def __init__(self):
        super().__init__()
        self.lift, self.weights = nn.Conv2d(1, 8, 1), nn.Parameter(torch.randn(8, 8, 4, 3, dtype=torch.complex64) * 0.1)
        self.down = nn.Sequential(nn.Conv2d(8, 4, 1), nn.PixelShuffle(2),
                                  nn.Upsample(scale_factor=0.5, mode="bilinear"))

    def forward(self, x):
        h = self.lift(x)
        modes = torch.fft.rfft2(h)
        out = torch.zeros_like(modes)
        out[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", modes[:, :, :4, :3], self.weights)
        return self.down(F.gelu(torch.fft.irfft2(out, s=h.shape[-2:]) + h))


def spectral():
    return dict(model=Spectral(), loss_fn=F.l1_loss, inputs=torch.randn(2, 1, 8, 8), targets=torch.randn(2, 1, 8, 8))


class Flow(nn.Module):
    """Coupling layers with masks, and an ODE solved by Runge-Kutta steps."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12)) for _ in range(2))
        self.field = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 6))
        self.register_buffer("mask", (torch.arange(6) % 2).float())

    def forward(self, x):
        log_det = 0
        for i, net in enumerate(self.nets):
            mask = self.mask if i % 2 else 1 - self.mask
            scale, shift = net(x * mask).chunk(2, 1)
            scale = scale.tanh() * (1 - mask)
            x, log_det = x * scale.exp() + shift * (1 - mask), log_det + scale.sum(1)
        for _ in range(2):
            a = self.field(x)
            b = self.field(x + 0.05 * a)
            c = self.field(x + 0.05 * b)
            x = torch.addcmul(x, a + 2 * b + 2 * c, torch.full((), 0.1 / 6)) + 0.1 / 6 * self.field(x + 0.1 * c)
        return 0.5 * x.square().sum(1).mean() - log_det.mean()


def flow():
    return dict(model=Flow(), loss_fn=None, inputs=torch.randn(5, 6), dynamic={"x": {0: "batch"}})


class LoopedExperts(nn.Module):
    """Experts chosen by the sizes that the data gives: rows are gathered, worked on and put back."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, slot = torch.where(chosen == i)
            out.index_add_(0, row, F.silu(expert(x[row])) * weight[row, slot, None])
        return out


def looped_experts():
    return dict(model=LoopedExperts(), loss_fn=lambda out: out.square().sum(), inputs=torch.randn(10, 8))


class Metric(nn.Module):
    """A twin network under several losses of distances and angles."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 16), nn.PReLU(), nn.Dropout(0.0), nn.LayerNorm(16), nn.Linear(16, 4))
        self.centers = nn.Parameter(torch.randn(3, 4))

    def forward(self, a, p, n):
        a, p, n = self.body(a), self.body(p), self.body(n)
        near = torch.cdist(a, self.centers).logsumexp(1).mean()
        angle = F.cosine_embedding_loss(a, n, torch.tensor([1.0, -1.0, 1.0, -1.0]), margin=0.2)
        sure = (F.normalize(a) @ F.normalize(p).T / 0.07).log_softmax(1).diagonal().mean()
        return F.triplet_margin_loss(a, p, n) + near + angle - sure + F.huber_loss(a, p, delta=0.5)


def metric():
    return dict(model=Metric(), loss_fn=None, inputs=tuple(torch.randn(4, 10) for _ in range(3)))


class Decoder(nn.Module):
    """torch's own transformer, encoder and decoder, with masks."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 30)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.body(self.words(source), self.words(target), tgt_mask=mask, src_key_padding_mask=source == 0)
        return self.head(hidden)


def decoder():
    target = torch.randint(1, 30, (2, 6))
    return dict(
        model=Decoder(),
        loss_fn=lambda out, targets: F.cross_entropy(out.flatten(0, 1), targets.flatten(), label_smoothing=0.1),
        inputs=(torch.randint(0, 30, (2, 7)), target),
        targets=target.roll(-1, 1),
    )


class Lengths(nn.Module):
    """An LSTM over packed sequences, with its last states."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(ids), lengths, batch_first=True, enforce_sorted=False)
        out, (last, _) = self.lstm(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return self.head(torch.cat([out.max(1).values, last[0]], 1))


def lengths():
    return dict(
        model=Lengths(),
        loss_fn=F.cross_entropy,
        inputs=(torch.randint(0, 20, (3, 6)), torch.tensor([4, 6, 2])),
        targets=torch.tensor([0, 1, 2]),
    )


class Voxels(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.Hardswish(), nn.MaxPool3d(2), nn.Conv3d(4, 8, 3),
            nn.Mish()
        )
        self.pool, self.head = nn.LPPool2d(2, 2), nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.pool(self.body(x).flatten(1, 2)).flatten(1))


def voxels():
    model = Voxels()
    model(torch.zeros(1, 1, 8, 8, 8))
    return dict(model=model, loss_fn=F.cross_entropy, inputs=torch.randn(2, 1, 8, 8, 8), targets=torch.tensor([0, 2]))


class Quantized(nn.Module):
    """Straight-through rounding, a codebook, an average kept by hand."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave, self.codes = nn.Linear(12, 4), nn.Linear(4, 12), nn.Embedding(8, 4)
        self.register_buffer("usage", torch.zeros(8))

    def forward(self, x):
        h = self.enter(x)
        index = torch.cdist(h, self.codes.weight).argmin(1)
        self.usage.mul_(0.99).add_(torch.bincount(index, minlength=8).float(), alpha=0.01)
        code = self.codes(index)
        rounded = h + (code - h).detach()
        rounded = rounded + ((rounded * 8).round() / 8 - rounded).detach()
        return F.mse_loss(self.leave(rounded), x) + F.mse_loss(code, h.detach()) + 0.25 * F.mse_loss(h, code.detach())


class Float8Product(torch.autograd.Function):
    """x w^T with both in float8, by a scale each; of the gradients, the one of x is a product of float8 too."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return scaled_product(x, w.t(), torch.float8_e4m3fn)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return scaled_product(grad, w, torch.float8_e5m2), grad.t() @ x


def scaled_product(a, b, dtype):
    a, scale_a = in_float8(a, dtype, 1)
    b, scale_b = in_float8(b.t().contiguous(), torch.float8_e4m3fn, 1)
    return torch._scaled_mm(a, b.t(), scale_a, scale_b.t(), out_dtype=torch.bfloat16)


def in_float8(x, dtype, axis):
    """Each row by a scale of its own."""
    most = torch.finfo(dtype).max
    scale = (x.abs().amax(axis, keepdim=True).float() / most).clamp(min=1e-12)
    return (x.float() / scale).clamp(-most, most).to(dtype), scale


class Float8(nn.Module):
    """Rows in float8, as training on GPUs has them; and rows of a table that is kept so."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter((torch.randn(32, 16) / 4).bfloat16())
        self.down = nn.Parameter((torch.randn(16, 32) / 6).bfloat16())
        self.register_buffer("table", torch.randn(9, 16).to(torch.float8_e4m3fn))

    def forward(self, x, rows):
        x = x + F.embedding(rows, self.table).to(x.dtype)
        return Float8Product.apply(F.gelu(Float8Product.apply(x, self.up)), self.down)


def float8():
    inputs = (torch.randn(24, 16, dtype=torch.bfloat16), torch.randint(0, 9, (24,)))
    return dict(model=Float8(), loss_fn=lambda y: y.float().square().mean(), inputs=inputs)


def quantized():
    return dict(model=Quantized(), loss_fn=None, inputs=torch.randn(7, 12))


class Policy(nn.Module):
    """Actor and critic: categorical and Gaussian heads, advantages by a reversed cumulative sum, clipped ratios."""

    def __init__(self):
        super().__init__()
        self.body, self.actor, self.value = nn.Linear(6, 16), nn.Linear(16, 5), nn.Linear(16, 1)
        self.log_deviation = nn.Parameter(torch.zeros(2))

    def forward(self, states, actions, moves, rewards, old):
        h = self.body(states).relu()
        logits, mean = self.actor(h)[:, :3], self.actor(h)[:, 3:]
        which = torch.distributions.Categorical(logits=logits)
        how = torch.distributions.Independent(torch.distributions.Normal(mean, self.log_deviation.exp()), 1)
        returns = rewards.flip(0).cumsum(0).flip(0)
        advantage = returns - self.value(h).squeeze(1)
        ratio = (which.log_prob(actions) + how.log_prob(moves) - old).exp()
        gain = torch.minimum(ratio * advantage.detach(), ratio.clamp(0.8, 1.2) * advantage.detach())
        return advantage.square().mean() - gain.mean() - 0.01 * which.entropy().mean()


def policy():
    inputs = (torch.randn(8, 6), torch.randint(0, 3, (8,)), torch.randn(8, 2), torch.randn(8), torch.randn(8) * 0.1 - 3)
    return dict(model=Policy(), loss_fn=None, inputs=inputs)


PLAIN_MODELS = (
    unet, gan, speech_ctc, gcn, wavenet, vae, warped, recommender, spectral, flow, looped_experts, metric, decoder,
    lengths,
    voxels, float8, quantized, policy,
)  # fmt: skip


def vision_makers():
    """Models of torchvision, small images and random weights, where the package is at hand."""
    try:
        import torchvision
    except ImportError:
        return
    few = {"num_classes": 4, "weights": None}
    sizes = {"inception_v3": 75, "resnet18": 64, "mobilenet_v3_small": 64, "densenet121": 64, "googlenet": 64,
             "shufflenet_v2_x0_5": 64,
             # fmt: skip
             "squeezenet1_1": 64, "mnasnet0_5": 64, "efficientnet_b0": 64, "regnet_y_400mf": 32, "swin_t": 32,
             "convnext_tiny": 32}
    for name, size in sizes.items():
        more = {"init_weights": False, "aux_logits": False} if name in ("inception_v3", "googlenet") else {}

        def make(name=name, size=size, more=more):
            model = getattr(torchvision.models, name)(**few, **more)
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
                if type(module).__name__ == "StochasticDepth":
                    module.p = 0.0
            return dict(model=model, loss_fn=F.cross_entropy, inputs=torch.randn(4, 3, size, size),
                        targets=torch.arange(4))

        yield f"torchvision {name}", make

    def detector():
        """Losses of both stages; all proposals are looked at, as random ones would be PyTorch's alone."""
        every = {"rpn_batch_size_per_image": 40000, "box_batch_size_per_image": 4000}
        make = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn
        boxes = torch.tensor([[10.0, 10, 50, 60], [30, 20, 80, 70]])
        targets = [{"boxes": boxes[i:], "labels": torch.tensor([1, 2])[i:]} for i in range(2)]
        model = make(weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=96, **every)
        return dict(model=model, loss_fn=lambda losses: sum(losses.values()), inputs=([torch.rand(3, 64, 96)] * 2, targets))

    yield "torchvision fasterrcnn", detector
    for name in ("fcn_resnet50", "lraspp_mobilenet_v3_large"):

        def make(name=name):
            model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=3)
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
            return dict(
                model=model,
                loss_fn=lambda out, targets: F.cross_entropy(out["out"], targets),
                inputs=torch.randn(2, 3, 32, 32),
                targets=torch.randint(0, 3, (2, 32, 32)),
            )

        yield f"torchvision {name}", make
