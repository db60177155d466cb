// SPDX-License-Identifier: Apache-2.0
// A transformer small enough for unit tests: two blocks, eight channels, every weight random.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "core/model/policy.h"
#include "tests/testing/graph_architecture.h"

namespace oxbow::rollout {

inline const std::vector<int64_t> kTinyLatent = {1, 4, 4};
inline constexpr int64_t kTinyTokens = 3;
inline constexpr int64_t kTinyWidth = 8;

inline constexpr char kTinyGraph[] = "tests/testing/graphs/tiny.json.gz";

inline const std::shared_ptr<const model::Architecture>& TinyArchitecture() {
  static const auto architecture = testing::GraphArchitecture(kTinyGraph);
  return architecture;
}

inline at::Tensor TinyNoise(uint64_t seed, uint64_t subject, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  RandomStream(StreamKey{.seed = seed, .group = subject})
      .FillNormal(std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor;
}

inline std::unique_ptr<model::Policy> TinyPolicy(uint64_t seed) {
  model::Policy::Options options;
  options.architecture = TinyArchitecture();
  uint64_t subject = 0;
  for (const auto& [name, shape] : TinyArchitecture()->shapes()) {
    options.base[name] = 0.3 * TinyNoise(seed, ++subject, shape);
  }
  options.with_reference = options.with_ema = options.trainable = false;
  absl::StatusOr<std::unique_ptr<model::Policy>> policy = model::Policy::Create(std::move(options));
  OXBOW_CHECK(policy.ok()) << policy.status();
  return *std::move(policy);
}

inline model::Conditioning TinyConditioning(uint64_t prompt) {
  return {{model::kPromptTokens, TinyNoise(1000 + prompt, 1, {1, kTinyTokens, kTinyWidth})},
          {model::kPooledPrompt, TinyNoise(1000 + prompt, 2, {1, kTinyWidth})}};
}

}  // namespace oxbow::rollout
