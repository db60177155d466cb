// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_entry.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "core/model/image_decoder.h"
#include "io/diffusers_directory.h"
#include "io/film.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "run/loaded_model.h"

namespace oxbow::cli {

namespace {

constexpr size_t kCellsMax = 1024;
constexpr size_t kColumnsMax = 24;

// [n, C, H, W] or [n, C, F, H, W] -> uint8 [n, H, W, 1 or 3] or [n, F, H, W, 1 or 3].
at::Tensor ImagesOf(const at::Tensor& latents, const model::ImageDecoder* decoder) {
  if (decoder != nullptr) return decoder->Decode(latents);
  if (latents.size(1) == 1 || latents.size(1) == 3) return model::ToBytes(latents);
  const at::Tensor shown = latents.slice(1, 0, std::min<int64_t>(3, latents.size(1)));
  const at::Tensor colours = shown.size(1) == 3 ? shown : shown.slice(1, 0, 1);
  const at::Tensor largest = colours.abs().flatten(1).amax(1).clamp_min(1e-6);
  std::vector<int64_t> per_latent(static_cast<size_t>(colours.dim()), 1);
  per_latent[0] = colours.size(0);
  return model::ToBytes(colours / largest.view(per_latent));
}

// How many latents a trajectory has, or each member of a group.
int64_t LatentsEach(const v1::ReplayEntry& entry, int64_t count) {
  const int members = entry.group().trajectories_size();
  return members > 0 ? std::max<int64_t>(1, count / members) : count;
}

// The trajectory that latent `i` is of.
const v1::Trajectory& TrajectoryOf(const v1::ReplayEntry& entry, int64_t i, int64_t each) {
  const int members = entry.group().trajectories_size();
  if (members == 0) return entry.trajectory();
  return entry.group().trajectories(std::min(static_cast<int>(i / each), members - 1));
}

uint64_t IndexOf(const v1::ReplayEntry& entry, int64_t i, int64_t each) {
  return TrajectoryOf(entry, i, each).first_latent() + static_cast<uint64_t>(i % each);
}

// "x3 0.60": which latent, and its noise level.
std::string LabelOf(const v1::ReplayEntry& entry, uint64_t index) {
  if (index >= static_cast<uint64_t>(entry.sigmas_size())) return absl::StrCat("x", index);
  return absl::StrFormat("x%d %.2f", index, entry.sigmas(static_cast<int>(index)));
}

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

// A decoder for latents with `channels` channels; where the directory has no autoencoder, the
// latent is the image. kNotFound, kDataLoss or kFailedPrecondition name the file.
absl::StatusOr<std::unique_ptr<model::ImageDecoder>> LoadLatentDecoder(
    const std::filesystem::path& directory, int64_t channels) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(directory));
  OXBOW_ASSIGN_OR_RETURN(run::LoadedDecoder loaded,
                         run::LoadDecoder(components, channels, at::kCPU));
  return std::move(loaded.decoder);
}

}  // namespace

absl::StatusOr<at::Tensor> LatentsOf(const v1::ReplayEntry& entry) {
  const v1::Tensor& latents = entry.trajectory().latents();
  if (latents.shape_size() == 0 || latents.shape(0) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("entry has no latents: ", entry.entry_id()));
  }
  if (latents.shape_size() != 4 && latents.shape_size() != 5) {
    return absl::FailedPreconditionError(
        absl::StrCat("only latents [n, C, H, W] and [n, C, F, H, W] can be shown, these have ",
                     latents.shape_size(), " dimensions"));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, rpc::TensorFromProto(latents));
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, io::ToTorch(bytes));
  return tensor.to(at::kFloat);
}

std::vector<LatentFacts> FactsOf(const at::Tensor& latents, const v1::ReplayEntry& entry) {
  const int64_t each = LatentsEach(entry, latents.size(0));
  std::vector<LatentFacts> facts;
  for (int64_t i = 0; i < latents.size(0); ++i) {
    const at::Tensor latent = latents[i];
    facts.push_back({.sample = TrajectoryOf(entry, i, each).sample(),
                     .index = IndexOf(entry, i, each),
                     .min = latent.min().item<double>(),
                     .max = latent.max().item<double>(),
                     .mean = latent.mean().item<double>(),
                     .finite = at::isfinite(latent).all().item<bool>()});
  }
  return facts;
}

absl::StatusOr<Image8> StripOf(const v1::ReplayEntry& entry, const model::ImageDecoder* decoder) {
  const at::NoGradGuard no_grad;
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor latents, LatentsOf(entry));
  const int64_t per_row = LatentsEach(entry, latents.size(0));
  std::vector<io::FilmCell> cells;
  int64_t columns = std::min<int64_t>(per_row, int64_t{kColumnsMax});
  // One at a time: decoded images may be large.
  for (int64_t i = 0; i < latents.size(0) && cells.size() < kCellsMax; ++i) {
    const at::Tensor decoded = ImagesOf(latents.slice(0, i, i + 1), decoder);
    std::vector<Image8> frames = model::FramesOf(decoded, 0);
    const size_t every = (frames.size() + kColumnsMax - 1) / kColumnsMax;
    if (decoded.dim() == 5) columns = static_cast<int64_t>((frames.size() + every - 1) / every);
    const std::string label = LabelOf(entry, IndexOf(entry, i, per_row));
    for (size_t frame = 0; frame < frames.size(); frame += every) {
      cells.push_back({.frames = {std::move(frames[frame])},
                       .border = std::nullopt,
                       .label = frame == 0 ? label : absl::StrCat("frame ", frame)});
    }
  }
  io::GridOptions options;
  options.columns = static_cast<int>(columns);
  return std::move(io::FilmGrid(cells, options).frames.front());  // Drawn smaller if need be.
}

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
