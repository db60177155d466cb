// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/picture_folder.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/film.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kFolderPictureBytesMax = 256 << 20;
constexpr size_t kNameBytesMax = 255;  // The limit of Linux's file systems.
constexpr int kQuality = 95;

std::filesystem::path GroupFolder(const std::filesystem::path& root, const SetPrompt& prompt) {
  return prompt.group.empty() ? root : root / prompt.group;
}

// GenEval's evaluator reads one line of JSON.
std::string MetadataLine(const v1::Prompt& prompt) {
  if (!prompt.metadata_json().empty()) return prompt.metadata_json() + "\n";
  return nlohmann::json{{"prompt", prompt.text()}}.dump() + "\n";
}

}  // namespace

absl::StatusOr<PictureFolder> PictureFolder::Create(std::filesystem::path root,
                                                    v1::PictureLayout layout, size_t pictures) {
  if (layout == v1::PICTURE_LAYOUT_HPSV2 && pictures != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout hpsv2 has one picture of each prompt, the set has ", pictures));
  }
  return PictureFolder(std::move(root), layout, pictures);
}

absl::StatusOr<std::filesystem::path> PictureFolder::PathOf(const SetPrompt& prompt,
                                                            size_t picture) const {
  switch (layout_) {
    case v1::PICTURE_LAYOUT_HPSV2:
      return GroupFolder(root_, prompt) / absl::StrFormat("%05d.jpg", prompt.number_in_file);
    case v1::PICTURE_LAYOUT_T2I_COMPBENCH: {
      const std::string name = absl::StrFormat("%s_%06d.png", prompt.prompt.text(),
                                               prompt.number_in_file * pictures_ + picture);
      if (name.find('/') != std::string::npos || name.size() > kNameBytesMax) {
        return absl::InvalidArgumentError(absl::StrCat(
            "layout t2i_compbench: a prompt with a `/`, or too long for a file's name: ",
            prompt.prompt.text()));
      }
      return GroupFolder(root_, prompt) / "samples" / name;
    }
    default:
      return root_ / absl::StrFormat("%05d", prompt.number) / "samples" /
             absl::StrFormat("%04d.png", picture);
  }
}

absl::Status PictureFolder::Write(const SetPrompt& prompt,
                                  const std::vector<std::vector<Image8>>& pictures) const {
  OXBOW_CHECK(pictures.size() == pictures_) << pictures.size() << " for " << pictures_;
  for (size_t i = 0; i < pictures.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path path, PathOf(prompt, i));
    OXBOW_RETURN_IF_ERROR(MakeDirectories(path.parent_path()));
    const bool jpeg = path.extension() == ".jpg";
    if (jpeg && pictures[i].size() > 1) {
      return absl::InvalidArgumentError(
          "layout hpsv2 has pictures, and these are videos: choose --layout geneval");
    }
    OXBOW_RETURN_IF_ERROR(
        WriteFileAtomically(path, jpeg ? io::EncodeJpeg(pictures[i].front(), kQuality)
                                       : io::EncodeFilm({.frames = pictures[i]})));
    if (layout_ == v1::PICTURE_LAYOUT_GENEVAL && i == 0) {
      OXBOW_RETURN_IF_ERROR(WriteFileAtomically(path.parent_path().parent_path() / "metadata.jsonl",
                                                MetadataLine(prompt.prompt)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<Image8>>> PictureFolder::Read(
    const SetPrompt& prompt) const {
  std::vector<std::vector<Image8>> pictures;
  for (size_t i = 0; i < pictures_; ++i) {
    OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path path, PathOf(prompt, i));
    OXBOW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kFolderPictureBytesMax));
    absl::StatusOr<io::Film> film = io::DecodePictureOrFilm(bytes);
    if (!film.ok()) return Annotate(film.status(), path.string());
    pictures.push_back(std::move(film->frames));
  }
  return pictures;
}

}  // namespace oxbow::cli
