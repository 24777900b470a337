"""Small models of many kinds, with random weights: what the capture tests are made of.

Each function returns the arguments of stepgraph_capture.capture(); those in HUB_MODELS need the transformers package.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def _tokens(vocabulary, *shape):
    return torch.randint(0, vocabulary, shape)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


# Of torch alone


class Mlp(nn.Module):
    """Tied, frozen and unused parameters, buffers written in place and assigned anew, constants, Python arguments."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 16)
        self.hidden = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.table.weight
        self.unused = nn.Parameter(torch.zeros(3))
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(16))
        self.plain = torch.linspace(0.5, 1.5, 16)  # neither parameter nor buffer: a constant of the graph

    def forward(self, ids, scale, *, mask=None, cap=None):
        x = self.table(ids) * scale
        x = F.relu(self.norm(self.hidden(x))) * self.frozen * self.plain
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        x.add_(torch.tensor([0.25] * 16))
        if mask is not None:
            x = torch.where(mask["rows"][:, None], x, torch.zeros_like(x))
        return self.head(x) if cap is None else (self.head(x).clamp(max=cap), {"hidden": x})


def mlp():
    return dict(
        model=Mlp(),
        loss_fn=lambda out, targets: (F.cross_entropy(out[0], targets), out[1]),
        inputs=(_tokens(40, 8), 2.0),
        kwargs={"mask": {"rows": torch.arange(8) % 3 > 0}, "cap": 3.0},
        targets=_tokens(40, 8),
        dynamic={"ids": {0: "batch"}, "mask.rows": {0: "batch"}, "targets": {0: "batch"}},
    )


def conv():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, groups=4),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    return dict(model=model, loss_fn=F.cross_entropy, inputs=torch.randn(4, 3, 12, 12), targets=_tokens(5, 4))


def transformer_encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 3)
    )
    return dict(
        model=model,
        loss_fn=lambda out, targets: F.mse_loss(out, targets),
        inputs=torch.randn(2, 10, 8),
        targets=torch.randn(2, 10, 3),
    )


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8), nn.Linear(24, 20)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.bags, self.pairs = nn.EmbeddingBag(20, 24, mode="mean"), nn.Bilinear(24, 24, 24)

    def forward(self, ids):
        hidden = self.lstm(self.words(ids))[0]
        bag = self.bags(ids)[:, None].expand_as(hidden)
        return self.out(self.pairs(hidden, bag).kthvalue(2, dim=1, keepdim=True).values + hidden)


def recurrent():
    ids = _tokens(20, 2, 6)
    return dict(model=_Recurrent(), loss_fn=lambda logits: cross_entropy(logits, ids), inputs=(ids,))


def bfloat16():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(torch.bfloat16)
    return dict(
        model=model,
        loss_fn=lambda out, targets: F.cross_entropy(out.float(), targets),
        inputs=torch.randn(6, 16, dtype=torch.bfloat16),
        targets=_tokens(4, 6),
    )


def float16():
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(torch.float16)
    return dict(
        model=model,
        loss_fn=lambda out, targets: F.cross_entropy(out.float(), targets),
        inputs=torch.randn(6, 16, dtype=torch.float16),
        targets=_tokens(4, 6),
    )


class Checkpointed(nn.Module):
    """Activation checkpointing: the forward of a block runs again within backward."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), nn.Linear(32, 16)) for _ in range(2))

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


def checkpointed():
    return dict(model=Checkpointed(), loss_fn=lambda out: out.square().mean(), inputs=torch.randn(4, 16))


# Of transformers


def _causal(model, vocabulary, batch=2, length=12, **more):
    ids = _tokens(vocabulary, batch, length)
    return dict(model=model.train(), loss_fn=None, inputs={"input_ids": ids, "labels": ids.clone()}, **more)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=96,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        use_cache=False,
    )
    return _causal(
        GPT2LMHeadModel(config),
        96,
        batch=3,
        length=10,
        dynamic={"input_ids": {0: "batch", 1: ("length", 2, 32)}, "labels": {0: "batch", 1: ("length", 2, 32)}},
    )


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return _causal(
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=96,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                use_cache=False,
            )
        ),
        96,
    )


def qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    return _causal(Qwen2ForCausalLM(config), 96)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    found = _causal(BertForMaskedLM(config), 96)
    found["inputs"]["attention_mask"] = torch.ones(2, 12, dtype=torch.int64)
    return found


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=96,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
    )
    found = _causal(T5ForConditionalGeneration(config), 96)
    found["inputs"]["labels"] = _tokens(96, 2, 9)
    return found


def bart():
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=96,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        use_cache=False,
    )
    return _causal(BartForConditionalGeneration(config), 96)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        use_cache=False,
        output_router_logits=True,
        experts_implementation="grouped_mm",
    )
    return _causal(MixtralForCausalLM(config), 96)


def deepseek_v3():
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    return _causal(DeepseekV3ForCausalLM(config), 96)


def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    return _causal(
        MambaForCausalLM(
            MambaConfig(vocab_size=96, hidden_size=16, state_size=4, num_hidden_layers=2, use_cache=False)
        ),
        96,
        length=6,
    )


def _images(model, classes=3, size=32, batch=2):
    return dict(
        model=model.train(),
        loss_fn=None,
        inputs={"pixel_values": torch.randn(batch, 3, size, size), "labels": _tokens(classes, batch)},
    )


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    return _images(
        ViTForImageClassification(
            ViTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                image_size=32,
                patch_size=8,
                num_labels=3,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
    )


def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification

    return _images(
        ResNetForImageClassification(
            ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3)
        )
    )


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return _images(
        ConvNextForImageClassification(
            ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=3, image_size=32)
        )
    )


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        num_labels=3,
        classifier_proj_size=16,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.0,
        apply_spec_augment=False,
    )
    return dict(
        model=Wav2Vec2ForSequenceClassification(config).train(),
        loss_fn=None,
        inputs={"input_values": torch.randn(2, 400), "labels": _tokens(3, 2)},
    )


class FractionsOfRows(nn.Module):
    """Sizes by way of floats: no expression says them, and other numbers of rows give others."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        rows, y = x.shape[0], self.linear(x)
        kept, fewer = torch.sym_int(rows * 0.9), math.floor(rows * 0.7)
        widths = [kept, fewer, math.ceil(rows * 0.3), math.ceil(rows / 3), round(rows * 0.37), math.trunc(rows // 1.5)]
        widths += [math.trunc(round(rows * 0.37, 1)), math.trunc(rows**0.5), math.trunc(kept * 0.9), rows - kept]
        widths.append(torch.sym_max(rows // 3, math.trunc(rows * 0.41)))
        widths.append(torch.sym_min(fewer, 1 + math.trunc(rows**2 * 0.04)))
        return sum((y[:n] * (i + 1)).square().sum() / n + torch.ones(n, 2).sum() for i, n in enumerate(widths))


def fractions_of_rows():
    dynamic = {"x": {0: ("rows", 8, 64)}}
    return dict(model=FractionsOfRows(), loss_fn=None, inputs={"x": torch.randn(23, 4)}, dynamic=dynamic)


TORCH_MODELS = (fractions_of_rows, mlp, conv, transformer_encoder, recurrent, bfloat16, float16, checkpointed)
HUB_MODELS = (gpt2, llama, qwen2, bert, t5, bart, mixtral, deepseek_v3, mamba, vit, resnet, convnext, wav2vec2)
