"""A small language model for the benchmarks: its gradients are large beside the work of a step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, CONTEXT = 256, 64


class SmallGPT(nn.Module):
    """A decoder-only transformer: (B, T) token numbers in, (B, T, VOCABULARY) logits out, T at most CONTEXT.

    Pre-norm blocks with causal attention and a GELU network, as in Radford et al. 2019, "Language Models are
    Unsupervised Multitask Learners".
    """

    def __init__(self, width: int = 128, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits for the token after each token."""
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.tokens(tokens_BT) + self.positions(positions_T)
        return self.head(self.norm(self.blocks(x_BTC)))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BTC: Tensor) -> Tensor:
        B, T, C = x_BTC.shape
        shape = (B, T, self.heads, C // self.heads)
        q_BHTD, k_BHTD, v_BHTD = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x_BTC)).chunk(3, -1))
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        x_BTC = x_BTC + self.out(y_BHTD.transpose(1, 2).reshape(B, T, C))
        return x_BTC + self.mlp(self.norm2(x_BTC))
