// SPDX-License-Identifier: Apache-2.0
// Pictures of a set's prompts as files, in the folders that the official evaluators read.
//
//   geneval         00000/metadata.jsonl  00000/samples/0000.png     by prompt, then by picture
//   hpsv2           STYLE/00000.jpg                                  one picture of each prompt
//   t2i_compbench   CATEGORY/samples/PROMPT_000000.png               the number runs over a
//   category
//
// STYLE and CATEGORY are the file's group; without groups that folder is left out. A JPEG has
// quality 95: its evaluator reads no other format. A video is an animated PNG.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/image8.h"
#include "cli/evaluate/evaluation_set.h"

namespace oxbow::cli {

class PictureFolder {
 public:
  // A folder with `pictures` of each prompt. kInvalidArgument if the layout has only one.
  static absl::StatusOr<PictureFolder> Create(std::filesystem::path root, v1::PictureLayout layout,
                                              size_t pictures);

  // kInvalidArgument if the prompt cannot be the name of a file.
  absl::StatusOr<std::filesystem::path> PathOf(const SetPrompt& prompt, size_t picture) const;

  // Writes all pictures or videos of a prompt, and what belongs beside them. kUnavailable for a
  // disk that does not take them; kInvalidArgument for a video where the layout wants a JPEG.
  // Requires valid frames, as many pictures as the folder has of each prompt.
  absl::Status Write(const SetPrompt& prompt,
                     const std::vector<std::vector<Image8>>& pictures) const;

  // All pictures of a prompt. kNotFound, kInvalidArgument or kDataLoss names the file.
  absl::StatusOr<std::vector<std::vector<Image8>>> Read(const SetPrompt& prompt) const;

 private:
  PictureFolder(std::filesystem::path root, v1::PictureLayout layout, size_t pictures)
      : root_(std::move(root)), layout_(layout), pictures_(pictures) {}

  std::filesystem::path root_;
  v1::PictureLayout layout_;
  size_t pictures_;
};

}  // namespace oxbow::cli
