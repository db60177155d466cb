// SPDX-License-Identifier: Apache-2.0
// The parts that a model directory must hold; an autoencoder's decoder is used where there is one.
#include "run/loaded_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/philox.h"
#include "core/model/decoder_architecture.h"
#include "core/model/int8_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/own_memory.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kWeights[] = "diffusion_pytorch_model.safetensors";

// Latents of one channel as the digits' transformer has them, images of three at twice the side.
constexpr char kAutoencoder[] = "kl_decoder_plain";  // In tests/golden/decoders.

class LoadedModelTest : public ::testing::Test {
 protected:
  LoadedModelTest() {
    fs::copy(OXBOW_SOURCE_DIR "/models/digits", model_, fs::copy_options::recursive);
  }
  void AddAutoencoder(const std::string& golden) {
    const auto index_file = model_ / "model_index.json";
    auto index = nlohmann::json::parse(ReadFile(index_file).value());
    index["vae"] = {"diffusers", "AutoencoderKL"};
    ASSERT_TRUE(WriteFileAtomically(index_file, index.dump()).ok());
    const fs::path part = OXBOW_SOURCE_DIR "/tests/golden/decoders/" + golden;
    fs::create_directories(model_ / "vae");
    for (const char* file : {"config.json", "graph.json.gz"}) {
      fs::copy_file(part / file, model_ / "vae" / file, fs::copy_options::overwrite_existing);
    }
    const auto decoder = model::ReadDecoder(ReadFile(part / "config.json").value(),
                                            io::ReadGraphFile(part / "graph.json.gz").value());
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    RandomStream random({.seed = 4});
    model::NamedTensors weights;
    for (const auto& [name, shape] : (*decoder)->shapes()) {
      at::Tensor tensor = at::empty(shape, at::kFloat);
      random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
      weights[name] = tensor;
    }
    Write("vae", weights);
  }
  void Write(const char* component, const model::NamedTensors& weights) {
    ASSERT_TRUE(
        io::WriteSafetensors(model_ / component / kWeights, {.tensors = io::AllFromTorch(weights)})
            .ok());
  }
  absl::StatusOr<LoadedModel> Load(uint32_t height, uint32_t width) const {
    v1::ModelConfig model;
    model.set_path(model_.string());
    v1::SamplingConfig sampling;
    sampling.set_height(height);
    sampling.set_width(width);
    return LoadModel(model, v1::PromptConfig(), sampling);
  }
  static std::unique_ptr<model::Policy> LoraOf(LoadedModel& loaded, at::ScalarType compute,
                                               model::BaseWeights base, bool on_host = false) {
    return model::Policy::Create({.architecture = loaded.architecture,
                                  .read_base = std::move(loaded.read_transformer),
                                  .trained = model::Trained::kLora,
                                  .lora = {.rank = 1, .alpha = 1, .targets = {"attn.to_q"}},
                                  .with_ema = false,
                                  .weights_on_host = on_host,
                                  .compute = compute,
                                  .base_weights = base,
                                  .checkpoint_activations = on_host})
        .value();
  }
  std::string DataErrorOf(uint32_t height = 16, uint32_t width = 40) const {
    const auto status = Load(height, width).status();
    EXPECT_EQ(ExitCodeOf(status), kExitData) << status;
    return std::string(status.message());
  }

  testing::ScopedDirectory scratch_;
  const fs::path model_ = scratch_.path() / "model";
};

TEST_F(LoadedModelTest, SizesAreInPixelsAndImagesComeFromTheAutoencoder) {
  const auto plain = Load(8, 20);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(plain->latent_shape, ElementsAre(1, 8, 20));
  EXPECT_TRUE(plain->autoencoder_config_json.empty());
  AddAutoencoder(kAutoencoder);
  const auto loaded = Load(16, 40);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->latent_shape, ElementsAre(1, 8, 20));
  EXPECT_FALSE(loaded->autoencoder_config_json.empty());
  EXPECT_EQ(loaded->decoder->Decode(at::zeros({2, 1, 8, 20})).sizes(),
            at::IntArrayRef({2, 16, 40, 3}));
  const auto odd = Load(12, 40).status();  // The digits' patches are 4 latents, 8 pixels a side.
  EXPECT_EQ(ExitCodeOf(odd), kExitUsage);
  EXPECT_THAT(std::string(odd.message()), AllOf(HasSubstr("multiples of 8"), HasSubstr("12 x 40")));
}

