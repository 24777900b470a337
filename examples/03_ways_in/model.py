"""A small language model and one training step of it: what the other files of this example were made from."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words=50, width=16):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.table(tokens)
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)


class Step(nn.Module):
    """The model with its loss: what torch.export and torch.compile see."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = Model()

    def forward(self, tokens, targets):
        logits = self.model(tokens)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch():
    torch.manual_seed(1)
    tokens = torch.randint(50, (4, 8))
    return tokens, tokens.roll(-1, 1)


def step():
    """For the command line of the capture package."""
    tokens, targets = batch()
    torch.manual_seed(0)
    return dict(model=Model(), inputs={"tokens": tokens}, targets=targets,
                loss_fn=lambda logits, targets: nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
