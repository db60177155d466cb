// SPDX-License-Identifier: Apache-2.0
// Encoded prompts on disk, so that text encoders run once per prompt and not once per start.
//
//   DIRECTORY/IDENTITY/ab/abcd....safetensors    one text: what the encoders say about it
//
// IDENTITY is the first 16 digits of TextEncoders::Identity(), and the file is named by the SHA-256
// of the text: another model, another T5 length and another text are other files, so that nothing
// is ever out of date. A file is written whole or not at all; processes may share a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/lora.h"
#include "core/model/text_conditioning.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

// Bytes that the file of a text takes on a disk. `half`: its encoders compute in bfloat16, whose
// numbers are kept in 2 bytes.
uint64_t StoredBytes(const model::Shapes& row_shapes, bool half);

// Whether DIRECTORY has the text, of whichever encoders.
bool IsStored(const std::filesystem::path& directory, const std::string& text);

class PromptStore {
 public:
  // `row_shapes`: every tensor of an entry. Makes the directory. kUnavailable if it cannot.
  static absl::StatusOr<PromptStore> Open(const std::filesystem::path& directory,
                                          const std::string& identity, model::Shapes row_shapes);

  bool Has(const std::string& text) const;

  // Nothing if the text was never stored. kDataLoss names a file that is not what it should be.
  absl::StatusOr<std::optional<model::EncodedText>> Read(const std::string& text) const;

  // Requires the tensors and shapes that the store was opened for.
  absl::Status Write(const std::string& text, const model::EncodedText& row);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  PromptStore(std::filesystem::path directory, std::string identity, model::Shapes row_shapes)
      : directory_(std::move(directory)),
        identity_(std::move(identity)),
        row_shapes_(std::move(row_shapes)) {}
  std::filesystem::path PathOf(const std::string& text) const;

  std::filesystem::path directory_;  // With the identity.
  std::string identity_;
  model::Shapes row_shapes_;
  std::set<std::string> swept_;  // Folders whose old temporary files are gone.
};

// The identity of a set of text encoders; what one encoded serves another of the same identity:
// SHA-256 in hexadecimal digits over the configs, the tokenizers' files and every byte of the
// weights of all text components (io/model_digest.h), and `settings`. Where the directory lies and
// how its weights are split into files plays no part.
absl::StatusOr<std::string> IdentityOfTextEncoders(const DiffusersComponents& components,
                                                   const std::string& settings);

}  // namespace oxbow::io
