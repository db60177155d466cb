// SPDX-License-Identifier: Apache-2.0
// Golden decoders of tools/make_decoder_goldens.py: a directory each of tests/golden/decoders, or
// of the one that OXBOW_DECODER_GOLDENS names.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "core/model/named_tensors.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::model {

inline std::filesystem::path DecoderGoldens() {
  const char* directory = std::getenv("OXBOW_DECODER_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/decoders";
}

inline std::vector<std::string> DecoderNames(const std::string& prefix = "") {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DecoderGoldens())) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The last latents of a diffusers pipeline, and the pixels that its autoencoder made of them.
struct DecoderGolden {
  explicit DecoderGolden(const std::string& name)
      : config(*ReadFile(DecoderGoldens() / name / "config.json")),
        graph(*io::ReadGraphFile(DecoderGoldens() / name / "graph.json.gz")) {
    const auto file = *io::ReadSafetensors(DecoderGoldens() / name / "golden.safetensors");
    cases = std::stoi(file.metadata.at("cases"));
    tensors = *io::AllToTorch(file.tensors);
    for (const auto& [key, tensor] : tensors) {
      if (key.starts_with("weight.")) weights[key.substr(7)] = tensor.to(at::kFloat);
    }
  }
  at::Tensor Latents(int number) const { return tensors.at(absl::StrCat(number, ".latents")); }
  at::Tensor Pixels(int number) const { return tensors.at(absl::StrCat(number, ".pixels")); }

  std::string config, graph;
  int cases = 0;
  NamedTensors tensors, weights;  // All, and those that the graph reads.
};

}  // namespace oxbow::model