// A Wan has norms and shifts that do, and the time embedder.
TEST_F(LoadedModelTest, WhatStaysFloat32UnderALoraIsReadAsItIsStored) {
  const fs::path wan = scratch_.path() / "wan";
  fs::copy(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline_wan", wan, fs::copy_options::recursive);
  const auto stored = io::AllToTorch(io::ReadSafetensors(wan / "transformer" / kWeights)->tensors);
  ASSERT_TRUE(stored.ok()) << stored.status();
  v1::ModelConfig config;
  config.set_path(wan.string());
  config.set_trained(v1::TRAINED_PART_LORA);
  config.set_compute_dtype(v1::STORAGE_D_TYPE_BF16);
  v1::SamplingConfig sampling;
  sampling.set_guidance(1);
  const auto loaded = LoadModel(config, v1::PromptConfig(), sampling);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::set<std::string>& exact = loaded->architecture->float32();
  EXPECT_GT(exact.size(), loaded->architecture->buffers().size());
  for (const std::string& name : exact) {
    if (stored->contains(name)) {
      EXPECT_TRUE(at::equal(loaded->read_transformer(name).value(), stored->at(name))) << name;
    }
  }
}

// From the type they are stored in, whatever products are taken in.
TEST_F(LoadedModelTest, Int8WeightsAreRoundedOnceFromTheStoredOnes) {
  const auto stored =
      io::AllToTorch(io::ReadSafetensors(model_ / "transformer" / kWeights).value().tensors);
  ASSERT_TRUE(stored.ok()) << stored.status();
  for (const auto& [dtype, type] : {std::pair(v1::STORAGE_D_TYPE_F32, at::kFloat),
                                    std::pair(v1::STORAGE_D_TYPE_BF16, at::kBFloat16)}) {
    v1::ModelConfig config;
    config.set_path(model_.string());
    config.set_trained(v1::TRAINED_PART_LORA);
    config.set_compute_dtype(dtype);
    config.set_memory("int8");
    v1::SamplingConfig sampling;
    sampling.set_height(8);
    sampling.set_width(20);
    auto loaded = LoadModel(config, v1::PromptConfig(), sampling);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::set<std::string> int8 = model::Int8Names(*loaded->architecture);
    EXPECT_GT(int8.size(), 10u);
    const auto policy = LoraOf(*loaded, type, model::BaseWeights::kInt8);
    EXPECT_EQ(policy->frozen().size(), stored->size() + int8.size());
    for (const auto& [name, tensor] : *stored) {
      const at::Tensor& kept = policy->frozen().at(name);
      if (!int8.contains(name)) {
        EXPECT_NE(kept.scalar_type(), at::kChar) << name;
        continue;
      }
      const model::Int8Weight want = model::ToInt8(tensor, type);
      EXPECT_TRUE(at::equal(kept, want.values)) << name;
      EXPECT_TRUE(at::equal(policy->frozen().at(model::ScaleNameOf(name)), want.scale)) << name;
    }
  }
}

// The tensors are read one by one to where the policy keeps them.
// Promise: At the start a model is in memory once. Learner and workers read their base tensor by
// tensor to where it stays, also into pinned host memory: one tensor beside it, and no copy as it
// came.
TEST_F(LoadedModelTest, AtTheStartAModelIsInMemoryOnce) {
  const auto wide = testing::GraphSource("tests/testing/graphs/wide_digits.json.gz");
  const auto transformer = [&](const char* file) { return model_ / "transformer" / file; };
  std::filesystem::remove(transformer("graph.json.gz"));
  ASSERT_TRUE(WriteFileAtomically(transformer("config.json"), wide.config_json).ok());
  ASSERT_TRUE(WriteFileAtomically(transformer("graph.json"), wide.graph_json).ok());
  double bytes = 0;
  {
    model::NamedTensors weights;
    for (const auto& [name, shape] : model::ReadArchitecture(wide).value()->shapes()) {
      weights[name] = at::ones(shape);
      bytes += static_cast<double>(weights[name].nbytes());
    }
    Write("transformer", weights);
  }
  ASSERT_GT(bytes, 2e8);
  // A process's memory for its libraries comes and goes: that only adds to what is
  // measured.
  const auto taken_once = [&](bool lora, bool on_host) {
    const int64_t before = testing::ForgetPeakMemory();
    auto loaded = Load(8, 20);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    const auto policy =
        lora ? LoraOf(*loaded, at::kFloat, model::BaseWeights::kCompute, on_host)
             : model::Policy::Create({.architecture = loaded->architecture,
                                      .read_base = std::move(loaded->read_transformer),
                                      .with_reference = false,
                                      .with_ema = false,
                                      .weights_on_host = on_host,
                                      .checkpoint_activations = true})
                   .value();
    const auto taken = static_cast<double>(testing::OwnMemory("VmHWM") - before);
    const model::NamedTensors& kept = lora ? policy->frozen() : policy->parameters().tensors();
    EXPECT_EQ(kept.at("proj_out.bias").sum().item<float>(), 16);
    return taken;
  };
  for (const bool lora : {false, true}) {
    for (const bool on_host : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "lora " << lora << ", on the host " << on_host);
      std::vector<double> taken;
      for (int i = 0; i < 3; ++i) taken.push_back(taken_once(lora, on_host));
      EXPECT_LE(*std::min_element(taken.begin(), taken.end()), 1.2 * bytes);
      EXPECT_GE(*std::max_element(taken.begin(), taken.end()), 0.9 * bytes)
          << "the weights themselves are measured";
    }
  }
}

