// SPDX-License-Identifier: Apache-2.0
// A decoder of its published size with random weights: milliseconds of decoding in float32 and with
// products in bfloat16, how far their pictures are apart, and memory.
//
//   decoder_bench vae/config.json --device cuda:0 --rows 24
//   decoder_bench models/graphs/AutoencoderKLFlux2-flux.2.json.gz --device cuda:0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/exit_code.h"
#include "base/status_macros.h"
#include "bench/measure.h"
#include "core/model/decoder_architecture.h"
#include "core/model/device.h"
#include "core/model/image_decoder.h"
#include "io/graph_files.h"

namespace oxbow {
namespace {

using DecoderPtr = std::shared_ptr<const model::DecoderArchitecture>;

struct Flags {
  std::string file, device = "cpu";
  int64_t rows = 8, height = 512, width = 512, frames = 1;
  int threads = 1;
  bench::Report report;
};

// A graph has its config in it.
absl::StatusOr<DecoderPtr> Read(const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const std::string json, io::ReadGraphFile(file));
  const auto parsed = nlohmann::json::parse(json);
  if (!parsed.contains("class")) return model::ReadDecoder(json);
  nlohmann::json config = parsed["config"];
  config["_class_name"] = parsed["class"];
  return model::ReadDecoder(config.dump(), json);
}

// Weights that keep the size of what goes through them, so that pictures are neither grey nor
// saturated.
model::NamedTensors RandomWeights(const model::DecoderArchitecture& architecture,
                                  at::Device device) {
  model::NamedTensors weights;
  for (const auto& [name, shape] : architecture.shapes()) {
    if (!architecture.InDecoder(name)) continue;
    const auto options = at::TensorOptions(device).dtype(at::kFloat);
    if (shape.size() < 2) {
      weights[name] = name.ends_with("bias") ? at::zeros(shape, options) : at::ones(shape, options);
      continue;
    }
    const auto inner = static_cast<double>(c10::multiply_integers(shape) / shape[0]);
    weights[name] = at::randn(shape, options).mul_(1 / std::sqrt(inner));
  }
  return weights;
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(flags.threads);
  at::manual_seed(1);
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, model::DeviceNamed(flags.device));
  OXBOW_ASSIGN_OR_RETURN(const DecoderPtr architecture, Read(flags.file));
  OXBOW_ASSIGN_OR_RETURN(const auto decoder,
                         architecture->Make(RandomWeights(*architecture, device)));
  const model::LatentFactors factors = architecture->factors();
  std::vector<int64_t> shape = {flags.rows, architecture->latent_channels()};
  if (factors.time > 1) shape.push_back((flags.frames - 1) / factors.time + 1);
  shape.push_back(flags.height / factors.space);
  shape.push_back(flags.width / factors.space);
  const at::Tensor latents = at::randn(shape).to(device);
  std::printf("%s, %ld of %ld x %ld x %ld pixels on %s\n", architecture->class_name().c_str(),
              flags.rows, flags.frames, flags.height, flags.width, flags.device.c_str());
  const c10::InferenceMode no_gradients;
  const auto decode = [&](at::ScalarType type) {
    const model::AutocastScope scope(device.type(), type);
    return decoder->Decode(latents).cpu();
  };
  (void)bench::Measure("decode, f32", flags.report, device, [&] { (void)decode(at::kFloat); });
  std::printf("%-22s %9.0f MiB at most\n", "memory", bench::PeakMebibytes(device));
  (void)bench::Measure("decode, bf16", flags.report, device, [&] { (void)decode(at::kBFloat16); });
  const at::Tensor apart =
      (decode(at::kFloat).to(at::kFloat) - decode(at::kBFloat16).to(at::kFloat)).abs();
  std::printf("%-22s %9.3f of 255 on average, %.0f at most\n", "bf16 pixels apart by",
              apart.mean().item<double>(), apart.max().item<double>());
  return absl::OkStatus();
}

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  oxbow::Flags flags;
  CLI::App app("A decoder of its published size, with random weights: speed and memory.");
  app.option_defaults()->always_capture_default();
  app.add_option("file", flags.file, "vae/config.json, or a decoder's graph")->required();
  app.add_option("--device", flags.device, "cpu or cuda:N");
  app.add_option("--rows", flags.rows)->check(CLI::Range(1, 4096));
  app.add_option("--height", flags.height, "in pixels");
  app.add_option("--width", flags.width, "in pixels");
  app.add_option("--frames", flags.frames, "of a video");
  app.add_option("--repeat", flags.report.repeat)->check(CLI::Range(1, 1000));
  app.add_option("--threads", flags.threads);
  app.add_option("--profile", flags.report.kernels,
                 "on a GPU: name so many of the longest kernels");
  app.add_option("--peak-tflops", flags.report.peak_tflops, "of the device, for the MFU");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = oxbow::Run(flags);
  if (!status.ok()) std::cerr << "decoder_bench: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
