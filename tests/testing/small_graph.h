// SPDX-License-Identifier: Apache-2.0
// A graph of a few nodes that has one of everything: sizes, a table made of them, a list of
// results, a value written in place, a constant, a block, a linear layer that nothing reads,
// embedded guidance.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/named_tensors.h"

namespace oxbow::model::exported {

// x [B, 2, H, W], sigma [B], tokens [B, S, 3], guidance [B]:
//
//   h = silu(Linear(rows of x)) + sigma + guidance + mean tokens + table
//   v = x + 2 scale Linear(h), in place
//
// where table [H W / 1, 1] counts pixels, and scale is the checkpoint's buffer.
inline nlohmann::json SmallGraph() {
  return nlohmann::json::parse(R"({
    "format": "oxbow-graph", "version": 1, "class": "SmallTransformer2DModel",
    "config": {"width": 4, "act": "silu", "eps": null}, "defaults": {"width": 8, "act": "silu",
       "eps": null},
    "latent": {"side": 4},
    "symbols": {"B": {"min": 1}, "H": {"min": 2, "max": 8, "multiple": 2},
                "W": {"min": 2, "max": 8, "multiple": 2}, "S": {"min": 1, "max": 9}},
    "inputs": [{"name": "x", "slot": 0, "shape": ["B", 2, "H", "W"], "dtype": "float32"},
               {"name": "sigma", "slot": 1, "shape": ["B"], "dtype": "float32"},
               {"name": "tokens", "slot": 2, "shape": ["B", "S", 3], "dtype": "float32"},
               {"name": "guidance", "slot": 3, "shape": ["B"], "dtype": "float32"}],
    "parameters": [{"name": "in.weight", "slot": 4, "shape": [4, 2], "linear": true},
                   {"name": "in.bias", "slot": 5, "shape": [4]},
                   {"name": "blocks.0.out.weight", "slot": 6, "shape": [2, 4], "linear": true},
                   {"name": "scale", "slot": 7, "shape": [1], "buffer": true},
                   {"name": "unused.weight", "slot": null, "shape": [3, 3], "linear": true}],
    "constants": [{"name": "c0", "slot": 8, "dtype": "float32", "shape": [1], "complex": false,
       "data": "AACAPw=="}],
    "slots": 40, "output": 38,
    "blocks": [{"name": "blocks.0", "first": 21, "end": 23}],
    "nodes": [
      {"op": "sym::size", "args": {"x": {"v": 0}, "dim": 2}, "out": 9},
      {"op": "sym::size", "args": {"x": {"v": 0}, "dim": -1}, "out": 10},
      {"op": "sym::mul", "args": {"a": {"v": 9}, "b": {"v": 10}}, "out": 11},
      {"op": "sym::floordiv", "args": {"a": {"v": 11}, "b": 2}, "out": 12},
      {"op": "aten::arange", "args": {"end": {"v": 11}, "dtype": {"dtype": "float32"},
         "device": {"device": true}}, "out": 13},
      {"op": "aten::div", "overload": "Tensor", "args": {"self": {"v": 13}, "other": {"v": 12}},
         "out": 14},
      {"op": "aten::zero_", "args": {"self": {"v": 13}}, "out": 39},
      {"op": "aten::unsqueeze", "args": {"self": {"v": 14}, "dim": 1}, "out": 15},
      {"op": "aten::flatten", "overload": "using_ints", "args": {"self": {"v": 0},
         "start_dim": 2}, "out": 16},
      {"op": "aten::transpose", "overload": "int", "args": {"self": {"v": 16}, "dim0": 1,
         "dim1": 2}, "out": 17},
      {"op": "aten::linear", "args": {"input": {"v": 17}, "weight": {"v": 4}, "bias": {"v": 5}},
         "out": 18},
      {"op": "aten::silu", "args": {"self": {"v": 18}}, "out": 19},
      {"op": "aten::add", "overload": "Tensor", "args": {"self": {"v": 19}, "other": {"v": 15}},
         "out": 20},
      {"op": "aten::add", "overload": "Tensor", "args": {"self": {"v": 1}, "other": {"v": 3}},
         "out": 21},
      {"op": "aten::mean", "overload": "dim", "args": {"self": {"v": 2}, "dim": [1, 2]},
         "out": 22},
      {"op": "aten::add", "overload": "Tensor", "args": {"self": {"v": 21}, "other": {"v": 22}},
         "out": 23},
      {"op": "aten::mul", "overload": "Tensor", "args": {"self": {"v": 23}, "other": {"v": 8}},
         "out": 24},
      {"op": "aten::view", "args": {"self": {"v": 24}, "size": [-1, 1, 1]}, "out": 25},
      {"op": "aten::chunk", "args": {"self": {"v": 20}, "chunks": 2, "dim": -1}, "out": [26, 27]},
      {"op": "aten::cat", "args": {"tensors": [{"v": 26}, {"v": 27}], "dim": -1}, "out": 28},
      {"op": "aten::add_", "overload": "Tensor", "args": {"self": {"v": 28},
         "other": {"v": 25}}, "out": 29},
      {"op": "aten::linear", "args": {"input": {"v": 29}, "weight": {"v": 6}}, "out": 30},
      {"op": "aten::gt", "overload": "Scalar", "args": {"self": {"v": 30}, "other": -1e30},
         "out": 31},
      {"op": "aten::where", "overload": "ScalarOther", "args": {"condition": {"v": 31},
         "self": {"v": 30}, "other": 0.0}, "out": 32},
      {"op": "aten::mul", "overload": "Tensor", "args": {"self": {"v": 32}, "other": 2},
         "out": 33, "autocast": false},
      {"op": "aten::mul", "overload": "Tensor", "args": {"self": {"v": 33}, "other": {"v": 7}},
         "out": 34},
      {"op": "aten::transpose", "overload": "int", "args": {"self": {"v": 34}, "dim0": 1,
         "dim1": 2}, "out": 35},
      {"op": "aten::reshape", "args": {"self": {"v": 35}, "shape": [-1, 2, {"v": 9},
         {"v": 10}]}, "out": 36},
      {"op": "aten::clone", "args": {"self": {"v": 0}}, "out": 37},
      {"op": "aten::add_", "overload": "Tensor", "args": {"self": {"v": 37},
         "other": {"v": 36}}, "out": 38}
    ]})");
}

