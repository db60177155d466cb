// SPDX-License-Identifier: Apache-2.0
// How far int8 and bfloat16 weights move a network's velocities: int8_error MODEL...
//
// For each diffusers directory the root mean square of the error over that of the velocity in
// float32, on 32 random latents at three noise levels, each with a prompt of the model's own.
// "int8, f32 products" is the rounding of weights alone.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "core/model/policy.h"
#include "run/loaded_model.h"
#include "run/trainer_options.h"

namespace oxbow {
namespace {

constexpr int64_t kRows = 32;

struct Kind {
  const char* name;
  v1::StorageDType products;
  const char* memory;
};

constexpr Kind kKinds[] = {{"bf16 weights and products", v1::STORAGE_D_TYPE_BF16, "fast"},
                           {"int8 weights, f32 products", v1::STORAGE_D_TYPE_F32, "int8"},
                           {"int8 weights, bf16 products", v1::STORAGE_D_TYPE_BF16, "int8"}};

template <class T>
T Get(absl::StatusOr<T> value) {
  OXBOW_CHECK(value.ok()) << value.status().ToString();
  return *std::move(value);
}

// [3 kRows, ...]
at::Tensor Velocities(const std::string& path, const Kind& kind) {
  v1::ModelConfig config;
  config.set_path(path);
  config.set_trained(v1::TRAINED_PART_LORA);
  config.set_compute_dtype(kind.products);
  config.set_memory(kind.memory);
  run::LoadedModel loaded = Get(run::LoadModel(config, v1::PromptConfig(), v1::SamplingConfig()));
  const auto policy = Get(model::Policy::Create(
      {.architecture = loaded.architecture,
       .read_base = std::move(loaded.read_transformer),
       .trained = model::Trained::kLora,
       .lora = {.rank = 1, .alpha = 1, .targets = {loaded.architecture->linears().begin()->first}},
       .with_ema = false,
       .trainable = false,
       .embedded_guidance = loaded.embedded_guidance,
       .compute = Get(run::ScalarTypeFromConfig(kind.products, "products")),
       .base_weights = run::BaseWeightsOf(config)}));
  const model::Conditioning prompt = Get(loaded.prompts->Get({"1 2 3 4"}));
  at::manual_seed(1);
  std::vector<int64_t> shape = loaded.latent_shape;
  shape.insert(shape.begin(), kRows);
  std::vector<at::Tensor> all;
  for (const double sigma : {0.95, 0.6, 0.2}) {
    all.push_back(policy->reference().Velocity(at::randn(shape), at::full({kRows}, sigma), prompt));
  }
  return at::cat(all);
}

void Measure(const std::string& path) {
  const at::NoGradGuard no_grad;
  const at::Tensor exact = Velocities(path, {"", v1::STORAGE_D_TYPE_F32, "fast"});
  for (const Kind& kind : kKinds) {
    const at::Tensor error = Velocities(path, kind) - exact;
    std::printf("%-20s %-28s %.4f\n", path.c_str(), kind.name,
                error.norm().item<double>() / exact.norm().item<double>());
  }
}

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (int i = 1; i < argc; ++i) oxbow::Measure(argv[i]);
}
