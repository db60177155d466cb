// SPDX-License-Identifier: Apache-2.0
// For any files: a directory of a model is refused with one line, or has the components that its
// pipeline requires.
//
//   model_index.json, transformer/config.json, scheduler/scheduler_config.json, weight index,
//   header of a shard; separated by byte 30
#include "base/check.h"
#include "io/diffusers_directory.h"
#include "tests/fuzz/tokenizer_input.h"

namespace {

namespace fs = std::filesystem;

// Little-endian length of the header, the header, and 64 bytes of tensors.
std::string Shard(const std::string& header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(64, '\1');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  static const bool made = [] {
    for (const char* folder : {"transformer", "scheduler", "tokenizer", "text_encoder", "vae"}) {
      fs::create_directories(scratch.path() / folder);
      scratch.Write(std::string(folder) + "/config.json", "{}");
    }
    return true;
  }();
  (void)made;
  const auto parts = fuzz::Parts(data, size, 5);
  scratch.Write("model_index.json", parts[0]);
  scratch.Write("transformer/config.json", parts[1]);
  scratch.Write("scheduler/scheduler_config.json", parts[2]);
  scratch.Write("transformer/diffusion_pytorch_model.safetensors.index.json", parts[3]);
  scratch.Write("transformer/shard", Shard(parts[4]));
  const auto weights =
      io::WeightFiles::Open(scratch.path() / "transformer", "diffusion_pytorch_model");
  if (weights.ok()) {
    for (const auto& [name, header] : weights->headers()) {
      const std::string bytes(weights->BytesOf(name));
      OXBOW_CHECK(io::Validate({header.dtype, header.shape, bytes}).ok()) << name;
      OXBOW_CHECK(!weights->FileOf(name).empty()) << name;
    }
  }
  const auto components = io::OpenDiffusersDirectory(scratch.path());
  if (!components.ok()) {
    OXBOW_CHECK(components.status().message().find('\n') == std::string_view::npos)
        << components.status().ToString();
    return 0;
  }
  const auto pipeline = io::PipelineOf(*components);
  if (!pipeline.ok()) return 0;
  for (const io::PipelineComponent& wanted : (*pipeline)->components) {
    OXBOW_CHECK(!wanted.required || components->contains(wanted.name)) << wanted.name;
  }
  return 0;
}