inline NamedTensors SmallWeights() {
  at::manual_seed(9);
  return {{"in.weight", at::randn({4, 2})},
          {"in.bias", at::randn({4})},
          {"blocks.0.out.weight", at::randn({2, 4})},
          {"scale", at::full({1}, 0.5)},
          {"unused.weight", at::randn({3, 3})}};
}

using Product = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;

// The graph's computation, written by hand. `product`: of the second linear layer.
inline at::Tensor SmallVelocity(
    const NamedTensors& weights, const at::Tensor& x, const at::Tensor& sigma,
    const at::Tensor& tokens, double guidance,
    const Product& product = [](const auto& h, const auto& w) { return at::linear(h, w); }) {
  const int64_t pixels = x.size(2) * x.size(3);
  const at::Tensor rows = x.flatten(2).transpose(1, 2);
  const at::Tensor table = at::arange(pixels, at::kFloat) / (pixels / 2);
  const at::Tensor level = (sigma + guidance + tokens.mean({1, 2})).view({-1, 1, 1});
  const at::Tensor h = at::silu(at::linear(rows, weights.at("in.weight"), weights.at("in.bias"))) +
                       table.unsqueeze(1) + level;
  const at::Tensor out = product(h, weights.at("blocks.0.out.weight")) * 2 * weights.at("scale");
  return x + out.transpose(1, 2).reshape(x.sizes());
}

// A network that is no velocity: ids [B, 3] of whole numbers and x [B, 2] to
//
//   both = mean of Embedding(ids) + Linear(x)  [B, 4]      total = its sum  [B]
inline nlohmann::json SmallNetwork() {
  return nlohmann::json::parse(R"({
    "format": "oxbow-graph", "version": 1, "class": "SmallReward", "config": {"width": 4},
    "defaults": {"width": 4}, "symbols": {"B": {"min": 1}},
    "inputs": [{"name": "ids", "slot": 0, "shape": ["B", 3], "dtype": "int64"},
               {"name": "x", "slot": 1, "shape": ["B", 2], "dtype": "float32"}],
    "parameters": [{"name": "words.weight", "slot": 2, "shape": [5, 4]},
                   {"name": "in.weight", "slot": 3, "shape": [4, 2], "linear": true}],
    "slots": 9, "outputs": [{"name": "total", "slot": 8}, {"name": "both", "slot": 7}],
    "blocks": [],
    "nodes": [
      {"op": "aten::embedding", "args": {"weight": {"v": 2}, "indices": {"v": 0}}, "out": 4},
      {"op": "aten::mean", "overload": "dim", "args": {"self": {"v": 4}, "dim": [1]}, "out": 5},
      {"op": "aten::linear", "args": {"input": {"v": 1}, "weight": {"v": 3}}, "out": 6},
      {"op": "aten::add", "overload": "Tensor", "args": {"self": {"v": 5}, "other": {"v": 6}},
         "out": 7},
      {"op": "aten::sum", "overload": "dim_IntList", "args": {"self": {"v": 7}, "dim": [1]},
         "out": 8}
    ]})");
}

}  // namespace oxbow::model::exported
