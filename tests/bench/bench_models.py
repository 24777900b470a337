"""Small models of many kinds for run_model_bench.py. Each function gives (module, inputs, targets, loss of output and targets)."""
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from transformers import (BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig,
                          ViTForImageClassification)

import gpu_models

TOKENS = 4096


def words(*shape):
    return torch.randint(TOKENS, shape)


def next_token(out, tokens):
    return F.cross_entropy(out.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def of_images(model, size=96, batch=8):
    return model, {'x': torch.randn(batch, 3, size, size)}, torch.randint(100, (batch,)), F.cross_entropy


# --- convolutions ---


class UNet(nn.Module):
    """Two levels down and up, of group norms and SiLU."""

    def __init__(self, width=32):
        super().__init__()
        self.down = nn.ModuleList([self.block(3, width), self.block(width, 2 * width), self.block(2 * width, 4 * width)])
        self.rise = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)])
        self.up = nn.ModuleList([self.block(4 * width, 2 * width), self.block(2 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def block(into, out):
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU(),
                             nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.rise[0](self.down[2](F.max_pool2d(second, 2)))
        x = self.rise[1](self.up[0](torch.cat([x, second], 1)))
        return self.last(self.up[1](torch.cat([x, first], 1)))


def resnet18():
    return of_images(torchvision.models.resnet18(num_classes=100))


class Autocast(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast('cpu', torch.bfloat16):
            return self.model(x).float()


def resnet18_autocast():
    return of_images(Autocast(torchvision.models.resnet18(num_classes=100)))


def unet():
    return UNet(), {'x': torch.randn(4, 3, 64, 64)}, torch.randn(4, 3, 64, 64), F.mse_loss


def mobilenet():
    return of_images(torchvision.models.mobilenet_v2(num_classes=100))


def efficientnet():
    return of_images(torchvision.models.efficientnet_b0(num_classes=100))


def convnext():
    block = torchvision.models.convnext.CNBlockConfig
    return of_images(torchvision.models.ConvNeXt([block(48, 96, 2), block(96, 192, 2), block(192, None, 2)], num_classes=100))


# --- attention ---


def vit():
    model = torchvision.models.VisionTransformer(64, 8, 4, 4, 192, 768, num_classes=100)
    return of_images(model, 64)


def gpt2():
    config = GPT2Config(n_layer=4, n_embd=256, n_head=8, vocab_size=TOKENS, n_positions=256, attn_pdrop=0, resid_pdrop=0,
                        embd_pdrop=0, use_cache=False)
    tokens = words(4, 256)
    return GPT2LMHeadModel(config), {'input_ids': tokens}, tokens, next_token


def llama():
    config = LlamaConfig(num_hidden_layers=4, hidden_size=256, intermediate_size=704, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=TOKENS, use_cache=False)
    tokens = words(4, 256)
    return LlamaForCausalLM(config), {'input_ids': tokens}, tokens, next_token


def gpt_autocast():
    model = gpu_models.Gpt(torch.bfloat16, TOKENS, 256, 256, 4, 8)
    tokens = words(4, 256)
    return model, {'tokens': tokens, 'labels': tokens.roll(-1, 1)}, torch.zeros(()), lambda loss, _: loss


def bert():
    """With its dropouts, the weights of attention included, and a mask of padding."""
    config = BertConfig(vocab_size=TOKENS, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024, num_labels=4)
    mask = torch.arange(128) < torch.randint(40, 129, (8, 1))
    return (BertForSequenceClassification(config), {'input_ids': words(8, 128), 'attention_mask': mask.long()}, torch.randint(4, (8,)),
            lambda out, labels: F.cross_entropy(out.logits, labels))


# --- the same in bf16, larger ---


def float_loss(out, labels):
    return F.cross_entropy(out.logits.float().flatten(0, -2), labels.flatten())


def llama_bf16():
    config = LlamaConfig(num_hidden_layers=4, hidden_size=512, intermediate_size=1408, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=32000, use_cache=False)
    return (LlamaForCausalLM(config).bfloat16(), {'input_ids': torch.randint(32000, (2, 512))}, torch.randint(32000, (2, 512)),
            float_loss)


def vit_bf16():
    config = ViTConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, image_size=128, num_labels=100)
    return (ViTForImageClassification(config).bfloat16(), {'pixel_values': torch.randn(8, 3, 128, 128).bfloat16()},
            torch.randint(100, (8,)), float_loss)


def bert_bf16():
    config = BertConfig(vocab_size=8000, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024)
    return BertForSequenceClassification(config).bfloat16(), {'input_ids': torch.randint(8000, (8, 128))}, torch.randint(2, (8,)), float_loss


# --- others ---


class Recurrent(nn.Module):
    """A classifier of token sequences by their last state."""

    def __init__(self, kind, width=256):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, width)
        self.layers = kind(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 100)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens))[0][:, -1])


def lstm():
    return Recurrent(nn.LSTM), {'tokens': words(32, 64)}, torch.randint(100, (32,)), F.cross_entropy


def gru():
    return Recurrent(nn.GRU), {'tokens': words(32, 64)}, torch.randint(100, (32,)), F.cross_entropy


class Mlp(nn.Module):
    def __init__(self, dtype, width=512):
        super().__init__()
        self.dtype = dtype
        self.layers = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        with torch.autocast('cpu', self.dtype, enabled=self.dtype != torch.float32):
            return self.layers(x).float()


def mlp():
    return Mlp(torch.float32), {'x': torch.randn(256, 784)}, torch.randint(10, (256,)), F.cross_entropy


def mlp_autocast():
    return Mlp(torch.bfloat16), {'x': torch.randn(256, 784)}, torch.randint(10, (256,)), F.cross_entropy


class Dlrm(nn.Module):
    """Click prediction: bags of categories and a dense tower, every pair of them multiplied."""

    def __init__(self, tables=8, rows=10000, width=64):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode='sum') for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer('pairs', torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, categories):
        x = self.dense(dense)
        towers = torch.stack([x] + [bag(ids) for bag, ids in zip(self.bags, categories.unbind(0))], 1)
        met = (towers @ towers.mT)[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, met], 1)).squeeze(1)


def dlrm():
    return (Dlrm(), {'dense': torch.randn(512, 13), 'categories': torch.randint(10000, (8, 512, 4))}, torch.rand(512).round(),
            F.binary_cross_entropy_with_logits)


def experts():
    x = torch.randn(1024, 256).bfloat16()
    return (gpu_models.Experts(256, 256, 8, 2), {'x': x, 'wanted': torch.zeros_like(x)}, torch.zeros(()), lambda loss, _: loss)


MODELS = (resnet18, resnet18_autocast, unet, mobilenet, efficientnet, convnext, vit, gpt2, llama, gpt_autocast, bert, llama_bf16, vit_bf16, bert_bf16,
          lstm, gru, mlp, mlp_autocast, dlrm, experts)
