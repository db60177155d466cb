# SPDX-License-Identifier: Apache-2.0
"""The answer of each pipeline's own encode_prompt, as the parts that its wrapper in tools/export_model takes."""
import torch


def filled(rows, tokens):
    """Sequences [n, ...] of unequal length -> [B, tokens, ...], zeros behind each, and a mask [B, tokens]."""
    whole = torch.zeros(len(rows), tokens, *rows[0].shape[1:])
    mask = torch.zeros(len(rows), tokens)
    for i, row in enumerate(rows):
        if row.shape[0] > tokens:
            raise ValueError(f"a prompt of {row.shape[0]} tokens for {tokens}: the pipeline does not cut it")
        whole[i, :row.shape[0]] = row.float()
        mask[i, :row.shape[0]] = 1
    return whole, mask


def masked(embeddings, mask, tokens):
    """Embeddings [B, n, C] as they are and their mask [B, n] or None, lengthened to `tokens`."""
    whole, there = filled(list(embeddings), tokens)
    given, _ = filled(list(torch.ones(embeddings.shape[:2]) if mask is None else mask), tokens)
    return {"tokens": whole, "mask": given * there}


def hunyuan_video(pipe, texts, tokens):
    embeddings, pooled, mask = pipe.encode_prompt(texts, device=pipe.device, max_sequence_length=tokens)
    return masked(embeddings, mask, tokens) | {"pooled": pooled}


ENCODE = {"HunyuanVideoPipeline": hunyuan_video}


def encoded(pipe, texts, tokens):
    """One dict of parts [1, ...] per text."""
    with torch.no_grad():
        parts = ENCODE[type(pipe).__name__](pipe, list(texts), tokens)
    return [{name: part[i:i + 1].float() for name, part in parts.items()} for i in range(len(texts))]
