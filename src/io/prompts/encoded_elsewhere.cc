// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "io/prompts/prompt_store.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

constexpr char kMissingFile[] = "missing.jsonl";

absl::StatusOr<int64_t> WidthOf(const DiffusersComponent& transformer, const char* key) {
  const auto config = ParseJson(transformer.config_json);
  const auto& width = MemberOf(config, key);
  if (width.is_number_integer() && width.get<int64_t>() > 0) return width.get<int64_t>();
  return absl::FailedPreconditionError(absl::StrCat(
      (transformer.directory / "config.json").string(), ": '", key, "' is no positive number"));
}

absl::StatusOr<model::Shapes> ShapesOf(const DiffusersComponent& transformer, int64_t tokens) {
  OXBOW_ASSIGN_OR_RETURN(const int64_t width, WidthOf(transformer, "text_embed_dim"));
  OXBOW_ASSIGN_OR_RETURN(const int64_t pooled, WidthOf(transformer, "pooled_projection_dim"));
  return model::Shapes{{model::kPromptTokens, {1, tokens, width}},
                       {model::kPromptMask, {1, tokens}},
                       {model::kPooledPrompt, {1, pooled}}};
}

std::string Quoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

class EncodedElsewhere final : public TextEncoders {
 public:
  EncodedElsewhere(DiffusersComponents components, model::Shapes shapes, const Options& options)
      : components_(std::move(components)),
        model_(components_.at("transformer").directory.parent_path()),
        shapes_(std::move(shapes)),
        options_(options) {}

  // The command is whole: the texts lie in a file of the room.
  absl::Status CheckCanEncode(const std::vector<std::string>& texts,
                              const std::filesystem::path& room) const override {
    if (room.empty()) {
      return absl::FailedPreconditionError(
          "this pipeline's prompts are encoded outside, by tools/encode_prompts: name the "
          "directory "
          "that it filled: prompts.cache of a run, --prompts-cache of a command");
    }
    std::string lines;
    for (const std::string& text : texts) {
      const nlohmann::json line = {{"prompt", text}};
      absl::StrAppend(&lines, line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                      "\n");
    }
    const std::filesystem::path file = room / kMissingFile;
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(file, lines));
    return absl::FailedPreconditionError(absl::StrCat(
        texts.size(), " prompts are not in prompts.cache, and this pipeline's text encoders run ",
        "outside; encode them with: python3 tools/encode_prompts --model ", Quoted(model_.string()),
        " --cache ", Quoted(room.parent_path().string()), " --tokens ", options_.t5_length,
        options_.dtype == at::kBFloat16 ? " --dtype bf16" : "", " --prompts ",
        Quoted(file.string())));
  }

  absl::StatusOr<model::EncodedText> Encode(const std::vector<std::string>& texts) override {
    return CheckCanEncode(texts, {});
  }
  void Release() override {}
  bool loaded() const override { return false; }
  model::Conditioning Compose(const model::EncodedText& text) const override { return text; }
  const model::Shapes& row_shapes() const override { return shapes_; }
  absl::StatusOr<std::string> Identity() const override {
    return IdentityOfTextEncoders(components_,
                                  absl::StrCat("encoded elsewhere, tokens ", options_.t5_length,
                                               options_.dtype == at::kBFloat16 ? ", bf16" : ""));
  }

 private:
  const DiffusersComponents components_;
  const std::filesystem::path model_;
  const model::Shapes shapes_;
  const Options options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenEncodedElsewhere(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  const DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(model::Shapes shapes, ShapesOf(transformer, options.t5_length));
  return std::make_unique<EncodedElsewhere>(components, std::move(shapes), options);
}

}  // namespace oxbow::io
