#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Float64 golden vectors of BranchGRPO: advantages of edges, pruning and the loss of a tree.

An independent implementation, with nodes and children, of the formulas that are read from the
public code of arXiv:2509.06040 (docs/methods/branch_grpo.md). It shares no code with the product,
which works with ranges of samples. `make_branch_golden.py SEED OUT.json` draws random inputs from
SEED. Needs no package.
"""
import json
import math
import random
import struct
import sys


def float32(value):
    return struct.unpack('f', struct.pack('f', value))[0]


class Node:
    """A latent. `step` led to it (-1: the start)."""

    def __init__(self, step, parent=None):
        self.step, self.parent, self.children = step, parent, []
        self.log_prob = self.reward = self.sample = None
        if parent is not None:
            parent.children.append(self)

    def leaves(self):
        if not self.children:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]


def grow(steps, splits, width, rng):
    root = Node(-1)
    layer = [root]
    for step in range(steps):
        layer = [Node(step, parent) for parent in layer for _ in range(width if step in splits else 1)]
        for node in layer:
            node.log_prob = float32(rng.uniform(-1, 1))
    return root


def descendants(node):
    return [node] + [below for child in node.children for below in descendants(child)]


def mean(values):
    return sum(values) / len(values)


def fuse(node, how):
    if not node.children:
        return
    for child in node.children:
        fuse(child, how)
    if how == 'mean':
        node.reward = mean([leaf.reward for leaf in node.leaves()])
        return
    weights = [math.exp(child.log_prob) for child in node.children]
    node.reward = sum(w * c.reward for w, c in zip(weights, node.children)) / sum(weights)


def advantages(nodes, ddof, epsilon, clip):
    centre = mean([node.reward for node in nodes])
    spread = math.sqrt(sum((n.reward - centre) ** 2 for n in nodes) / max(1, len(nodes) - ddof))
    if len({node.reward for node in nodes}) == 1:
        return [0.0 for _ in nodes]
    return [max(-clip, min(clip, (n.reward - centre) / (spread + epsilon))) for n in nodes]


def kept_leaves(roots, splits, pruning, share):
    leaves = [leaf for root in roots for leaf in root.leaves()]
    if pruning == 'none':
        return set(leaves)
    if pruning == 'best':
        parents = [n for root in roots for n in descendants(root) if n.step == max(splits) - 1]
        return {max(parent.leaves(), key=lambda leaf: leaf.reward) for parent in parents}
    ranked = sorted(leaves, key=lambda leaf: -leaf.reward)
    count = max(2, int(len(leaves) * share))
    return set(ranked[:count // 2] + ranked[len(ranked) - (count - count // 2):])


def record(rng, fusion, pruning):
    steps = rng.randint(4, 7)
    splits = sorted(rng.sample(range(steps - 1), rng.randint(1, 3)))
    width = rng.choice([2, 2, 3])
    trees = rng.choice([1, 1, 2])
    noisy = list(range(steps - 1))  # The last step is an ODE step.
    pruned = sorted(rng.sample(noisy, rng.randint(0, 2)))
    ddof, epsilon, clip = rng.choice([(0, 1e-4, 5.0), (1, 1e-8, 1.2)])
    ratio_clip = 1e-2
    roots = [grow(steps, splits, width, rng) for _ in range(trees)]
    leaves = [leaf for root in roots for leaf in root.leaves()]
    for sample, leaf in enumerate(leaves):
        leaf.sample, leaf.reward = sample, rng.uniform(0, 1)
    for root in roots:
        fuse(root, fusion)
    kept = kept_leaves(roots, splits, pruning, 0.5)
    edges = []
    forward = 0
    for step in range(steps):
        nodes = [n for root in roots for n in descendants(root) if n.step == step]
        forward += len({id(n.parent) for n in nodes})
        if step not in noisy or step in pruned:
            continue
        for node, advantage in zip(nodes, advantages(nodes, ddof, epsilon, clip)):
            if kept.isdisjoint(node.leaves()):
                continue
            edges.append(dict(step=step, samples=[leaf.sample for leaf in node.leaves()],
                              advantage=advantage, log_ratio=rng.uniform(-0.03, 0.03)))
    losses = []
    for edge in edges:
        ratio = math.exp(edge['log_ratio'])
        limited = min(max(ratio, 1 - ratio_clip), 1 + ratio_clip)
        losses.append(max(-edge['advantage'] * ratio, -edge['advantage'] * limited))

    def path(leaf):
        up = []
        while leaf.parent is not None:
            up.append(leaf.log_prob)
            leaf = leaf.parent
        return up[::-1]

    return dict(steps=steps, splits=splits, width=width, trees=trees, pruned=pruned, fusion=fusion,
                pruning=pruning, kept=0.5, ddof=ddof, epsilon=epsilon, clip=clip,
                ratio_clip=ratio_clip, rewards=[leaf.reward for leaf in leaves],
                log_probs=[path(leaf) for leaf in leaves], rows_forward=forward, edges=edges,
                loss=mean(losses))


def main():
    rng = random.Random(int(sys.argv[1]))
    records = [record(rng, fusion, pruning) for _ in range(4) for fusion in ('mean', 'softmax')
               for pruning in ('none', 'best', 'extremes')]
    with open(sys.argv[2], 'w') as out:
        json.dump(dict(branch_grpo=records), out)
        out.write('\n')


main()
