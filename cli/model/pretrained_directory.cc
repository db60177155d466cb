// SPDX-License-Identifier: Apache-2.0
#include "cli/model/pretrained_directory.h"

#include <system_error>

#include "absl/strings/str_cat.h"
#include "io/clip_tokenizer.h"
#include "io/directory_writer.h"
#include "io/t5_tokenizer.h"
#include "io/tensor_torch.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// "text_encoder_2" has "tokenizer_2".
std::string TokenizerOf(const std::string& encoder) {
  return "tokenizer" + encoder.substr(std::string("text_encoder").size());
}

io::DirectoryContent ContentOf(const PretrainedModel& model,
                               const tasks::ComponentWeights& weights) {
  io::DirectoryContent content{.pipeline = model.pipeline, .components = {}, .metadata = {}};
  content.components[tasks::kTransformer] = {
      .files = model.transformer_files,
      .weights = io::AllFromTorch(weights.at(tasks::kTransformer))};
  for (const tasks::PretrainedEncoder& encoder : model.networks.text->encoders()) {
    content.components[encoder.component] = {
        .files = {{"config.json", encoder.config_json}},
        .weights = io::AllFromTorch(weights.at(encoder.component))};
    content.components[TokenizerOf(encoder.component)].files =
        encoder.pieces.empty() ? io::ClipTokenizerFiles(model.task.merges(), encoder.length)
                               : io::T5TokenizerFiles(encoder.pieces, encoder.length);
  }
  return content;
}

}  // namespace

absl::Status WritePretrainedDirectory(const fs::path& directory, const PretrainedModel& model,
                                      const tasks::ComponentWeights& weights, bool replace) {
  const fs::path target = fs::absolute(directory).lexically_normal();
  if (fs::exists(target) && !replace) {
    return absl::InvalidArgumentError(
        absl::StrCat("directory exists (remove it or give --replace): ", target.string()));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  const absl::Status status = io::WriteDirectory(partial, ContentOf(model, weights));
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
