// SPDX-License-Identifier: Apache-2.0
// Adapters of exported networks in files: the pipelines of diffusers and peft loaded these very
// files, and computed the recorded velocities with them (tools/check_exported_adapter.py).
#include <ATen/core/grad_mode.h>

#include "base/sha256.h"
#include "io/lora_file.h"
#include "tests/golden/exported_golden.h"

namespace oxbow::model {
namespace {

// Relative to the largest velocity. How products are summed depends on the processor.
constexpr double kTolerance = 2.5e-5;

// Promise: An exported graph is diffusers' network.
class ExportedAdapterTest : public ExportedGolden {
 protected:
  // TEST_TMPDIR says where, for the tool.
  std::filesystem::path Written() const {
    const std::filesystem::path directory =
        std::filesystem::path(::testing::TempDir()) / GetParam();
    const io::LoraExport lora{.tensors = io::AllFromTorch(adapter_),
                              .rank = spec_.rank,
                              .alpha = spec_.alpha,
                              .targets = spec_.targets,
                              .base_model = "base",
                              .provenance = {{"oxbow.step", "7"}}};
    EXPECT_TRUE(io::WriteDiffusersLora(directory, lora).ok());
    EXPECT_TRUE(io::WritePeftLora(directory / "peft", lora).ok());
    return directory;
  }
};

TEST_P(ExportedAdapterTest, PipelinesOfDiffusersAndPeftLoadTheseFilesAsWeMeanThem) {
  const std::filesystem::path directory = Written();
  const std::filesystem::path file = ExportedGoldens() / GetParam() / "exported.safetensors";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "nothing was recorded for " << GetParam();
  const auto recorded = io::ReadSafetensors(file).value();
  for (const char* name : {"pytorch_lora_weights.safetensors", "peft/adapter_model.safetensors",
                           "peft/adapter_config.json"}) {
    EXPECT_EQ(Sha256Hex(ReadFile(directory / name).value()), recorded.metadata.at(name))
        << name << ": check and record it again with tools/check_exported_adapter.py";
  }
  const at::NoGradGuard no_grad;
  const LoraAdapter adapter{.tensors = adapter_, .scale = scale_};
  const at::Tensor v = Velocity(*Network(weights_, /*recompute=*/false, &adapter), cases_.at(0));
  for (const char* loader : {"diffusers", "peft"}) {
    const at::Tensor theirs = *io::ToTorch(recorded.tensors.at(loader));
    EXPECT_LE(Largest(v - theirs), kTolerance * Largest(theirs)) << loader;
  }
}

INSTANTIATE_TEST_SUITE_P(Exported, ExportedAdapterTest, ::testing::ValuesIn(ExportedNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace oxbow::model