TEST_F(LoadedModelTest, AWeightThatIsNoNumberIsNamedWhenThePolicyIsMade) {
  const auto file = io::ReadSafetensors(model_ / "transformer" / kWeights);
  model::NamedTensors weights = io::AllToTorch(file->tensors).value();
  weights["proj_out.bias"].fill_(std::nan(""));
  Write("transformer", weights);
  auto loaded = Load(8, 20);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto status = model::Policy::Create({.architecture = loaded->architecture,
                                             .read_base = std::move(loaded->read_transformer)})
                          .status();
  EXPECT_EQ(ExitCodeOf(status), kExitData) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/transformer"), HasSubstr(kWeights), HasSubstr("proj_out.bias")));
}

TEST_F(LoadedModelTest, OnlyTheDecoderIsRead) {
  AddAutoencoder(kAutoencoder);
  const auto file = io::ReadSafetensors(model_ / "vae" / kWeights);
  model::NamedTensors weights = io::AllToTorch(file->tensors).value();
  weights["encoder.conv_in.bias"].fill_(std::nan(""));  // Refused where it is read.
  Write("vae", weights);
  EXPECT_TRUE(Load(16, 40).ok());
  weights["decoder.conv_in.bias"].fill_(std::nan(""));
  Write("vae", weights);
  EXPECT_THAT(DataErrorOf(), HasSubstr("decoder.conv_in.bias"));
}

TEST_F(LoadedModelTest, TensorsThatDoNotFitAreNamedWithTheirComponent) {
  AddAutoencoder(kAutoencoder);
  const auto file = io::ReadSafetensors(model_ / "vae" / kWeights);
  model::NamedTensors weights = io::AllToTorch(file->tensors).value();
  weights["encoder.stray"] = at::zeros({1});
  weights.erase("decoder.conv_out.bias");
  Write("vae", weights);
  EXPECT_THAT(DataErrorOf(), AllOf(HasSubstr("/vae"), HasSubstr("missing: decoder.conv_out.bias"),
                                   HasSubstr("unexpected: encoder.stray")));
  const auto transformer = io::ReadSafetensors(model_ / "transformer" / kWeights);
  weights = io::AllToTorch(transformer->tensors).value();
  weights["proj_out.bias"] = at::zeros({2});
  AddAutoencoder(kAutoencoder);
  Write("transformer", weights);
  EXPECT_THAT(DataErrorOf(), AllOf(HasSubstr("/transformer"), HasSubstr("proj_out.bias [2]")));
}

TEST_F(LoadedModelTest, AnotherModelsAutoencoderIsRefused) {
  AddAutoencoder("kl_decoder_flux");
  EXPECT_THAT(DataErrorOf(), HasSubstr("latent channels: 4 != 1"));
}

// The pipelines of video models are rows of their own; this is what they load.
TEST_F(LoadedModelTest, TheDecoderIsThatOfTheAutoencodersClass) {
  // One channel; two frames and two pixels of a side per latent.
  const fs::path tiny = OXBOW_SOURCE_DIR "/tests/golden/decoders/wan_decoder_twice";
  const std::string config = ReadFile(tiny / "config.json").value();
  const std::string graph = io::ReadGraphFile(tiny / "graph.json.gz").value();
  fs::create_directories(model_ / "vae");
  fs::copy(tiny / "graph.json.gz", model_ / "vae");
  model::NamedTensors weights;
  for (const auto& [name, shape] : (*model::ReadDecoder(config, graph))->shapes()) {
    weights[name] = at::zeros(shape);
  }
  weights["encoder.conv_in.bias"].fill_(std::nan(""));  // Refused where it is read.
  Write("vae", weights);
  io::DiffusersComponents components;
  components["vae"] = {.class_name = "AutoencoderKLWan",
                       .directory = model_ / "vae",
                       .config_json = config,
                       .weights_base = "diffusion_pytorch_model"};
  const auto loaded = LoadDecoder(components, /*channels=*/1, at::kCPU);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->factors.time, 2);
  EXPECT_EQ(loaded->factors.space, 2);
  EXPECT_EQ(loaded->decoder->Decode(at::zeros({2, 1, 3, 4, 5})).sizes(),
            at::IntArrayRef({2, 5, 8, 10, 3}));
  EXPECT_THAT(std::string(LoadDecoder(components, 16, at::kCPU).status().message()),
              HasSubstr("differ in latent channels: 1 != 16"));
  components["vae"].class_name = "AutoencoderKLQwenImage";
  EXPECT_THAT(std::string(LoadDecoder(components, 1, at::kCPU).status().message()),
              HasSubstr("AutoencoderKLQwenImage"));
}

}  // namespace
}  // namespace oxbow::run
