// SPDX-License-Identifier: Apache-2.0
// Prompts as conditioning: from disk where they were encoded before, else through the text
// encoders, which are only then in memory. The one room that `oxbow encode` fills and learners
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "io/diffusers_directory.h"
#include "io/prompts/prompt_store.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

class EncodedPrompts {
 public:
  struct Options {
    std::filesystem::path directory;  // Empty: nothing is kept on disk.
    TextEncoders::Options encoders;
    size_t batch = 16;  // Texts that are encoded at a time.
  };

  // As TextEncoders::Open and PromptStore::Open.
  static absl::StatusOr<std::unique_ptr<EncodedPrompts>> Open(const DiffusersComponents& components,
                                                              const Options& options);

  // One row per text, float32. Requires at least one text.
  absl::StatusOr<model::Conditioning> Get(const std::vector<std::string>& texts);

  // The texts that are missing on disk, each once, in this order; an error if they cannot be
  // encoded here, with the command that does it. Requires stored().
  absl::StatusOr<std::vector<std::string>> Missing(const std::vector<std::string>& texts) const;

  // How far Prepare is, out of the texts that were missing on disk.
  struct Progress {
    size_t done = 0;
    size_t total = 0;
  };

  // Puts onto disk what is missing there, and tells `show` before the first batch and after each.
  // Processes that start together share the work if each begins at another fraction `from` of what
  // is missing: a batch leaves out what others have done meanwhile. Returns how many texts were
  // missing. Requires stored() and 0 <= from < 1.
  absl::StatusOr<size_t> Prepare(const std::vector<std::string>& texts,
                                 const std::function<void(const Progress&)>& show, double from = 0);

  // Frees the encoders' weights. Texts that were not encoded yet bring them back.
  void Release() { encoders_->Release(); }

  bool stored() const { return store_.has_value(); }
  const std::filesystem::path& directory() const { return store_->directory(); }  // If stored().
  const TextEncoders& encoders() const { return *encoders_; }

 private:
  EncodedPrompts(std::unique_ptr<TextEncoders> encoders, std::optional<PromptStore> store,
                 size_t batch)
      : encoders_(std::move(encoders)), store_(std::move(store)), batch_(batch) {}

  // Reads the text's file, if there is one.
  absl::StatusOr<std::optional<model::EncodedText>> Find(const std::string& text) const;
  absl::Status CheckCanEncode(const std::vector<std::string>& missing) const;
  // Encodes up to a batch of texts into rows, onto disk as well.
  absl::StatusOr<std::vector<model::EncodedText>> EncodeBatch(
      const std::vector<std::string>& texts);

  const std::unique_ptr<TextEncoders> encoders_;
  std::optional<PromptStore> store_;
  const size_t batch_;
};

}  // namespace oxbow::io
