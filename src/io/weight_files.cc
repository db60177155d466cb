// SPDX-License-Identifier: Apache-2.0
#include "io/weight_files.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kIndexBytesMax = 64 << 20;

// File name of each tensor's shard.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kIndexBytesMax));
  const Json index = ParseJson(text);
  const Json& map = MemberOf(index, "weight_map");
  if (!map.is_object()) return absl::DataLossError("no weight_map: " + path.string());
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : map.items()) {
    // A plain file name: a shard must not lead out of the directory.
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return absl::DataLossError(
          absl::StrCat("weight_map: no file name for ", tensor, ": ", path.string()));
    }
    shards[tensor] = file.get<std::string>();
  }
  if (shards.empty()) return absl::DataLossError("weight_map is empty: " + path.string());
  return shards;
}

}  // namespace

absl::Status WeightFiles::AddFile(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path.string()));
  auto header = ParseSafetensorsHeader(file.bytes());
  if (!header.ok()) return Annotate(header.status(), path.string());
  for (auto& [name, entry] : header->entries) {
    const std::string_view bytes = file.bytes().substr(entry.begin, entry.end - entry.begin);
    const auto [placed, fresh] = places_.emplace(name, Place{files_.size(), bytes});
    if (!fresh) {
      return absl::DataLossError(absl::StrCat("tensor '", name, "' is in two shards: ",
                                              paths_[placed->second.file], " and ", path.string()));
    }
    headers_.emplace(name, std::move(entry.tensor));
  }
  metadata_.merge(header->metadata);
  files_.push_back(std::move(file));
  paths_.push_back(path.string());
  return absl::OkStatus();
}

absl::StatusOr<WeightFiles> WeightFiles::OpenFile(const fs::path& file) {
  WeightFiles weights;
  OXBOW_RETURN_IF_ERROR(weights.AddFile(file));
  return weights;
}

absl::StatusOr<WeightFiles> WeightFiles::Open(const fs::path& directory, const std::string& base) {
  for (const std::string variant : {"", ".fp16"}) {
    const fs::path index = directory / absl::StrCat(base, ".safetensors.index", variant, ".json");
    if (!fs::exists(index)) {
      const fs::path single = directory / absl::StrCat(base, variant, ".safetensors");
      if (!fs::exists(single)) continue;
      return OpenFile(single);
    }
    OXBOW_ASSIGN_OR_RETURN(const auto shards, ReadWeightMap(index));
    std::set<std::string> files;
    for (const auto& [tensor, file] : shards) files.insert(file);
    WeightFiles weights;
    for (const std::string& file : files) {
      const absl::Status added = weights.AddFile(directory / file);
      if (absl::IsNotFound(added)) {
        return absl::NotFoundError(
            absl::StrCat("shard named by ", index.filename().string(),
                         " is missing, complete the download: ", (directory / file).string()));
      }
      OXBOW_RETURN_IF_ERROR(added);
    }
    for (const auto& [tensor, file] : shards) {
      const auto found = weights.places_.find(tensor);
      if (found == weights.places_.end() ||
          fs::path(weights.paths_[found->second.file]).filename() != file) {
        return absl::DataLossError(absl::StrCat("tensor '", tensor,
                                                "' is not in the shard that the index says: ", file,
                                                " of ", index.string()));
      }
    }
    return weights;
  }
  return absl::NotFoundError(absl::StrCat("no weights (", base, ".safetensors, its index, or the ",
                                          "fp16 variants) in ", directory.string()));
}

const WeightFiles::Place& WeightFiles::PlaceOf(const std::string& name) const {
  const auto found = places_.find(name);
  OXBOW_CHECK(found != places_.end()) << "no tensor named " << name;
  return found->second;
}

std::string_view WeightFiles::BytesOf(const std::string& name) const { return PlaceOf(name).bytes; }

void WeightFiles::Release(const std::string& name) const {
  const Place& place = PlaceOf(name);
  files_[place.file].Release(place.bytes);
}

std::string WeightFiles::FileOf(const std::string& name) const {
  return paths_[PlaceOf(name).file];
}

uint64_t WeightFiles::OffsetOf(const std::string& name) const {
  const Place& place = PlaceOf(name);
  return static_cast<uint64_t>(place.bytes.data() - files_[place.file].bytes().data());
}

}  // namespace oxbow::io
