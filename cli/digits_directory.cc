#include "cli/digits_directory.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "core/pretrain/pretraining.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr char kBegin[] = "<|startoftext|>";
constexpr char kEnd[] = "<|endoftext|>";
// Makes one token of the word "text".
constexpr const char* kMerges[][2] = {{"t", "e"}, {"x", "t</w>"}, {"te", "xt</w>"}};

std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The byte alphabet of GPT-2 and CLIP in the order of its ids: printable bytes as themselves, then
// the others as code points from 256 on.
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  const auto add = [&](uint32_t first, uint32_t last) {
    for (uint32_t code = first; code <= last; ++code) alphabet.push_back(Utf8(code));
  };
  add('!', '~');
  add(0xa1, 0xac);
  add(0xae, 0xff);
  add(256, 256 + 255 - static_cast<uint32_t>(alphabet.size()));
  return alphabet;
}

ordered_json Vocabulary() {
  ordered_json vocabulary;
  int id = 0;
  const std::vector<std::string> alphabet = ByteAlphabet();
  for (const std::string& symbol : alphabet) vocabulary[symbol] = id++;
  for (const std::string& symbol : alphabet) vocabulary[symbol + "</w>"] = id++;
  for (const auto& merge : kMerges) vocabulary[absl::StrCat(merge[0], merge[1])] = id++;
  vocabulary[kBegin] = id++;
  vocabulary[kEnd] = id++;
  return vocabulary;
}

absl::Status WriteJson(const fs::path& path, const ordered_json& json) {
  return WriteFileAtomically(path, json.dump(2) + "\n");
}

absl::Status WriteTokenizer(const fs::path& folder, int64_t length_max) {
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : kMerges) absl::StrAppend(&merges, merge[0], " ", merge[1], "\n");
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(folder / "vocab.json", Vocabulary().dump() + "\n"));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(folder / "merges.txt", merges));
  const ordered_json tokens = {
      {"bos_token", kBegin}, {"eos_token", kEnd}, {"pad_token", kEnd}, {"unk_token", kEnd}};
  OXBOW_RETURN_IF_ERROR(WriteJson(folder / "special_tokens_map.json", tokens));
  ordered_json config = {{"add_prefix_space", false},
                         {"do_lower_case", true},
                         {"errors", "replace"},
                         {"model_max_length", length_max},
                         {"tokenizer_class", "CLIPTokenizer"}};
  config.update(tokens);
  return WriteJson(folder / "tokenizer_config.json", config);
}

absl::Status WriteWeights(const fs::path& path, const model::NamedTensors& tensors) {
  io::Safetensors file;
  for (const auto& [name, tensor] : tensors) file.tensors[name] = io::FromTorch(tensor);
  return io::WriteSafetensors(path, file);
}

ordered_json ModelIndex() {
  return {{"_class_name", "StableDiffusion3Pipeline"},
          {"_diffusers_version", "0.35.0"},
          {"scheduler", {"diffusers", "FlowMatchEulerDiscreteScheduler"}},
          {"text_encoder", {"transformers", "CLIPTextModelWithProjection"}},
          {"text_encoder_2", {nullptr, nullptr}},
          {"text_encoder_3", {nullptr, nullptr}},
          {"tokenizer", {"transformers", "CLIPTokenizer"}},
          {"tokenizer_2", {nullptr, nullptr}},
          {"tokenizer_3", {nullptr, nullptr}},
          {"transformer", {"diffusers", "SD3Transformer2DModel"}},
          {"vae", {nullptr, nullptr}}};
}

absl::Status WriteParts(const fs::path& root, const model::NamedTensors& transformer,
                        const model::NamedTensors& text) {
  const model::ClipTextParams text_params = task::DigitsTextParams();
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(root / "transformer/config.json",
                                            model::Sd3ConfigJson(task::DigitsTransformerParams())));
  OXBOW_RETURN_IF_ERROR(
      WriteWeights(root / "transformer/diffusion_pytorch_model.safetensors", transformer));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(root / "text_encoder/config.json",
                                            model::ClipTextConfigJson(text_params)));
  OXBOW_RETURN_IF_ERROR(WriteWeights(root / "text_encoder/model.safetensors", text));
  OXBOW_RETURN_IF_ERROR(WriteTokenizer(root / "tokenizer", text_params.max_position_embeddings));
  OXBOW_RETURN_IF_ERROR(WriteJson(root / "scheduler/scheduler_config.json",
                                  {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
                                   {"_diffusers_version", "0.35.0"},
                                   {"num_train_timesteps", 1000},
                                   {"shift", kDigitsShift}}));
  return WriteJson(root / "model_index.json", ModelIndex());
}

}  // namespace

absl::Status WriteDigitsDirectory(const fs::path& directory, const model::NamedTensors& transformer,
                                  const model::NamedTensors& text, bool replace) {
  const fs::path target = fs::absolute(directory).lexically_normal();
  if (fs::exists(target) && !replace) {
    return absl::InvalidArgumentError(
        absl::StrCat("directory exists (remove it or give --replace): ", target.string()));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  for (const char* part : {"transformer", "text_encoder", "tokenizer", "scheduler"}) {
    fs::create_directories(partial / part, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot make directory (", error.message(), "): ", partial.string()));
    }
  }
  const absl::Status status = WriteParts(partial, transformer, text);
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  fs::remove_all(target, error);
  fs::rename(partial, target, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot rename (", error.message(), "): ", partial.string()));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::cli
