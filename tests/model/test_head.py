"""From tokens to logits."""

import torch

from vitral.config import ModelConfig
from vitral.model.head import AttentionPool, MLPHead


def test_attention_pool_is_softmax_written_out():
    torch.manual_seed(0)
    pool = AttentionPool(ModelConfig(width=12, heads=3))
    torch.nn.init.normal_(pool.query)
    tokens = torch.randn(2, 5, 12)
    key, value = pool.key_value(tokens).chunk(2, dim=-1)
    heads = []
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        scores = (key[..., part] @ pool.query[0, 0, part]) / 4**0.5  # (B, T)
        heads.append((scores.softmax(dim=1)[..., None] * value[..., part]).sum(dim=1))
    assert torch.allclose(pool(tokens), pool.projection(torch.cat(heads, dim=1)), atol=1e-6)


def test_head_with_and_without_a_hidden_layer():
    pooled = torch.randn(2, 6)
    plain = MLPHead(6, 4, bias=False)
    assert plain.linear.bias is None and torch.equal(plain(pooled), pooled @ plain.linear.weight.T)
    deep = MLPHead(6, 4, hidden=8)
    assert torch.equal(deep(pooled), deep.linear(torch.tanh(deep.hidden(pooled)))) and deep(pooled).shape == (2, 4)
