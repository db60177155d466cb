// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters (arXiv:2106.09685) as PEFT defines them: W x + (alpha / r) B A x.
//
// A [r, in] starts at N(0, 1/r) (standard deviation 1/r, PEFT's "gaussian"), B [out, r] at zero.
// Tensors are named `{module}.lora_A.weight` and `{module}.lora_B.weight`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/named_tensors.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Settings of a LoRA fine-tune.
struct LoraSpec {
  int64_t rank = 32;
  double alpha = 64;
  std::vector<std::string> targets;  // Suffixes of module names, as PEFT matches them.
};

// An adapter as a model binds it: `tensors` are views that outlive nothing (handles).
struct LoraAdapter {
  NamedTensors tensors;
  double scale = 1;  // alpha / r
};

// The selected modules, sorted. A target is a module's whole name or its last parts: "attn.to_k"
// selects "transformer_blocks.3.attn.to_k" and neither "transformer_blocks.3.attn2.to_k" nor
// "xattn.to_k". The customary eight targets select 191 modules of SD3.5-medium. kInvalidArgument
// for no targets, or for a target that selects nothing, naming the one that would and is spelled
// most like it.
absl::StatusOr<std::vector<std::string>> MatchLoraTargets(const LinearModules& modules,
                                                          const std::vector<std::string>& targets);

// W + scale B A, summed in float32, in W's type.
at::Tensor MergedWeight(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                        double scale);

// Euclidean length of what the adapter adds to the weights, scale B A of all modules together.
double AdapterNorm(const LoraAdapter& adapter);

// Fresh A and B for every selected module, in name order from one random stream.
absl::StatusOr<NamedTensors> InitialLora(const LinearModules& modules, const LoraSpec& spec,
                                         uint64_t seed);

// An adapter of a smaller rank, or on fewer modules, as one of a run's size: `adapter` with what it
// does not have out of `fresh`: modules, and rows of A and columns of B past its rank. B of a fresh
// adapter is zero there, so that the products stay those of `adapter`, and A is not, so that they
// can learn. What does not fit `fresh` stays as it is.
NamedTensors CompletedAdapter(const NamedTensors& fresh, const NamedTensors& adapter);

}  // namespace oxbow::model
