#include "cli/model/pretrained_directory.h"

#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "io/clip_tokenizer.h"
#include "io/diffusers_directory.h"
#include "io/tensor_torch.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

io::DiffusersContent ContentOf(const tasks::TaskTensors& task,
                               const model::NamedTensors& transformer,
                               const model::NamedTensors& text) {
  const model::ClipTextParams text_params = task.text();
  return {
      .transformer_config_json = model::Sd3ConfigJson(task.transformer()),
      .transformer = io::AllFromTorch(transformer),
      .text_encoder_config_json = model::ClipTextConfigJson(text_params),
      .text_encoder = io::AllFromTorch(text),
      .tokenizer_files = io::ClipTokenizerFiles(task.merges(), text_params.max_position_embeddings),
      .scheduler_config_json = "",  // A plain one: shift kPretrainedShift.
      .metadata = {}};
}

}  // namespace

absl::Status WritePretrainedDirectory(const fs::path& directory, const tasks::TaskTensors& task,
                                      const model::NamedTensors& transformer,
                                      const model::NamedTensors& text, bool replace) {
  const fs::path target = fs::absolute(directory).lexically_normal();
  if (fs::exists(target) && !replace) {
    return absl::InvalidArgumentError(
        absl::StrCat("directory exists (remove it or give --replace): ", target.string()));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  const absl::Status status =
      io::WriteDiffusersDirectory(partial, ContentOf(task, transformer, text));
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
