// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/dry_decoders.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "core/model/image_decoder.h"
#include "io/graph_files.h"

namespace oxbow::rehearsal {
namespace {

using Decoder = std::shared_ptr<const model::DecoderArchitecture>;

Decoder Read(const std::string& config, const std::string& graph = "") {
  auto decoder = model::ReadDecoder(config, graph);
  OXBOW_CHECK(decoder.ok()) << decoder.status().ToString();
  return *std::move(decoder);
}

// A shipped graph, with its config.
Decoder Shipped(const std::string& file) {
  const auto json = io::ReadGraphFile(OXBOW_SOURCE_DIR "/models/graphs/" + file);
  OXBOW_CHECK(json.ok()) << json.status().ToString();
  const auto graph = nlohmann::json::parse(*json);
  nlohmann::json config = graph["config"];
  config["_class_name"] = graph["class"];
  return Read(config.dump(), *json);
}

}  // namespace

std::vector<DryDecoding> DryDecodings() {
  const Decoder sd35 = Shipped("AutoencoderKL-sd3.json.gz");
  const Decoder wan = Shipped("AutoencoderKLWan-wan2.1-decoder.json.gz");
  return {{"sd35-decode-image", sd35, {16, 64, 64}, 1},
          // More than are decoded at once.
          {"sd35-decode-20-images-of-128", sd35, {16, 16, 16}, 20},
          {"sd35-decode-wide-image", sd35, {16, 16, 48}, 1},
          {"wan-decode-2-videos-of-33", wan, {16, 9, 30, 52}, 2},
          {"wan-decode-video-of-5", wan, {16, 2, 60, 104}, 1},
          {"qwen-image-decode-4-images",
           Shipped("AutoencoderKLQwenImage-qwen-image-decoder.json.gz"),
           {16, 64, 64},
           4},
          {"flux2-decode-3-images", Shipped("AutoencoderKLFlux2-flux.2.json.gz"), {128, 32, 32}, 3},
          {"ltx-decode-2-videos-of-33",
           Shipped("AutoencoderKLLTXVideo-ltx-video-0.9.1.json.gz"),
           {128, 5, 16, 24},
           2},
          {"hunyuan-decode-video-of-33",
           Shipped("AutoencoderKLHunyuanVideo-hunyuan-video-decoder.json.gz"),
           {16, 9, 32, 52},
           1}};
}

DryFigures Rehearse(const DryDecoding& work) {
  model::NamedTensors weights;
  for (const auto& [name, shape] : work.architecture->shapes()) {
    if (!work.architecture->InDecoder(name)) continue;
    weights[name] = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
  }
  const auto decoder = work.architecture->Make(weights);
  OXBOW_CHECK(decoder.ok()) << decoder.status().ToString();
  std::vector<int64_t> shape = work.latent;
  shape.insert(shape.begin(), work.rows);
  const at::Tensor latents = at::zeros(shape);
  return FiguresOf([&] { (void)model::DecodeFrames(**decoder, latents); });
}

uint64_t PlannedBytes(const DryDecoding& work) {
  return work.architecture->DecodingBytes(work.latent, work.rows, /*on_cpu=*/false);
}

}  // namespace oxbow::rehearsal
