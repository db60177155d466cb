// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_entry.h"

#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/replay/replay_entry_text.h"
#include "cli/replay/replay_strip.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "rpc/convert.h"

namespace oxbow::cli {
namespace {

struct ShownEntry {
  v1::ReplayEntry entry;
  ReplayRow row;
  std::vector<LatentFacts> latents;
};

absl::StatusOr<ShownEntry> ReadEntry(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const Looked looked, Look(flags.place, flags.timeout()));
  ShownEntry shown;
  OXBOW_ASSIGN_OR_RETURN(shown.entry, looked.source().Read(EntryId(flags.entry)));
  shown.row = RowOf(shown.entry, looked.context);
  const auto latents = LatentsOf(shown.entry);
  if (latents.ok()) {
    shown.latents = FactsOf(*latents, shown.entry);
  } else if (!absl::IsFailedPrecondition(latents.status())) {
    return latents.status();
  }
  return shown;
}

// The stored arrays in their own types: `latents`, and `conditioning.PART` for each part. False if
// there are none.
absl::StatusOr<bool> WriteArrays(const v1::ReplayEntry& entry, const std::string& path) {
  io::Safetensors file;
  if (!entry.trajectory().latents().data().empty()) {
    OXBOW_ASSIGN_OR_RETURN(file.tensors["latents"],
                           rpc::TensorFromProto(entry.trajectory().latents()));
  }
  for (const rpc::PartHeld& part : rpc::PartsOf(entry.conditioning())) {
    OXBOW_ASSIGN_OR_RETURN(file.tensors["conditioning." + part.name],
                           rpc::TensorFromProto(*part.tensor));
  }
  if (file.tensors.empty()) return false;
  OXBOW_RETURN_IF_ERROR(io::WriteSafetensors(path, file));
  return true;
}

}  // namespace

absl::Status ShowEntry(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ShownEntry shown, ReadEntry(flags));
  if (flags.json()) {
    std::cout << EntryJson(shown.entry, shown.row, shown.latents).dump(2) << "\n";
  } else {
    std::cout << EntryText(shown.entry, shown.row, shown.latents);
  }
  return absl::OkStatus();
}

absl::Status ExportEntry(const ReplayFlags& flags) {
  OXBOW_RETURN_IF_ERROR(CheckPlace(flags.out, /*folder=*/true));
  OXBOW_ASSIGN_OR_RETURN(const ShownEntry shown, ReadEntry(flags));
  OXBOW_RETURN_IF_ERROR(MakeDirectories(flags.out));
  const std::string stem =
      (std::filesystem::path(flags.out) / absl::StrCat("entry_", flags.entry)).string();
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(
      stem + ".json", EntryJson(shown.entry, shown.row, shown.latents).dump(2) + "\n"));
  std::cout << stem << ".json\n";
  OXBOW_ASSIGN_OR_RETURN(const bool arrays, WriteArrays(shown.entry, stem + ".safetensors"));
  if (arrays) std::cout << stem << ".safetensors\n";
  const std::string& picture = shown.entry.trajectory().picture();
  if (const auto facts = io::FactsOfPicture(picture); facts.has_value()) {
    const std::string file = absl::StrCat(stem, ".picture.", facts->extension);
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(file, picture));
    std::cout << file << "\n";
  }
  if (shown.latents.empty()) {
    std::cout << "(no latents that could be drawn)\n";
    return absl::OkStatus();
  }
  std::unique_ptr<model::ImageDecoder> decoder;
  if (!flags.model.empty()) {
    const int64_t channels = shown.entry.trajectory().latents().shape(1);
    OXBOW_ASSIGN_OR_RETURN(decoder, LoadLatentDecoder(flags.model, channels));
  }
  OXBOW_ASSIGN_OR_RETURN(const Image8 strip, StripOf(shown.entry, decoder.get()));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(stem + ".png", io::EncodePng(strip)));
  std::cout << stem << ".png\n";
  return absl::OkStatus();
}

}  // namespace oxbow::cli
